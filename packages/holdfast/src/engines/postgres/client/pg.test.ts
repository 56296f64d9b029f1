import { startProxy } from 'holdfast-lab/faults'
import { startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { until } from '../../../../test/postgres/stage.ts'
import { postgresDatabase } from './database.ts'

const idleOnes = async (pool: pg.Pool) =>
  (await pool.query("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'")).rows.length

describe.runIf(wanted('postgres'))('pg', () => {
  test('T51 a connection that the server ends in the moment in which it is opened is an error of the call, and of no other', async () => {
    await using server = await startPostgres()
    await using proxy = await startProxy(server)
    const operator = new pg.Client(server.url)
    await operator.connect()
    const address = new URL(server.url)
    address.port = String(proxy.port)
    address.searchParams.set('application_name', 'ended at once')
    const pool = new pg.Pool({ connectionString: address.href, max: 1 })
    const database = postgresDatabase(pool)
    try {
      proxy.hold('down')
      const asking = database.query('SELECT 1', [])
      asking.catch(() => {})
      // Welcome and farewell arrive as one.
      const mine = "FROM pg_stat_activity WHERE application_name = 'ended at once'"
      await until('it is ended', async () => {
        const { rows } = await operator.query(
          `SELECT pg_terminate_backend(pid) ${mine} AND wait_event = 'ClientRead'`,
        )
        return rows.length > 0
      })
      await until('it has ended', async () => (await operator.query(`SELECT 1 ${mine}`)).rows.length === 0)
      proxy.heal()
      await expect(asking).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
      expect(await database.query('SELECT 1', [])).toEqual([[1]])
    } finally {
      await database.close()
      await pool.end()
      await operator.end()
    }
  })

  test('T86 a transaction that the server ended as idle before its COMMIT is told as not applied', async () => {
    await using server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url, max: 2 })
    const database = postgresDatabase(pool)
    try {
      const idle = database.transaction(
        async () => {
          await until('the server ends it', async () => (await idleOnes(pool)) === 0)
        },
        { maxIdleMs: 100 },
      )
      await expect(idle).rejects.toMatchObject({
        outcome: 'not-applied',
        message: expect.stringMatching(/idle for .*Holdfast sets 100 ms.*raise maxIdleMs/),
      })
    } finally {
      await database.close()
      await pool.end()
    }
  })

  test('a connection that many cancelled calls pass on at once gets one listener for all of them', async () => {
    await using server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool)
    const listeners: number[] = []
    await database.query('SELECT 1')
    pool.on('acquire', (connection) => listeners.push(connection.listenerCount('error')))
    const warnings: Error[] = []
    const onWarning = (warning: Error) => void warnings.push(warning)
    process.on('warning', onWarning)
    try {
      const own = await pool.connect()
      const cancelled = new AbortController()
      const calls = Array.from({ length: 20 }, () =>
        database.query('SELECT 1', [], { signal: cancelled.signal }),
      )
      const last = database.query('SELECT 1')
      cancelled.abort()
      await Promise.allSettled(calls)
      own.release()
      expect(await last).toEqual([[1]])
      expect(warnings.map(String)).toEqual([])
      // A checkout in a later turn is listened to again.
      for (let times = 0; times < 3; times++) await database.query('SELECT 1')
      const bare = new pg.Pool({ connectionString: server.url, max: 1 })
      const without = await new Promise<number>((resolve) => {
        bare.on('acquire', (connection) => resolve(connection.listenerCount('error')))
        void bare.query('SELECT 1')
      })
      await bare.end()
      expect(new Set(listeners)).toEqual(new Set([without + 1]))
      expect(own.listenerCount('error')).toBeLessThan(3)
    } finally {
      process.removeListener('warning', onWarning)
      await database.close()
      await pool.end()
    }
  })

  test.each([true, false])(
    'a call for which the pool has a connection, and whose pool the user ends in the same turn, can be cancelled (spare: %s)',
    async (spare) => {
      await using server = await startPostgres()
      const pool = new pg.Pool({ connectionString: server.url, max: 1 })
      const database = postgresDatabase(pool, { spare })
      await database.query('SELECT 1')
      const cancelled = new AbortController()
      const call = database.query('SELECT 1', [], { signal: cancelled.signal })
      const ended = pool.end()
      setImmediate(() => cancelled.abort())
      await expect(call).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
      await ended
      await database.close()
    },
  )

  test('a transaction that is cancelled while no statement is in flight is rolled back, and its connection kept', async () => {
    await using server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool)
    try {
      const ownProcess = () =>
        database.query('SELECT pg_backend_pid(), pg_current_xact_id_if_assigned()::text')
      const before = await ownProcess()
      const cancelled = new AbortController()
      const work = database.transaction(
        async (tx) => {
          await tx.query('CREATE TABLE undone ()')
          cancelled.abort()
        },
        { signal: cancelled.signal },
      )
      await expect(work).rejects.toMatchObject({ outcome: 'not-applied' })
      expect(await ownProcess()).toEqual(before)
      expect(await database.query("SELECT to_regclass('undone')::text")).toEqual([[null]])
    } finally {
      await database.close()
      await pool.end()
    }
  })

  test('T11 after a cancelled wait for a standby the outcome is unknown, and the connection serves the next call', async () => {
    await using server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool)
    const unknown = { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' }
    try {
      const ownProcess = () => database.query('SELECT pg_backend_pid()')
      const before = await ownProcess()
      await database.query(`
        CREATE TABLE kept (id int);
        CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          RAISE WARNING 'canceling wait for synchronous replication due to user request';
          RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER skipped AFTER INSERT ON kept DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION skip()`)
      const insert = 'INSERT INTO kept VALUES ($1)'
      await expect(database.query(insert, [1])).rejects.toMatchObject(unknown)
      expect(await ownProcess()).toEqual(before)
      const work = database.transaction((tx) => tx.query(insert, [2]))
      await expect(work).rejects.toMatchObject(unknown)
      expect(await ownProcess()).toEqual(before)
      expect(await database.query('SELECT id FROM kept ORDER BY id')).toEqual([[1], [2]])
    } finally {
      await database.close()
      await pool.end()
    }
  })

  test('a transaction whose beginning the server refuses leaves none open in the pool', async () => {
    await using server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool)
    try {
      // As a statement_timeout or a cancellation would, this fails after BEGIN.
      const refused = database.transaction(async () => {}, { maxIdleMs: Number.NaN })
      await expect(refused).rejects.toThrow('42703')
      expect(await database.query('SELECT 1')).toEqual([[1]])
    } finally {
      await database.close()
      await pool.end()
    }
  })
})
