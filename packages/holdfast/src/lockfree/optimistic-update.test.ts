import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { reach, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { inTransaction } from '../../test/postgres/guard-world.ts'
import { ConflictError } from '../base/errors.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { optimisticUpdate } from './optimistic-update.ts'

describe('optimisticUpdate', () => {
  const row = { version: 1 }

  test('the first write that changes the row ends it', async () => {
    const answers = [false, 0, 0n, 1]
    const outcome = await optimisticUpdate(
      () => row,
      () => answers.shift() ?? false,
      { jitterMs: 0 },
    )
    assert.deepEqual(outcome, { kind: 'updated', row, attempts: 4 })
  })

  test('a conflict is told from absence: a row that is gone ends it at once', async () => {
    assert.deepEqual(
      await optimisticUpdate(
        () => null,
        () => assert.fail('nothing to write'),
      ),
      { kind: 'absent', attempts: 1 },
    )
    const reads = [row, undefined]
    const outcome = await optimisticUpdate(
      () => reads.shift(),
      () => 0,
      { jitterMs: 0 },
    )
    assert.deepEqual(outcome, { kind: 'absent', attempts: 2 })
  })

  test('after 3 retries it gives up with CONFLICT, and each pause is a random one of up to 100 ms', async () => {
    const clock = createFakeClock()
    const fractions = [0.999, 0.5, 0]
    const random = {
      id: () => 'x',
      fraction: () => fractions.shift() ?? assert.fail('more pauses than retries'),
    }
    let writes = 0
    const startMs = clock.monotonicMs()
    const run = optimisticUpdate(
      () => row,
      () => {
        writes++
        return false
      },
      { clock, random },
    )
    const failed = assert.rejects(run, { code: 'CONFLICT', retryable: true })
    await clock.advance(1_000)
    await failed
    assert.equal(writes, 4)
    assert.ok(clock.monotonicMs() - startMs >= 149.9)
  })

  test('what the database calls a conflict is tried again; any other error comes out, because it may be applied', async () => {
    const conflicts = [
      Object.assign(new Error('serialize'), { code: '40001' }),
      Object.assign(new Error('deadlock'), { code: '40P01' }),
      Object.assign(new Error('snapshot'), { errcode: 517 }),
      new ConflictError('Others.'),
    ]
    let attempts = 0
    const throwing = (errors: unknown[]) =>
      optimisticUpdate(
        () => row,
        (_row, attempt) => {
          attempts = attempt
          const error = errors[attempt - 1]
          if (error !== undefined) throw error
          return 1
        },
        { jitterMs: 0, retries: 10 },
      )
    assert.equal((await throwing(conflicts)).attempts, 5)
    const reset = new Error('connection reset')
    await assert.rejects(throwing([reset]), reset)
    assert.equal(attempts, 1)
  })

  test('G11 a signal ends it with its reason, also during a pause', async () => {
    const clock = createFakeClock()
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const run = optimisticUpdate(
      () => row,
      () => 0,
      { clock, signal: controller.signal },
    )
    const ended = assert.rejects(run, reason)
    await clock.advance(0)
    controller.abort(reason)
    await ended
    assert.equal(clock.pendingTimers, 0)
  })

  test('arguments and answers that make no sense are refused', async () => {
    const write = () => 1
    for (const call of [
      () => optimisticUpdate(5 as never, write),
      () => optimisticUpdate(() => row, undefined as never),
      () => optimisticUpdate(() => row, write, { retries: -1 }),
      () => optimisticUpdate(() => row, write, { retrys: 1 } as never),
      () => optimisticUpdate(() => row, (() => undefined) as never),
      () => optimisticUpdate(() => row, (() => ({ rowCount: 1 })) as never),
      () =>
        optimisticUpdate(
          () => row,
          () => 2,
        ),
    ])
      await assert.rejects(call, { code: 'INVALID_ARGUMENT' })
  })
})

/** The store that a program writes for a table of its own. */
interface Stock {
  read(): Promise<{ units: number; version: string | bigint } | undefined>
  /** How many rows it has changed. */
  write(units: number, version: string | bigint): Promise<number | bigint | null>
}

const buy = (stock: Stock) =>
  optimisticUpdate(
    () => stock.read(),
    async ({ units, version }) => {
      if (Number(units) < 1) throw new Error('sold out')
      return (await stock.write(Number(units) - 1, version)) ?? 0
    },
    { retries: 50, jitterMs: 20 },
  )

async function tenBuyersOneUnit(stocks: readonly Stock[]): Promise<void> {
  const outcomes = await Promise.allSettled(
    Array.from({ length: 10 }, (_, at) => buy(stocks[at % stocks.length] as Stock)),
  )
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1)
  for (const each of outcomes) if (each.status === 'rejected') assert.match(String(each.reason), /sold out/)
  const left = await stocks[0]?.read()
  assert.deepEqual([Number(left?.units), String(left?.version)], [0, '9007199254740994'])
}

test('ten buyers, one unit, on SQLite: one gets it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-row-'))
  const databases = [1, 2, 3].map(() => new DatabaseSync(join(folder, 'stock.db')))
  databases[0]?.exec(
    'CREATE TABLE stock (sku INTEGER, units INTEGER, version INTEGER); INSERT INTO stock VALUES (42, 1, 9007199254740993)',
  )
  const stockOf = (database: DatabaseSync): Stock => ({
    async read() {
      const statement = database.prepare('SELECT units, version FROM stock WHERE sku = 42')
      statement.setReadBigInts(true)
      return statement.get() as unknown as Awaited<ReturnType<Stock['read']>>
    },
    async write(units, version) {
      const text = 'UPDATE stock SET units = ?, version = version + 1 WHERE sku = 42 AND version = ?'
      return database.prepare(text).run(units, version).changes
    },
  })
  await tenBuyersOneUnit(databases.map(stockOf))
  for (const database of databases) database.close()
  rmSync(folder, { recursive: true })
})

describe.runIf(wanted('postgres'))('optimisticUpdate on PostgreSQL', () => {
  let server: Awaited<ReturnType<typeof reach>>
  let pool: pg.Pool
  beforeAll(async () => {
    server = await reach('postgres')
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
  })
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })

  test.each(['READ COMMITTED', 'SERIALIZABLE'])(
    'ten buyers, one unit, at %s: one gets it; for another row there is none',
    async (level) => {
      await pool.query('DROP TABLE IF EXISTS versioned_stock')
      await pool.query('CREATE TABLE versioned_stock (sku int PRIMARY KEY, units int, version bigint)')
      await pool.query('INSERT INTO versioned_stock VALUES (42, 1, 9007199254740993)')
      const stockOf = (sku: number): Stock => ({
        read: async () =>
          (await pool.query('SELECT units, version FROM versioned_stock WHERE sku = $1', [sku])).rows[0],
        write: (units, version) =>
          inTransaction(pool, async (tx) => {
            const client = tx as pg.PoolClient
            await client.query(`SET TRANSACTION ISOLATION LEVEL ${level}`)
            const text =
              'UPDATE versioned_stock SET units = $1, version = version + 1 WHERE sku = $2 AND version = $3'
            return (await client.query(text, [units, sku, version])).rowCount
          }),
      })
      await tenBuyersOneUnit([stockOf(42)])
      assert.equal((await buy(stockOf(1))).kind, 'absent')
      await pool.query('DROP TABLE versioned_stock')
    },
  )
})
