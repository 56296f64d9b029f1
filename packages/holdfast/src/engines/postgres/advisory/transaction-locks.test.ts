import { drizzle } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleJs } from 'drizzle-orm/postgres-js'
import { type PooledPostgres, startPooledPostgres, wanted } from 'holdfast-lab/servers'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createLocker } from '../../../locker/locker.ts'
import type { SqlTransaction } from '../client/index.ts'
import { openPostgresAdvisory } from './assemble.ts'
import { lockRow } from './row-lock.ts'
import { tryTransactionLock, withTransactionLock } from './transaction-lock.ts'

type InTransaction = <T>(work: (tx: SqlTransaction) => Promise<T>) => Promise<T>

describe.runIf(wanted('postgres') && wanted('pgbouncer'))('locks in transactions of the user', () => {
  let pooled: PooledPostgres
  let pool: pg.Pool
  let direct: pg.Pool
  let sql: postgres.Sql
  beforeAll(async () => {
    pooled = await startPooledPostgres()
    // Through the pooler, in transaction mode.
    pool = new pg.Pool({ connectionString: pooled.bouncer.url, max: 5 })
    sql = postgres(pooled.bouncer.url, { max: 5, prepare: false, onnotice: () => {} })
    direct = new pg.Pool({ connectionString: pooled.postgres.url, max: 5 })
    for (const each of [pool, direct]) each.on('error', () => {})
    await direct.query('CREATE SCHEMA "Shop"')
    await direct.query('CREATE TABLE "Shop"."Stock" (sku int PRIMARY KEY, units int, "odd ""name" text)')
    await direct.query(`INSERT INTO "Shop"."Stock" VALUES (1, 10, 'a'), (2, 20, NULL), (3, 30, 'c')`)
  })
  afterAll(async () => {
    await Promise.all([pool?.end(), direct?.end(), sql?.end({ timeout: 1 })])
    await pooled?.stop()
  })

  const withPg: InTransaction = async (work) => {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      const result = await work(client)
      await client.query('COMMIT')
      return result
    } catch (error) {
      await client.query('ROLLBACK')
      throw error
    } finally {
      client.release()
    }
  }
  const withPostgresJs: InTransaction = async (work) => (await sql.begin((tx) => work(tx))) as never
  const withKysely: InTransaction = (work) =>
    new Kysely<object>({ dialect: new PostgresDialect({ pool }) }).transaction().execute(work)
  const withDrizzle: InTransaction = (work) => drizzle(pool).transaction((tx) => work(tx))
  const withDrizzleJs: InTransaction = (work) => drizzleJs(sql).transaction((tx) => work(tx))
  const ways: [string, InTransaction][] = [
    ['pg', withPg],
    ['postgres.js', withPostgresJs],
    ['Kysely', withKysely],
    ['Drizzle on pg', withDrizzle],
    ['Drizzle on postgres.js', withDrizzleJs],
  ]

  test.for(ways)(
    'T50 %s behind PgBouncer: held until the transaction ends, and not a moment longer',
    async ([way, inTransaction]) => {
      const name = `held by ${way}`
      const told: string[] = []
      const first = Promise.withResolvers<void>()
      const [hold, leave] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
      const holding = inTransaction(async (tx) => {
        await withTransactionLock(tx, name)
        hold.resolve()
        await leave.promise
        told.push('first ends')
      })
      await hold.promise
      expect(await inTransaction((tx) => tryTransactionLock(tx, name))).toBe(false)
      const waiting = inTransaction(async (tx) => {
        first.resolve()
        await withTransactionLock(tx, name)
        told.push('second holds')
      })
      await first.promise
      leave.resolve()
      await Promise.all([holding, waiting])
      expect(told).toEqual(['first ends', 'second holds'])
      expect(await inTransaction((tx) => tryTransactionLock(tx, name))).toBe(true)
    },
  )

  test('it excludes with the leases of the backend, and with its readers', async () => {
    const locker = createLocker(await openPostgresAdvisory({ client: direct, namespace: 'shop' }))
    const namespace = 'shop'
    const lease = await locker.acquire('x')
    expect(await withPg((tx) => tryTransactionLock(tx, 'x', { namespace }))).toBe(false)
    await lease.release()
    await withPg(async (tx) => {
      expect(await tryTransactionLock(tx, 'x', { namespace, mode: 'shared' })).toBe(true)
      expect(await locker.tryAcquire('x')).toBeNull()
      const reader = await locker.acquire('x', { mode: 'shared' })
      await reader.release()
    })
    const writer = await locker.acquire('x')
    await writer.release()
    await locker.close()
  })

  test('keys of the user’s own, and of hashtext', async () => {
    await withPg(async (tx) => {
      await withTransactionLock(tx, 'by number', { key: () => 4711n })
      await withTransactionLock(tx, 'by hash', { key: 'hashtext' })
      const got = await direct.query(
        "SELECT pg_try_advisory_xact_lock(4711) AS number, pg_try_advisory_xact_lock(hashtext('by hash')) AS hash",
      )
      expect(got.rows).toEqual([{ number: false, hash: false }])
    })
    await expect(withPg((tx) => withTransactionLock(tx, 'x', { key: () => 1 as never }))).rejects.toThrow(
      /bigint/,
    )
  })

  test('waitMs: who does not get it in time is told so, and the setting does not outlive it', async () => {
    const hold = Promise.withResolvers<void>()
    const held = Promise.withResolvers<void>()
    const holding = withPg(async (tx) => {
      await withTransactionLock(tx, 'slow', { waitMs: 1_000 })
      const { rows } = (await (tx as pg.PoolClient).query('SHOW lock_timeout')) as pg.QueryResult
      expect(rows).toEqual([{ lock_timeout: '0' }])
      held.resolve()
      await hold.promise
    })
    await held.promise
    for (const inTransaction of [withPg, withPostgresJs, withDrizzle]) {
      const trying = inTransaction((tx) => withTransactionLock(tx, 'slow', { waitMs: 20 }))
      await expect(trying).rejects.toMatchObject({ code: 'ACQUIRE_TIMEOUT', resource: 'slow' })
    }
    hold.resolve()
    await holding
  })

  test('outside of a transaction it would protect nothing, and is refused', async () => {
    for (const tx of [pool, sql] as SqlTransaction[]) {
      await expect(withTransactionLock(tx, 'x')).rejects.toThrow(/tx is not in a transaction/)
      await expect(tryTransactionLock(tx, 'x')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    }
    // Also as the very first statement of a transaction it is one.
    for (let turn = 0; turn < 50; turn++)
      expect(await withPostgresJs((tx) => tryTransactionLock(tx, `first ${turn}`))).toBe(true)
  })

  test('lockRow refuses what is not a transaction, instead of saying that it has locked something', async () => {
    const reserved = postgres(pooled.postgres.url, { max: 1, onnotice: () => {} })
    const one = await direct.connect()
    const request = { table: 'Shop.Stock', where: { sku: 2 }, columns: ['units'] } as const
    try {
      for (const tx of [pool, sql, direct, reserved, one])
        for (const ifLocked of ['wait', 'nowait', 'skip'] as const)
          await expect(lockRow(tx, { ...request, ifLocked })).rejects.toMatchObject({
            code: 'INVALID_ARGUMENT',
            message: expect.stringMatching(/tx is not in a transaction/),
          })
      // In a savepoint it is the same transaction still.
      const kind = await sql.begin((tx) =>
        tx.savepoint(async (inner) => (await lockRow(inner, request)).kind),
      )
      expect(kind).toBe('locked')
    } finally {
      one.release()
      await reserved.end({ timeout: 1 })
    }
  })

  test('names and options are checked', async () => {
    await expect(withTransactionLock(pool, '')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(withTransactionLock(pool, 'x', { wait: 5 } as never)).rejects.toThrow(/wait/)
    await expect(withTransactionLock(pool, 'x', { mode: 'write' as never })).rejects.toThrow(/mode/)
    await expect(withTransactionLock({} as never, 'x')).rejects.toThrow(/tx must be/)
  })

  describe('rows', () => {
    const table = 'Shop.Stock'

    test.for(ways)(
      '%s: a row is locked and read, and others wait, are told or skip it',
      async ([, inTransaction]) => {
        await inTransaction(async (tx) => {
          const got = await lockRow(tx, { table, where: { sku: 1 }, columns: ['units', 'odd "name'] })
          expect(got).toEqual({ kind: 'locked', row: { units: 10, 'odd "name': 'a' } })
          await inTransaction(async (other) => {
            expect(await lockRow(other, { table, where: { sku: 1 }, ifLocked: 'nowait' })).toEqual({
              kind: 'busy',
            })
            expect(await lockRow(other, { table, where: { sku: 1 }, ifLocked: 'skip' })).toEqual({
              kind: 'skipped',
            })
            // The transaction goes on: nothing of this was an error.
            const free = await lockRow(other, {
              table,
              where: { sku: 2 },
              ifLocked: 'nowait',
              columns: ['units'],
            })
            expect(free).toEqual({ kind: 'locked', row: { units: 20 } })
            const none = { table, where: { sku: 99 } }
            expect(await lockRow(other, none)).toEqual({ kind: 'not-found' })
            expect(await lockRow(other, { ...none, ifLocked: 'nowait' })).toEqual({ kind: 'not-found' })
          })
        })
      },
    )

    test('a waiter gets the row as the one before left it', async () => {
      const held = Promise.withResolvers<void>()
      const writing = withPg(async (tx) => {
        await lockRow(tx, { table, where: { sku: 3 } })
        held.resolve()
        const client = tx as pg.PoolClient
        await expect
          .poll(async () => (await direct.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount)
          .toBeGreaterThan(0)
        await client.query('UPDATE "Shop"."Stock" SET units = units - 1 WHERE sku = 3')
      })
      await held.promise
      const read = await withPostgresJs((tx) => lockRow(tx, { table, where: { sku: 3 }, columns: ['units'] }))
      await writing
      expect(read).toEqual({ kind: 'locked', row: { units: 29 } })
    })

    test('readers share, and keep a writer out', async () => {
      await withPg(async (tx) => {
        await lockRow(tx, { table, where: { sku: 1 }, strength: 'share' })
        await withPg(async (other) => {
          const reading = { table, where: { sku: 1 }, ifLocked: 'nowait' } as const
          expect(await lockRow(other, { ...reading, strength: 'share' })).toMatchObject({ kind: 'locked' })
          expect(await lockRow(other, { ...reading, strength: 'key share' })).toMatchObject({
            kind: 'locked',
          })
        })
        const writing = withPg((other) => lockRow(other, { table, where: { sku: 1 }, ifLocked: 'nowait' }))
        expect(await writing).toEqual({ kind: 'busy' })
      })
    })

    test('identifiers are quoted and values are parameters: nothing can be smuggled in', async () => {
      await withPg(async (tx) => {
        const evil = `a' OR '1'='1`
        expect(await lockRow(tx, { table, where: { 'odd "name': evil } })).toEqual({ kind: 'not-found' })
        expect(await lockRow(tx, { table, where: { 'odd "name': null, sku: 2n } })).toMatchObject({
          kind: 'locked',
        })
      })
      const refused = (request: object) => withPg((tx) => lockRow(tx, request as never))
      await expect(refused({ table, where: {} })).rejects.toThrow(/at least one column/)
      await expect(refused({ table: 'a.b.c', where: { sku: 1 } })).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      })
      await expect(refused({ table, where: { sku: { evil: 1 } } })).rejects.toThrow(/must compare with/)
      await expect(refused({ table, where: { sku: 1 }, strength: 'update; DROP' })).rejects.toThrow(
        /strength/,
      )
      await expect(refused({ table, where: { '': 1 } })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      await expect(refused({ table: '"; DROP TABLE x; --', where: { sku: 1 } })).rejects.toThrow(
        /does not exist/,
      )
    })
  })
})
