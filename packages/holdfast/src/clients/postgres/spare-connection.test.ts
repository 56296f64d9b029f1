/** The connection beside a user's pool (T85): its opening, its end, and what it leaves in the pool. */
import assert from 'node:assert/strict'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type Clock, systemClock } from '../../core/clock.ts'
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
})
