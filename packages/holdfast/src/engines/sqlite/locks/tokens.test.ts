import assert from 'node:assert/strict'
import { copyFileSync, existsSync, rmSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { type FullSession, SqliteRig } from '../../../../test/sqlite/rig.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { Database } from './database.ts'
import { prepareStatements } from './statements.ts'
import { noStatistics } from './statistics.ts'
import { drawToken, reserveTokens, TOKENS_PER_RESERVATION, TokensUsedUp } from './tokens.ts'

const block = BigInt(TOKENS_PER_RESERVATION)

/** Acquires and releases, and returns the token. */
async function draw(session: FullSession, name = 'x'): Promise<bigint> {
  const asked = request(name)
  const result = await session.tryAcquire(asked, call())
  assert(result.kind === 'granted')
  await session.release(result.grant, { keepForMs: 0 }, call())
  return result.grant.token
}

describe('tokens', () => {
  test('G2 T38 they start at 1 and rise over all names, namespaces and clients, and through reopening', async () => {
    await using rig = new SqliteRig()
    const tokens: bigint[] = []
    for (let round = 0; round < 3; round++) {
      const [red, blue] = [
        await rig.session(rig.open({ namespace: 'red' })),
        await rig.session(rig.open({ namespace: 'blue' })),
      ]
      for (const session of [red, blue, blue, red]) tokens.push(await draw(session), await draw(session, 'y'))
      await rig.closeAll()
    }
    assert.deepEqual(
      tokens,
      Array.from({ length: 24 }, (_, index) => BigInt(index + 1)),
    )
  })

  test('G2 T68 after a restart of the machine counting goes on where nothing was given out', async () => {
    await using rig = new SqliteRig()
    const before = await draw(await rig.session())
    await rig.restart()
    const after = await draw(await rig.session())
    assert.equal(before, 1n)
    assert.equal(after, 1n + block, 'everything that was reserved may have been used')
    assert.equal(await draw(await rig.session()), after + 1n)
    await rig.restart()
    assert.equal(await draw(await rig.session()), after + block)
  })

  test('G2 T38 T68 no token repeats after a power failure, which undoes what did not wait for the disk', async () => {
    await using rig = new SqliteRig()
    const seen = new Set<bigint>()
    for (let failure = 0; failure < 3; failure++) {
      const session = await rig.session()
      // The first grant follows a reservation, which has waited for the disk: this much survives.
      seen.add(await draw(session))
      const restore = snapshot(rig)
      for (let index = 0; index < 50; index++) seen.add(await draw(session))
      await rig.restart()
      restore()
    }
    assert.equal(seen.size, 3 * 51)
  })

  test('G2 the power may fail again before anything was drawn after the restart', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const first = await draw(session)
    const restore = snapshot(rig)
    await rig.restart()
    await rig.session()
    await rig.restart()
    restore()
    assert((await draw(await rig.session())) >= first + block)
  })

  test('G2 a token is used only after its reservation has waited for the disk', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    await rig.closeAll()
    assert.equal(client.statistics.reservations, 0, 'a client that only looks reserves nothing')
    const log: string[] = []
    const connection = recorded(new DatabaseSync(rig.path), log)
    const database = new Database(connection, 'normal', noStatistics())
    const sql = prepareStatements(database)
    connection.exec('PRAGMA synchronous = normal')
    log.length = 0

    assert.throws(() => drawToken({ sql, tokens: undefined }), TokensUsedUp, 'none is reserved')
    assert.equal(reserveTokens(database, sql), true)
    assert.equal(drawToken({ sql, tokens: undefined }), 1n)
    assert.deepEqual(
      log.filter((line) => !line.startsWith('SELECT')),
      [
        'PRAGMA synchronous = FULL',
        'BEGIN IMMEDIATE at synchronous 2',
        'UPDATE meta SET reserved_token at synchronous 2',
        'COMMIT at synchronous 2',
        'PRAGMA synchronous = normal',
      ],
    )
    assert.equal(connection.prepare('PRAGMA synchronous').get()?.synchronous, 1, 'and then no longer')
    database.close()
  })

  test('G2 T37 the file itself refuses a count beyond what is reserved', async () => {
    await using rig = new SqliteRig()
    await draw(await rig.session())
    assert.throws(() => rig.sql('UPDATE meta SET next_token = reserved_token + 1'), /CHECK constraint/)
  })

  test('G2 when a block is used up in the middle of a batch, the batch is repeated after a reservation', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    await draw(session)
    rig.sql('UPDATE meta SET next_token = reserved_token - 3')
    const asked = Array.from({ length: 8 }, (_, index) => request(`item ${index}`))
    const results = await Promise.all(asked.map((each) => session.tryAcquire(each, call())))
    const tokens = results.map((result) => (result.kind === 'granted' ? result.grant.token : 0n))
    assert.deepEqual(
      tokens,
      asked.map((_, index) => block - 2n + BigInt(index)),
    )
    assert.equal(rig.clients[0]?.statistics.reservations, 2)
  })

  test('G2 the counter survives everything up to 2^52 exactly', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    await draw(session)
    rig.sql('UPDATE meta SET next_token = ?, reserved_token = ?', 2n ** 52n - 5n, 2n ** 52n + 5n)
    assert.equal(await draw(session), 2n ** 52n - 5n)
    assert.equal(await draw(session), 2n ** 52n - 4n)
  })
})

const sideFiles = ['', '-wal', '-shm']

/** Keeps the file as it is now; the returned function puts it back. */
function snapshot(rig: SqliteRig): () => void {
  for (const suffix of sideFiles) copyFileSync(rig.path + suffix, `${rig.path}.kept${suffix}`)
  return () => {
    for (const suffix of sideFiles) rmSync(rig.path + suffix, { force: true })
    for (const suffix of sideFiles)
      if (existsSync(`${rig.path}.kept${suffix}`))
        copyFileSync(`${rig.path}.kept${suffix}`, rig.path + suffix)
  }
}

/** Writes down every statement, and how much it would wait for the disk. */
function recorded(connection: DatabaseSync, log: string[]): DatabaseSync {
  const level = () => connection.prepare('PRAGMA synchronous').get()?.synchronous
  const note = (sql: string) => {
    const [text = ''] = /^(SELECT|UPDATE meta SET \w+|BEGIN IMMEDIATE|COMMIT|ROLLBACK|PRAGMA.*)/.exec(
      sql.trim(),
    ) ?? [sql]
    log.push(text.startsWith('PRAGMA') ? text : `${text} at synchronous ${level()}`)
  }
  const noting = <T extends object>(
    inner: T,
    methods: readonly string[],
    sqlOf: (args: unknown[]) => string,
  ): T =>
    new Proxy(inner, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        return (...args: unknown[]) => {
          if (methods.includes(String(key))) note(sqlOf(args))
          const result: unknown = value.apply(target, args)
          if (key !== 'prepare') return result
          return noting(result as object, ['run', 'get', 'all'], () => String(args[0]))
        }
      },
    })
  return noting(connection, ['exec'], ([sql]) => String(sql))
}
