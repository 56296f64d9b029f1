/** Connections that do not answer any more: what was cancelled on them must not hold up later calls. */
import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import { type Server, startPostgres, waitFor, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { type ClientLibrary, libraries, withPg } from '../../../../test/postgres/clients.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import { sqlRunnerOf } from '../client/index.ts'
import { postgresGuard } from './postgres-guard.ts'

/** Limits are over sooner. */
const hasty: Clock = {
  monotonicMs: () => systemClock.monotonicMs(),
  wallMs: () => systemClock.wallMs(),
  setTimer: (delayMs, fire, options) => systemClock.setTimer(delayMs / 10, fire, options),
}

/** Limits are never over. */
const patient: Clock = { ...hasty, setTimer: () => ({ cancel: () => {} }) }

describe.runIf(wanted('postgres'))('postgresGuard on connections that do not answer', () => {
  let server: Server & { readonly url: string }
  let pool: pg.Pool
  beforeAll(async () => {
    server = await startPostgres()
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
    await postgresGuard({ client: pool }).run(fence(1n, 'any'), () => {})
  })
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })

  /** A client behind a proxy. From `kill` to `killed`, its connections die: also those that are opened then. */
  async function mortalClient(library: ClientLibrary, max: number) {
    const proxy = await startProxy(server)
    const url = new URL(server.url)
    url.hostname = proxy.host
    url.port = String(proxy.port)
    const opened = library.open(url.href, { max, fetchTypes: false })
    const dead = new WeakSet<object>()
    let killing = false
    return {
      client: opened.client,
      kill() {
        killing = true
        proxy.drop('down', (link) => {
          if (killing) dead.add(link)
          return dead.has(link)
        })
      },
      async killed() {
        await waitFor('an answer to be swallowed', async () => proxy.swallowedBytes('down') > 0)
        killing = false
      },
      async [Symbol.asyncDispose]() {
        proxy.heal()
        await opened[Symbol.asyncDispose]()
        await proxy[Symbol.asyncDispose]()
      },
    }
  }

  test.each(libraries)(
    'G11 with $name, a run that is cancelled on a dead connection does not keep its name for itself',
    async (library) => {
      await using mortal = await mortalClient(library, 3)
      const guard = postgresGuard({ client: mortal.client, clock: hasty })
      const proof = fence(1n, `lane ${library.name}`)
      assert.equal(await guard.run(proof, () => 'works'), 'works')
      mortal.kill()
      const controller = new AbortController()
      const reason = new Error('cancelled')
      const run = guard.run(proof, () => assert.fail('it was given up'), { signal: controller.signal })
      const refused = assert.rejects(run, reason)
      await mortal.killed()
      controller.abort(reason)
      await refused
      assert.equal(await guard.run(proof, () => 'works'), 'works')
    },
  )

  test.each(libraries)(
    'G11 with $name, a run that is cancelled in its effect, on a dead connection, is told so and frees its name',
    async (library) => {
      await using mortal = await mortalClient(library, 3)
      const guard = postgresGuard({ client: mortal.client, clock: hasty })
      const name = `ending ${library.name}`
      const controller = new AbortController()
      const reason = new Error('cancelled')
      const effect = () => {
        mortal.kill()
        controller.abort(reason)
      }
      const refused = assert.rejects(
        guard.run(fence(1n, name), effect, { signal: controller.signal }),
        reason,
      )
      await mortal.killed()
      await refused
      assert.equal(await guard.run(fence(1n, name), () => 'works'), 'works')
    },
  )

  test('G11 with pg, a connection that does not answer ROLLBACK is given up, and the pool may open another', async () => {
    await using mortal = await mortalClient(withPg, 1)
    const guard = postgresGuard({ client: mortal.client })
    const mistake = new Error('the effect failed')
    const run = guard.run(fence(1n, 'rollback'), () => {
      mortal.kill()
      throw mistake
    })
    const refused = assert.rejects(run, mistake)
    await mortal.killed()
    await refused
    assert.equal(await guard.run(fence(1n, 'rollback'), () => 'works'), 'works')
  })

  test.each(libraries)(
    'G11 with $name, a first run whose connection is dead fails in the end, and the next one works',
    async (library) => {
      await using mortal = await mortalClient(library, library.name === 'pg' ? 1 : 2)
      await sqlRunnerOf(mortal.client as never).query('SELECT 1')
      const guard = postgresGuard({ client: mortal.client, clock: hasty })
      const proof = fence(1n, `first ${library.name}`)
      mortal.kill()
      const refused = assert.rejects(
        guard.run(proof, () => assert.fail('there are no tables yet')),
        { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' },
      )
      await mortal.killed()
      await refused
      assert.equal(await guard.run(proof, () => 'works'), 'works')
    },
  )

  test.each(libraries)(
    'G11 T21 with $name, first runs that are cancelled do not use up the pool',
    async (library) => {
      await using opened = library.open(server.url, { max: 2 })
      const guard = postgresGuard({ client: opened.client, clock: patient })
      const blocker = await pool.connect()
      await blocker.query('BEGIN; LOCK TABLE holdfast.parts IN ACCESS EXCLUSIVE MODE')
      const waiting = async () => {
        const { rows } = await pool.query(
          "SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        )
        return rows[0].n as number
      }
      const reason = new Error('cancelled')
      for (let runs = 0; runs < 3; runs++) {
        const controller = new AbortController()
        const run = guard.run(fence(1n, `ready ${library.name}`), () => assert.fail('it was given up'), {
          signal: controller.signal,
        })
        const refused = assert.rejects(run, reason)
        if (runs === 0) await waitFor('it to wait', async () => (await waiting()) > 0)
        // Time enough to take a connection, if it took one.
        else for (let looks = 0; looks < 20; looks++) await waiting()
        controller.abort(reason)
        await refused
      }
      assert.equal(await waiting(), 1)
      const [row] = await sqlRunnerOf(opened.client as never).query("SELECT 'served'")
      assert.equal(row?.[0], 'served')
      await blocker.query('COMMIT')
      blocker.release()
      assert.equal(await guard.run(fence(1n, `ready ${library.name}`), () => 'works'), 'works')
    },
  )
})
