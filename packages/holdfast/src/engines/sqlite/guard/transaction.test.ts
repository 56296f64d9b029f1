/** Cases for SQLite alone: transactions that end in every possible way. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { beforeEach, describe, test } from 'vitest'
import { createGuardedFile, fence, readCell, writeCell } from '../../../../test/guard-table.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { sqliteGuard } from './sqlite-guard.ts'

describe('sqliteGuard and its transactions', () => {
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

  /** A second connection to the same file, as another process would have it. */
  const another = () => new DatabaseSync(path)

  test('T41 the check, the memory and the effect are in one transaction', async () => {
    const guard = sqliteGuard({ database })
    const observer = another()
    await guard.run(fence(1n), async (tx) => {
      assert.equal(tx.isTransaction, true)
      writeCell(tx, 'a', '1')
      assert.equal(readCell(observer, 'a'), undefined)
      assert.throws(() => writeCell(observer, 'b', '2'), /locked/, 'the file is locked for other writers')
    })
    assert.equal(readCell(observer, 'a'), '1')
    assert.equal(database.isTransaction, false)
    observer.close()
  })

  test('T41 a process that is killed inside an effect leaves neither effect nor memory behind', async () => {
    const program = `
      const { sqliteGuard } = await import(${JSON.stringify(new URL('./sqlite-guard.ts', import.meta.url).href)})
      const { makeFence } = await import(${JSON.stringify(new URL('../../../base/fence.ts', import.meta.url).href)})
      const fence = (token) => makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token, grant: 'g' + token })
      const guard = sqliteGuard({ path: ${JSON.stringify(path)} })
      const write = (value) => (tx) => tx.prepare('INSERT OR REPLACE INTO cells VALUES (?, ?)').run('a', value)
      await guard.run(fence(5n), write('acknowledged'))
      await guard.run(fence(9n), async (tx) => {
        write('half done')(tx)
        process.stdout.write('inside')
        await new Promise(() => setInterval(() => {}, 1_000))
      })`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'exit')
    const guard = sqliteGuard({ database })
    assert.equal(readCell(database, 'a'), 'acknowledged')
    assert.equal((await guard.highest('n'))?.token, 5n)
    await assert.rejects(
      guard.run(fence(4n), () => {}),
      { code: 'FENCE_STALE' },
    )
    await guard.run(fence(6n), () => {})
  })

  test('T42 the token stands in the file as an exact integer', async () => {
    await sqliteGuard({ database }).run(fence(2n ** 63n - 1n), () => {})
    const row = database.prepare('SELECT CAST(token AS TEXT) AS token FROM holdfast_guard_names').get()
    assert.equal(row?.token, '9223372036854775807')
  })

  test('G5 two connections on one file: 200 read-modify-writes of both lose none', async () => {
    const [one, two] = [sqliteGuard({ database }), sqliteGuard({ path })]
    const increment = async (tx: DatabaseSync) => {
      const before = Number(readCell(tx, 'count') ?? 0)
      await new Promise((resolve) => setImmediate(resolve))
      writeCell(tx, 'count', String(before + 1))
    }
    const runs = Array.from({ length: 100 }, () => [
      one.run(fence(1n), increment),
      two.run(fence(1n), increment),
    ])
    await Promise.all(runs.flat())
    assert.equal(readCell(database, 'count'), '200')
    await two[Symbol.asyncDispose]()
  })

  test('a busy file is waited for, and then the run goes on', async () => {
    const other = another()
    other.exec('BEGIN IMMEDIATE')
    const clock = createFakeClock()
    const run = sqliteGuard({ database, clock }).run(fence(1n), () => 'done')
    await clock.advance(1_000)
    other.exec('COMMIT')
    await clock.advance(100)
    assert.equal(await run, 'done')
    other.close()
  })

  test('a file that stays busy for 5 s is BACKEND_UNAVAILABLE, not-applied, and the effect does not run', async () => {
    const guard = sqliteGuard({ database, clock: createFakeClock() })
    await guard.run(fence(1n), () => {})
    const clock = createFakeClock()
    const other = another()
    other.exec('BEGIN IMMEDIATE')
    let calls = 0
    const run = sqliteGuard({ database, clock }).run(fence(2n), () => void calls++)
    const refused = assert.rejects(run, {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
      message: /database is locked\. Another connection has a transaction open on the file: see to it that/,
    })
    await clock.advance(4_900)
    assert.equal(clock.pendingTimers, 1)
    await clock.advance(200)
    await refused
    other.exec('COMMIT')
    assert.equal(calls, 0)
    assert.equal(database.isTransaction, false)
    other.close()
  })

  test('G11 a signal ends the wait for a busy file with its reason', async () => {
    const clock = createFakeClock()
    const other = another()
    other.exec('BEGIN IMMEDIATE')
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const run = sqliteGuard({ database, clock }).run(fence(1n), () => {}, { signal: controller.signal })
    const refused = assert.rejects(run, reason)
    await clock.advance(100)
    controller.abort(reason)
    await refused
    assert.equal(clock.pendingTimers, 0)
    other.exec('COMMIT')
    other.close()
  })

  test('a commit that a reader holds up is tried again; one that stays held up is rolled back', async () => {
    // With a rollback journal, a commit has to wait until every reader has finished.
    database.exec('PRAGMA journal_mode = delete')
    const clock = createFakeClock()
    const guard = sqliteGuard({ database, clock })
    await guard.run(fence(1n), (tx) => writeCell(tx, 'a', 'before'))
    const reader = another()
    reader.exec('BEGIN')
    assert.equal(readCell(reader, 'a'), 'before')
    const patient = guard.run(fence(2n), (tx) => writeCell(tx, 'a', 'patient'))
    await clock.advance(1_000)
    reader.exec('COMMIT')
    await clock.advance(100)
    await patient
    reader.exec('BEGIN')
    assert.equal(readCell(reader, 'a'), 'patient')
    const impatient = guard.run(fence(3n), (tx) => writeCell(tx, 'a', 'impatient'))
    const refused = assert.rejects(impatient, { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    await clock.advance(5_100)
    await refused
    reader.exec('COMMIT')
    reader.close()
    assert.equal(database.isTransaction, false)
    assert.equal(readCell(database, 'a'), 'patient')
    assert.equal((await guard.highest('n'))?.token, 2n)
  })

  test('a constraint that is checked at the commit comes out as it is, and everything is rolled back', async () => {
    database.exec(`
      PRAGMA foreign_keys = on;
      CREATE TABLE children (parent TEXT REFERENCES cells (key) DEFERRABLE INITIALLY DEFERRED)`)
    const guard = sqliteGuard({ database })
    const run = guard.run(fence(1n), (tx) => tx.exec("INSERT INTO children VALUES ('nobody')"))
    await assert.rejects(run, { code: 'ERR_SQLITE_ERROR', message: 'FOREIGN KEY constraint failed' })
    assert.equal(database.isTransaction, false)
    assert.equal(await guard.highest('n'), null)
  })

  for (const [what, sql] of [
    ['commits', 'COMMIT'],
    ['rolls back', 'ROLLBACK'],
    ['commits and begins again', 'COMMIT; BEGIN'],
    ['rolls back and begins again', 'ROLLBACK; BEGIN IMMEDIATE'],
  ] as const)
    test(`an effect that ${what} by itself is told so, and no transaction stays open`, async () => {
      const guard = sqliteGuard({ database })
      const run = guard.run(fence(1n), (tx) => {
        tx.exec(sql)
        if (tx.isTransaction) writeCell(tx, 'a', 'not guarded')
      })
      await assert.rejects(run, (error: Error & { code?: string }) => {
        assert.equal(error.code, 'INVALID_ARGUMENT')
        assert.match(error.message, /must not end the transaction/)
        return true
      })
      assert.equal(database.isTransaction, false)
      assert.equal(readCell(database, 'a'), undefined)
      assert.equal(await guard.run(fence(2n), () => 'works'), 'works')
    })

  test('an effect that closes the guard is refused, and the guard closes afterwards', async () => {
    const guard = sqliteGuard({ path })
    await guard.run(fence(1n), async () => {
      await assert.rejects(guard.close(), { code: 'INVALID_ARGUMENT' })
    })
    await guard.run(fence(1n), () => {})
    await Promise.all([guard.close(), guard.close()])
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      { code: 'CLOSED' },
    )
  })

  test('an effect that closes the connection gets its own error out, and the others a typed one', async () => {
    const guard = sqliteGuard({ database })
    const planted = new Error('planted')
    const run = guard.run(fence(1n), (tx) => {
      tx.close()
      throw planted
    })
    await assert.rejects(run, planted)
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' },
    )
    await assert.rejects(guard.highest('n'), { code: 'BACKEND_UNAVAILABLE' })
  })

  test('savepoints of the effect are its own business', async () => {
    const guard = sqliteGuard({ database })
    await guard.run(fence(1n), (tx) => {
      tx.exec('SAVEPOINT mine')
      writeCell(tx, 'a', 'dropped')
      tx.exec('ROLLBACK TO mine')
      writeCell(tx, 'b', 'kept')
    })
    assert.deepEqual([readCell(database, 'a'), readCell(database, 'b')], [undefined, 'kept'])
  })

  test('a connection that is inside a transaction already is refused by run, and works with enter', async () => {
    const guard = sqliteGuard({ database })
    database.exec('BEGIN')
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      { code: 'INVALID_ARGUMENT' },
    )
    await guard.enter(database, fence(1n))
    database.exec('COMMIT')
    assert.equal((await guard.highest('n'))?.token, 1n)
  })

  test('enter makes the tables in the transaction if need be, and survives that it was rolled back', async () => {
    const guard = sqliteGuard({ database })
    for (const end of ['ROLLBACK', 'COMMIT']) {
      database.exec('BEGIN')
      await guard.enter(database, fence(1n))
      database.exec(end)
    }
    assert.equal((await guard.highest('n'))?.token, 1n)
  })

  test('G5 a transaction that sees an old state of the file cannot enter with it', async () => {
    database.exec('PRAGMA journal_mode = wal')
    const guard = sqliteGuard({ database })
    await guard.run(fence(1n), () => {})
    const snapshot = another()
    snapshot.exec('BEGIN DEFERRED')
    readCell(snapshot, 'a')
    await guard.run(fence(9n), () => {})
    // In what this transaction sees, 1 is the highest token. It must not pass all the same.
    const entered = guard.enter(snapshot, fence(5n))
    await assert.rejects(entered, { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    snapshot.exec('ROLLBACK')
    snapshot.exec('BEGIN IMMEDIATE')
    await assert.rejects(guard.enter(snapshot, fence(5n)), { code: 'FENCE_STALE' })
    snapshot.close()
  })

  test('two guards of one connection wait for each other, too', async () => {
    const [one, two] = [sqliteGuard({ database, name: 'one' }), sqliteGuard({ database, name: 'two' })]
    const order: string[] = []
    const effect = (guard: string) => async () => {
      order.push(`${guard} begins`)
      await new Promise((resolve) => setImmediate(resolve))
      order.push(`${guard} ends`)
    }
    await Promise.all([one.run(fence(1n), effect('one')), two.run(fence(1n), effect('two'))])
    assert.deepEqual(order, ['one begins', 'one ends', 'two begins', 'two ends'])
  })

  test('enter refuses a connection to another file, where it would remember something else', async () => {
    const guard = sqliteGuard({ database })
    const elsewhere = new DatabaseSync(join(folder, 'other.db'))
    const nowhere = new DatabaseSync(':memory:')
    for (const stranger of [elsewhere, nowhere]) {
      stranger.exec('BEGIN')
      await assert.rejects(guard.enter(stranger, fence(1n)), { code: 'INVALID_ARGUMENT' })
      stranger.close()
    }
    const guardOfMemory = sqliteGuard({ database: new DatabaseSync(':memory:') })
    const otherMemory = new DatabaseSync(':memory:')
    otherMemory.exec('BEGIN')
    await assert.rejects(guardOfMemory.enter(otherMemory, fence(1n)), { code: 'INVALID_ARGUMENT' })
    otherMemory.close()
  })
})
