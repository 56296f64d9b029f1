/** The connection beside a user's pool (T85): its opening, its end, and what it leaves in the pool. */
import assert from 'node:assert/strict'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { type Server, startPostgres, waitFor, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type Clock, systemClock } from '../../base/clock.ts'
import { postgresDatabase } from './database.ts'
import { SpareConnection } from './spare-connection.ts'

/** Limits are over sooner. */
const hasty: Clock = {
  monotonicMs: () => systemClock.monotonicMs(),
  wallMs: () => systemClock.wallMs(),
  setTimer: (delayMs, fire, options) => systemClock.setTimer(delayMs / 20, fire, options),
}

describe.runIf(wanted('postgres'))('the spare connection', () => {
  let server: Server & { readonly url: string }
  let operator: pg.Pool
  beforeAll(async () => {
    server = await startPostgres()
    operator = new pg.Pool({ connectionString: server.url, max: 1 })
  }, 60_000)
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
  const full = () => 'the pool is full'

  test('T85 with pg, an opening that the server never answers is given up, and the next statement opens another', async () => {
    await using proxy = await startProxy(server)
    const pool = new pg.Pool({ connectionString: through(proxy), max: 1 })
    const database = postgresDatabase(pool)
    const spare = new SpareConnection('postgres', (signal) => database.dedicated({ signal }), hasty)
    try {
      const dead = new WeakSet<object>()
      let killing = true
      proxy.drop('both', (link) => {
        if (killing) dead.add(link)
        return dead.has(link)
      })
      await assert.rejects(spare.query('SELECT 1', [], {}, full), {
        code: 'BACKEND_UNAVAILABLE',
        outcome: 'not-applied',
        message: /the pool is full, and another connection could not be opened: .*5000 ms/,
      })
      killing = false
      assert.deepEqual(await spare.query('SELECT 1', [], {}, full), [[1]])
    } finally {
      await spare.close()
      await database.close()
      await pool.end()
    }
  }, 60_000)

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
  }, 60_000)

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
  }, 10_000)

  test('T85 with pg, a spare connection whose statement was not answered is replaced', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool)
    let opened = 0
    const spare = new SpareConnection('postgres', (signal) => {
      opened++
      return database.dedicated({ signal })
    })
    try {
      const cancelled = new AbortController()
      const hanging = spare.query('SELECT pg_sleep(600)', [], { signal: cancelled.signal }, full)
      const refused = assert.rejects(hanging, { outcome: 'unknown' })
      await waitFor('it to be at work', async () => (await sleeping()) === 1)
      cancelled.abort()
      await refused
      assert.deepEqual(await spare.query('SELECT 1', [], {}, full), [[1]])
      assert.equal(opened, 2)
    } finally {
      await spare.close()
      await database.close()
      await pool.end()
      await operator.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND pid <> pg_backend_pid()",
      )
    }
  }, 60_000)

  test('T85 with pg, a spare connection that the server ended is replaced', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const database = postgresDatabase(pool)
    const ended = Promise.withResolvers<void>()
    const spare = new SpareConnection('postgres', async (signal) => {
      const connection = await database.dedicated({ signal })
      const onEnd: typeof connection.onEnd = (listener) =>
        connection.onEnd((error) => {
          listener(error)
          ended.resolve()
        })
      return new Proxy(connection, {
        get(target, name) {
          if (name === 'onEnd') return onEnd
          const member: unknown = Reflect.get(target, name)
          return typeof member === 'function' ? member.bind(target) : member
        },
      })
    })
    try {
      const [row] = await spare.query('SELECT pg_backend_pid()', [], {}, full)
      await operator.query('SELECT pg_terminate_backend($1)', [row?.[0]])
      await ended.promise
      assert.deepEqual(await spare.query('SELECT 1', [], {}, full), [[1]])
    } finally {
      await spare.close()
      await database.close()
      await pool.end()
    }
  }, 60_000)
})
