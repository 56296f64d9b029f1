/** Connections that hang, and much to tidy up. */
import { type Link, startProxy } from 'holdfast-lab/faults'
import { startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openLocker } from '../../../open.ts'
import { openPostgres } from './assemble.ts'

describe.runIf(wanted('postgres'))('postgres', () => {
  test('G11 a look that hangs keeps neither a close nor other looks waiting for ever', async () => {
    await using server = await startPostgres()
    await using proxy = await startProxy(server)
    await using stage = new Stage(server.url)
    const holder = await openSession(await stage.backend(), 2_000)
    await take(holder, exclusive('x'))
    const address = new URL(server.url)
    address.port = String(proxy.port)
    const locker = await openLocker(address.href, { ttlMs: 6_000, callTimeoutMs: 500 })
    const waiting = locker.acquire('x', { waitMs: 60_000 })
    await until('it waits', async () => {
      const found = await (await stage.backend()).inspect('x', call())
      return found?.waiters.length === 1
    })
    // All that are open hang from now on; new ones pass.
    const old = new Set<Link>()
    let isOld = true
    proxy.blackhole((link) => {
      if (isOld) old.add(link)
      return old.has(link)
    })
    isOld = false
    const lease = await waiting
    expect(lease.state).toBe('held')
    await lease.release()
    await locker.close()
    expect(old.size).toBeGreaterThan(0)
  })

  test.each(libraries)(
    'T76 with $name, calls in flight when their connection is reset are settled, and do not stop the calls after them',
    async (library) => {
      await using server = await startPostgres()
      await using proxy = await startProxy(server)
      await using stage = new Stage(server.url)
      const address = new URL(server.url)
      address.port = String(proxy.port)
      const backend = await stage.backend({ library, url: address.href, clients: { max: 3 } })
      const session = await openSession(backend)
      for (let round = 0; round < 3; round++) {
        proxy.drop('down')
        const running = Array.from({ length: 3 }, (_, index) =>
          session.tryAcquire(exclusive(`${round} ${index}`), call()),
        )
        const settled = Promise.allSettled(running)
        await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
        proxy.heal()
        for (const result of await settled) {
          if (result.status === 'fulfilled') expect(result.value.kind).toBe('granted')
          else expect(result.reason).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
        }
      }
      await take(session, exclusive('after'))
    },
  )

  test.each(libraries)(
    'with $name, a client that was closed before the locker is told at once',
    async (library) => {
      await using server = await startPostgres()
      const opened = library.open(server.url, { max: 2 })
      const locker = createLocker(await openPostgres({ client: opened.client }))
      await opened[Symbol.asyncDispose]()
      // Who waited for it to come back would be told that the time is over.
      const acquiring = locker.acquire('x', { waitMs: 10_000 })
      await expect(acquiring).rejects.toMatchObject({
        code: 'UNSUPPORTED',
        message: /the client has been closed\. Close it after Holdfast/,
      })
      await locker.close({ graceMs: 0 }).catch(() => {})
    },
  )

  test('G11 thousands of names that were left closed are tidied away a few at a time, also on a small server', async () => {
    await using server = await startPostgres({ settings: { max_connections: '25' } })
    await using stage = new Stage(server.url)
    const locker = createLocker(await stage.backend({ clients: { max: 2 } }), { ttlMs: 60_000 })
    const operator = await stage.operator()
    // As if many had been released with holdAtLeastMs, some minutes ago.
    await operator.query(`INSERT INTO holdfast.names (namespace, name, capacity, closed_until)
      SELECT 'default', 'kept/' || i, 1073741824, now() - interval '5 minutes' FROM generate_series(1, 9000) i`)
    await operator.query('ANALYZE holdfast.names')
    await operator.query('BEGIN; SELECT holdfast.sweep()')
    const locks = await operator.query(
      "SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    )
    await operator.query('ROLLBACK')
    expect(locks.rows[0].n).toBeLessThan(100)
    const left = async () => (await operator.query('SELECT count(*)::int AS n FROM holdfast.names')).rows[0].n
    let sweeps = 0
    for (; (await left()) > 0 && sweeps < 500; sweeps++) {
      const { rows } = await operator.query('SELECT holdfast.sweep() AS more')
      expect(rows[0].more).toBe(true)
    }
    expect(sweeps).toBeGreaterThan(10)
    expect(await left()).toBe(0)
    const lease = await locker.acquire('x')
    await lease.release()
    await locker.close()
  })
})
