import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { reach, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { libraries } from '../../test/postgres/clients.ts'
import { ConflictError } from '../base/errors.ts'
import { type SqlTransaction, sqlRunnerOf } from '../clients/postgres/index.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { optimisticUpdate } from './optimistic-update.ts'
import { postgresRow } from './postgres.ts'
import { sqliteRow } from './sqlite.ts'

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

const buy = (stock: {
  read(): Promise<{ values: Record<'units', unknown>; version: bigint } | null>
  write(version: bigint, changes: { units: number }): Promise<number>
}) =>
  optimisticUpdate(
    () => stock.read(),
    ({ values, version }) => {
      if (Number(values.units) < 1) throw new Error('sold out')
      return stock.write(version, { units: Number(values.units) - 1 })
    },
    { retries: 50, jitterMs: 20 },
  )

async function tenBuyersOneUnit(stocks: Parameters<typeof buy>[0][]): Promise<void> {
  const outcomes = await Promise.allSettled(
    Array.from({ length: 10 }, (_, at) => buy(stocks[at % stocks.length] as Parameters<typeof buy>[0])),
  )
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1)
  for (const each of outcomes) if (each.status === 'rejected') assert.match(String(each.reason), /sold out/)
  const left = await stocks[0]?.read()
  assert.equal(Number(left?.values.units), 0)
}

describe('a row of SQLite with a version', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-row-'))
  afterAll(() => rmSync(folder, { recursive: true }))

  test('ten buyers, one unit: one gets it', async () => {
    const open = () => {
      const database = new DatabaseSync(join(folder, 'stock.db'))
      database.exec(
        'CREATE TABLE IF NOT EXISTS stock (sku INTEGER PRIMARY KEY, units INTEGER, version INTEGER)',
      )
      return database
    }
    const databases = [open(), open(), open()]
    databases[0]?.exec('INSERT INTO stock VALUES (42, 1, 9007199254740993)')
    const stocks = databases.map((database) =>
      sqliteRow({ database, table: 'stock', key: { sku: 42 }, columns: ['units'] }),
    )
    await tenBuyersOneUnit(stocks)
    assert.equal((await stocks[0]?.read())?.version, 9_007_199_254_740_994n, 'T42')
    for (const database of databases) database.close()
  })

  test('G11 a version that cannot be raised any more, or is not an integer, is said as such', async () => {
    const database = new DatabaseSync(':memory:')
    database.exec('CREATE TABLE stock (sku INTEGER PRIMARY KEY, units INTEGER, version)')
    database.exec(
      "INSERT INTO stock VALUES (1, 1, 9223372036854775807), (2, 1, NULL), (3, 1, 'a'), (4, 1, 1.5)",
    )
    const row = (sku: number) => sqliteRow({ database, table: 'stock', key: { sku }, columns: ['units'] })
    await assert.rejects(buy(row(1)), { code: 'UNSUPPORTED', retryable: false, message: /largest value/ })
    assert.equal((await row(1).read())?.version, 9_223_372_036_854_775_807n)
    for (const sku of [2, 3, 4])
      await assert.rejects(row(sku).read(), { code: 'UNSUPPORTED', message: /must hold an integer/ })
    database.close()
  })
})

describe.runIf(wanted('postgres')).each(libraries)(
  'a row of PostgreSQL with a version, by $name',
  (library) => {
    let server: Awaited<ReturnType<typeof reach>>
    beforeAll(async () => {
      server = await reach('postgres')
    }, 60_000)
    afterAll(() => server.stop())

    test('ten buyers, one unit: one gets it; who comes for another row is told that there is none', async () => {
      const opened = [library.open(server.url, { max: 3 }), library.open(server.url, { max: 3 })]
      const [one] = opened
      const tx = one?.client as unknown as SqlTransaction
      await sqlRunnerOf(tx).query('DROP TABLE IF EXISTS versioned_stock')
      await sqlRunnerOf(tx).query(
        'CREATE TABLE versioned_stock (sku int PRIMARY KEY, units int, version bigint)',
      )
      await sqlRunnerOf(tx).query('INSERT INTO versioned_stock VALUES (42, 1, 9007199254740993)')
      const stocks = opened.map(({ client }) =>
        postgresRow({ client, table: 'versioned_stock', key: { sku: 42 }, columns: ['units'] }),
      )
      await tenBuyersOneUnit(stocks)
      assert.equal((await stocks[0]?.read())?.version, 9_007_199_254_740_994n, 'T42')
      const absent = postgresRow({ tx, table: 'versioned_stock', key: { sku: 1 }, columns: ['units'] })
      assert.equal((await buy(absent)).kind, 'absent')
      for (const each of opened) await each[Symbol.asyncDispose]()
    })

    test('G11 a version that cannot be raised any more, and values that the table refuses, are said as such', async () => {
      await using opened = library.open(server.url, { max: 1 })
      const { query } = sqlRunnerOf(opened.client as unknown as SqlTransaction)
      await query('DROP TABLE IF EXISTS used_up')
      await query('CREATE TABLE used_up (id int PRIMARY KEY, units int CHECK (units < 10), version bigint)')
      await query('INSERT INTO used_up VALUES (1, 1, 9223372036854775807), (2, 1, 0)')
      const row = (id: number) =>
        postgresRow({ client: opened.client, table: 'used_up', key: { id }, columns: ['units'] })
      const usedUp = { code: 'UNSUPPORTED', retryable: false, message: /largest value.*bigint/s }
      await assert.rejects(row(1).write(2n ** 63n - 1n, { units: 5 }), usedUp)
      for (const units of [10, 'ten'])
        await assert.rejects(row(2).write(0n, { units }), { code: 'INVALID_ARGUMENT', argument: 'changes' })
      // A column of a smaller type ends earlier, and only the server knows where.
      await query('ALTER TABLE used_up ALTER version TYPE int USING 2147483647, ADD grams smallint')
      const tooLarge = { code: 'UNSUPPORTED', retryable: false, message: /does not fit its column/ }
      await assert.rejects(row(1).write(2_147_483_647n, { units: 5 }), tooLarge)
      await query('UPDATE used_up SET version = 0')
      await assert.rejects(row(1).write(0n, { grams: 40_000 }), {
        ...tooLarge,
        message: /the version is used up, or one of the changes is too large/,
      })
      await query('DROP TABLE used_up')
    })
  },
)
