/** The connection beside a user's pool (T85, shared clients): its opening, its end, and what it leaves in the pool. */
import assert from 'node:assert/strict'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { type Server, startPostgres, waitFor, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type PostgresDatabase, postgresDatabase } from './database.ts'
import type { PgPool } from './types.ts'

describe.runIf(wanted('postgres'))('the spare connection', () => {
  let server: Server & { readonly url: string }
  let operator: pg.Pool
  beforeAll(async () => {
    server = await startPostgres()
    operator = new pg.Pool({ connectionString: server.url, max: 1 })
  })
  afterAll(async () => {
    await operator.end()
    await server.stop()
  })

  const through = (proxy: FaultyProxy) => {
    const url = new URL(server.url)
    url.hostname = proxy.host
    url.port = String(proxy.port)
    return url.href
  }
  const sleeping = async () =>
    (
      await operator.query(
        "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = 'active' AND pid <> pg_backend_pid()",
      )
    ).rows.length
  /** A pool whose only connection is taken, and a database that has to use its spare. */
  const withFullPool = async (
    url: string,
    body: (database: PostgresDatabase) => Promise<void>,
    direct = url,
  ) => {
    const pool = new pg.Pool({ connectionString: direct, max: 1 })
    const database = postgresDatabase(pool as PgPool, { spare: true })
    const taken = await pool.connect()
    pool.options.connectionString = url
    try {
      await body(database)
    } finally {
      taken.release()
      await database.close()
      await pool.end()
    }
  }

  test('T85 with pg, an opening that the server never answers is given up, and the next statement opens another', async () => {
    await using proxy = await startProxy(server)
    const dead = new WeakSet<object>()
    let killing = true
    proxy.drop('both', (link) => {
      if (killing) dead.add(link)
      return dead.has(link)
    })
    await withFullPool(
      through(proxy),
      async (database) => {
        await assert.rejects(database.query('SELECT 1'), {
          code: 'BACKEND_UNAVAILABLE',
          outcome: 'not-applied',
          message: /all 1 connections .*, and another connection could not be opened: .*timeout/,
        })
        killing = false
        assert.deepEqual(await database.query('SELECT 1'), [[1]])
      },
      server.url,
    )
  })

  test('T85 with pg, statements that go over the spare connection do not fill the line of the user’s pool', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool, { spare: true })
    try {
      const taken = await pool.connect()
      for (let times = 0; times < 5; times++)
        assert.deepEqual(await database.query(`SELECT ${times}`), [[times]])
      assert.equal(pool.waitingCount, 1)
      // That one is ours, and no call waits for it.
      assert.match(String(database.shortage), /^all 1 connections of the pool are in use: give/)
      const own = await taken.query('SELECT pg_backend_pid()')
      taken.release()
      await waitFor('the pool to be free', async () => pool.idleCount === 1)
      assert.equal(database.shortage, undefined)
      assert.deepEqual(await database.query('SELECT pg_backend_pid()'), [[own.rows[0].pg_backend_pid]])
    } finally {
      await database.close()
      await pool.end()
    }
  })

  test('T85 with pg, a connection that was free and that the user took in the same turn does not keep a statement from the spare', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool, { spare: true })
    try {
      await pool.query('SELECT 1')
      assert.equal(pool.idleCount, 1)
      const taking = pool.connect()
      assert.deepEqual(await database.query('SELECT 1'), [[1]])
      const taken = await taking
      taken.release()
    } finally {
      await database.close()
      await pool.end()
    }
  })

  test(
    'T85 with pg, a spare connection whose statement was not answered is replaced',
    () =>
      withFullPool(server.url, async (database) => {
        const cancelled = new AbortController()
        const hanging = database.query('SELECT pg_sleep(600)', [], { signal: cancelled.signal })
        const refused = assert.rejects(hanging, { outcome: 'unknown' })
        await waitFor('it to be at work', async () => (await sleeping()) === 1)
        cancelled.abort()
        await refused
        assert.deepEqual(await database.query('SELECT 1'), [[1]])
        await operator.query(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND pid <> pg_backend_pid()",
        )
      }),
    60_000,
  )

  test(
    'T85 with pg, a spare connection that the server ended is replaced',
    () =>
      withFullPool(server.url, async (database) => {
        const [row] = await database.query('SELECT pg_backend_pid()')
        await operator.query('SELECT pg_terminate_backend($1)', [row?.[0]])
        await waitFor('it to be replaced', () =>
          database.query('SELECT 1').then(
            () => true,
            () => false,
          ),
        )
      }),
    60_000,
  )
})
