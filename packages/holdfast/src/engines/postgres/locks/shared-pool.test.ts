/** A locker and guarded transactions that share one pool (T85, shared clients). */
import assert from 'node:assert/strict'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type libraries, withPg, withPostgresJs } from '../../../../test/postgres/clients.ts'
import type { FencedLease } from '../../../base/types.ts'
import { createLocker } from '../../../locker/locker.ts'
import { postgresGuard } from '../guard/postgres-guard.ts'
import { postgres } from './index.ts'

const SIZE = 4

describe.runIf(wanted('postgres'))('postgres on a pool that guarded transactions use up', () => {
  let server: Server & { readonly url: string }
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.stop())

  /** Runs `inside` while guarded transactions have all connections of the client. */
  const withFullPool = async (
    library: (typeof libraries)[number],
    ttlMs: number,
    inside: (leases: readonly FencedLease[], locker: ReturnType<typeof createLocker>) => Promise<void>,
  ) => {
    await using opened = library.open(server.url, { max: SIZE })
    const guard = postgresGuard({ client: opened.client })
    await using locker = createLocker(await postgres({ client: opened.client, issuer: 'i' }))
    const names = Array.from({ length: SIZE }, (_, index) => `${library.name} ${index}`)
    const leases: FencedLease[] = []
    // The first run settles the guard's issuer, and all others wait for it.
    await locker.withLease(`${library.name} first`, (lease) => guard.run(lease, () => {}))
    for (const name of names) leases.push(await locker.acquire(name, { ttlMs }))
    const gate = Promise.withResolvers<void>()
    const allInside = Promise.withResolvers<void>()
    let count = 0
    const runs = leases.map((lease) =>
      guard.run(lease, async () => {
        if (++count === SIZE) allInside.resolve()
        await gate.promise
        return lease.state
      }),
    )
    try {
      await allInside.promise
      await inside(leases, locker as never)
    } finally {
      gate.resolve()
    }
    return await Promise.allSettled(runs)
  }

  test('T85 with pg, renewals and other calls go on while guarded transactions have the whole pool', async () => {
    const runs = await withFullPool(withPg, 15_000, async (leases, locker) => {
      for (let round = 0; round < 3; round++) await Promise.all(leases.map((lease) => lease.renew()))
      const other = await locker.acquire('another', { waitMs: 0 })
      assert.equal(await other.release(), 'released')
    })
    assert.deepEqual(
      runs,
      Array.from({ length: SIZE }, () => ({ status: 'fulfilled', value: 'held' })),
    )
  })

  test('T85 with pg, a shortage that cannot be helped is named in the error', async () => {
    await using opened = withPg.open(server.url, { max: 1 })
    const pool = opened.client as unknown as import('pg').Pool
    await using locker = createLocker(await postgres({ client: opened.client, issuer: 'i' }), {
      callTimeoutMs: 1_000,
    })
    const taken = await pool.connect()
    const { connectionString } = pool.options
    // Another connection cannot be opened.
    pool.options.connectionString = 'postgres://127.0.0.1:1/none'
    const refused = await locker.acquire('short', { waitMs: 2_000 }).catch((error: Error) => error.message)
    taken.release()
    pool.options.connectionString = connectionString
    assert.match(String(refused), /all 1 connections of the pool are in use.*raise `max`/)
  })

  test('T85 with postgres.js, whose client cannot open another connection, the error names the shortage', async () => {
    const shortage = /wait in the client\. If all 4 connections are in use.*raise `max`/
    const runs = await withFullPool(withPostgresJs, 1_000, async (leases) => {
      const [lease] = leases as [FencedLease]
      await assert.rejects(lease.renew(), (error: Error) => shortage.test(error.message))
      await new Promise<void>((resolve) => lease.signal.addEventListener('abort', () => resolve()))
      assert.match((lease.signal.reason as Error).message, shortage)
    })
    for (const run of runs) assert.equal((run as PromiseRejectedResult).reason?.code, 'LEASE_LOST')
  })
})
