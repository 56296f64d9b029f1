/** Cases for SQLite alone: connections of every kind, from their opening to their end. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { beforeEach, describe, test } from 'vitest'
import { createGuardedFile, fence, readCell, writeCell } from '../../../../test/guard-table.ts'
import { type SqliteDatabase, sqliteGuard } from './sqlite-guard.ts'

describe('sqliteGuard and its connection', () => {
  let folder: string
  let path: string
  let database: DatabaseSync

  beforeEach(async () => {
    const file = await createGuardedFile()
    folder = file.folder
    path = file.path
    database = file.database
    return file.remove
  })

  test('connections that read numbers or return arrays, and those that cannot say whether they are in a transaction', async () => {
    for (const options of [{ readBigInts: true }, { returnArrays: true }]) {
      const guard = sqliteGuard({ database: new DatabaseSync(':memory:', options) })
      await guard.run(fence(5n), () => {})
      await assert.rejects(
        guard.run(fence(4n), () => {}),
        { code: 'FENCE_STALE' },
      )
    }
    // As of Node before 22.16, or of another library: only what the guard says it needs.
    const bare: SqliteDatabase = {
      exec: (sql) => database.exec(sql),
      prepare: (sql) => database.prepare(sql),
    }
    const guard = sqliteGuard({ database: bare })
    await assert.rejects(guard.enter(bare, fence(1n)), { code: 'INVALID_ARGUMENT' })
    await guard.run(fence(5n), () => guard.enter(bare, fence(6n, 'm')))
    await assert.rejects(
      guard.run(fence(6n), () => Promise.reject(new Error('planted'))),
      /planted/,
    )
    assert.equal(database.isTransaction, false)
    assert.equal((await guard.highest('n'))?.token, 5n)
  })

  test('tables of a later layout are refused instead of being misread', async () => {
    const guard = sqliteGuard({ database })
    await guard.run(fence(1n), () => {})
    database.exec('UPDATE holdfast_guard_layout SET version = 2')
    await assert.rejects(
      sqliteGuard({ database }).run(fence(2n), () => {}),
      { code: 'UNSUPPORTED' },
    )
    assert.equal(database.isTransaction, false)
  })

  test('a guard of its own connection closes it at its end, after the runs that were asked for', async () => {
    const guard = sqliteGuard({ path })
    const gate = Promise.withResolvers<void>()
    const run = guard.run(fence(1n), async (tx) => {
      await gate.promise
      writeCell(tx, 'a', 'done')
      return tx
    })
    const queued = guard.run(fence(1n), () => 'served')
    const closed = guard[Symbol.asyncDispose]()
    const late = assert.rejects(
      guard.run(fence(2n), () => {}),
      { code: 'CLOSED' },
    )
    gate.resolve()
    const connection = await run
    assert.equal(await queued, 'served')
    await closed
    await late
    await guard[Symbol.asyncDispose]()
    assert.equal(connection.isOpen, false)
    assert.equal(readCell(database, 'a'), 'done')
  })

  test('a connection of the user stays open', async () => {
    {
      await using guard = sqliteGuard({ database })
      await guard.run(fence(1n), () => {})
    }
    assert.equal(database.isOpen, true)
  })

  test('forgetting keeps one row for each issuer, however many names there were', async () => {
    const guard = sqliteGuard({ database })
    for (let token = 1n; token <= 100n; token++) await guard.run(fence(token, `name ${token}`), () => {})
    assert.equal(await guard.prune({ untouchedForMs: 0 }), 100)
    const count = (table: string) => database.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.n
    assert.equal(count('holdfast_guard_names'), 0)
    assert.equal(count('holdfast_guard_issuers'), 1)
    await assert.rejects(
      guard.run(fence(99n, 'name 100'), () => {}),
      { code: 'FENCE_STALE' },
    )
    await guard.run(fence(100n, 'name 100'), () => {})
  })

  test('nonsense options are refused', () => {
    for (const options of [{}, { database, path }, { database: {} }, { path: '' }, { database, tabel: 'x' }])
      assert.throws(() => sqliteGuard(options as { path: string }), { code: 'INVALID_ARGUMENT' })
    assert.throws(() => sqliteGuard(undefined as never), { code: 'INVALID_ARGUMENT' })
  })

  test('a connection that cannot write is said to be so, with what to do', async () => {
    const reader = new DatabaseSync(path, { readOnly: true })
    await assert.rejects(
      sqliteGuard({ database: reader }).run(fence(1n), () => {}),
      {
        code: 'UNSUPPORTED',
        retryable: false,
        message: `The guard cannot use ${JSON.stringify(path)}: this connection may not write it. Open it for writing, change the permissions of the file and of its folder, in which SQLite keeps side files, or choose another place.`,
      },
    )
    reader.close()
  })

  test('a transaction that cannot become a writer is told how to begin', async () => {
    const guard = sqliteGuard({ database })
    await guard.run(fence(1n), () => {})
    const [deferred, writer] = [new DatabaseSync(path), new DatabaseSync(path)]
    deferred.exec('PRAGMA busy_timeout = 0; BEGIN DEFERRED')
    writer.exec('BEGIN IMMEDIATE')
    await assert.rejects(guard.enter(deferred, fence(2n)), {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
      message:
        /database is locked\. Another connection has a transaction open on the file: .* BEGIN IMMEDIATE/,
    })
    deferred.close()
    writer.close()
  })

  test('a file that can never be used is said to be so, and is not worth another try', async () => {
    assert.throws(() => sqliteGuard({ path: folder }), {
      code: 'UNSUPPORTED',
      retryable: false,
      message: `The guard cannot use ${JSON.stringify(folder)}: it cannot be opened. It must be a file, or the place for a new one, and this process must be allowed to read and write it and its folder.`,
    })
    assert.throws(() => sqliteGuard({ path: join(folder, 'nowhere', 'x.db') }), { code: 'INVALID_ARGUMENT' })
    const text = join(folder, 'notes.txt')
    writeFileSync(text, 'this is no database, and it is long enough to be told from an empty one')
    await using guard = sqliteGuard({ path: text })
    await assert.rejects(guard.highest('x'), {
      code: 'UNSUPPORTED',
      message: /notes.*is not an SQLite database/,
    })
  })

  test('the file of a locker is not for guards', async () => {
    const own = join(folder, 'locks.db')
    const lockFile = new DatabaseSync(own)
    lockFile.exec(`PRAGMA application_id = ${0x48465354}; CREATE TABLE t (x)`)
    lockFile.close()
    const guard = sqliteGuard({ path: own })
    await assert.rejects(guard.highest('x'), { code: 'INVALID_ARGUMENT' })
    await guard.close()
  })

  test('a run without an effect, and a proof that was not awaited, are told so', async () => {
    await using guard = sqliteGuard({ database })
    await assert.rejects(
      guard.run(Promise.resolve() as never, () => {}),
      /await/,
    )
    await assert.rejects(
      guard.run([] as never, () => {}),
      { code: 'INVALID_ARGUMENT' },
    )
  })
})
