import { setTimeout as sleep } from 'node:timers/promises'
import { createClock, startProxy } from 'holdfast-lab/faults'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { namingGrants } from '../../../test/naming-grants.ts'
import { advisoryLibraries as libraries } from '../../../test/postgres/clients.ts'
import { startProgram } from '../../../test/postgres/program.ts'
import { Rig } from '../../../test/postgres-advisory/rig.ts'
import { callWith } from '../../base/aborting.ts'
import { elapsedMs } from '../../base/clock.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { makeFence } from '../../base/fence.ts'
import { publicIdOf } from '../../base/ids.ts'
import { memoryGuard } from '../../guards/memory.ts'
import { call, request } from '../../testing/conformance/requests.ts'
import { newSessionId } from '../../testing/conformance/stage.ts'

describe.runIf(wanted('postgres'))('the end of a connection', () => {
  let server: Server
  let rig: Rig
  beforeAll(async () => {
    server = await startPostgres()
    rig = new Rig(server)
  }, 60_000)
  afterAll(async () => {
    await rig?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  /** The connection that has this name's lock, or waits for it. */
  const pidsOf = async (name: string) =>
    (
      await rig.sql<{ pid: number }>(
        `SELECT me.pid FROM holdfast.advisory_claims c JOIN holdfast.advisory_locks me ON me.key = c.conn AND me.granted
         WHERE c.name = $1`,
        [name],
      )
    ).map(({ pid }) => pid)

  test.for(libraries)(
    'T51 T33 $name: a terminated connection loses the lease at the next keep-alive, and the next acquire works',
    async (library) => {
      const name = `terminated ${library.name}`
      const locker = await rig.locker({ library }, { ttlMs: 3_000 })
      const lease = await locker.acquire(name)
      for (const pid of await pidsOf(name)) await rig.sql('SELECT pg_terminate_backend($1)', [pid])
      const successor = await (await rig.locker()).acquire(name)
      await expect.poll(() => lease.state, { timeout: 10_000 }).toBe('lost')
      expect(isHoldfastError(lease.signal.reason, 'LEASE_LOST') && lease.signal.reason.reason).toBe(
        'session-gone',
      )
      expect(await successor.release()).toBe('released')
      const again = await locker.acquire(name)
      expect(again.fence.token).toBeGreaterThan(successor.fence.token)
      expect(await again.release()).toBe('released')
    },
  )

  test.for(libraries)(
    'T51 $name: the connection of a lock that was waited for ends, and only that lease is lost',
    async (library) => {
      const [waited, kept] = [`waited ${library.name}`, `kept ${library.name}`]
      const [locker, other] = [await rig.locker({ library }, { ttlMs: 3_000 }), await rig.locker()]
      const first = await other.acquire(waited)
      const waiting = locker.acquire(waited)
      const bystander = await locker.acquire(kept)
      await expect.poll(async () => (await other.inspect(waited))?.waiters.length).toBe(1)
      await first.release()
      const lease = await waiting
      for (const pid of await pidsOf(waited)) await rig.sql('SELECT pg_terminate_backend($1)', [pid])
      await expect.poll(() => lease.state, { timeout: 10_000 }).toBe('lost')
      expect(bystander.state).toBe('held')
      const again = await locker.acquire(waited)
      expect([again.state, bystander.state]).toEqual(['held', 'held'])
      await bystander.release()
      await again.release()
    },
  )

  test('G3 T16 T33 a black hole: the holder stops believing, then the server ends its connection, then the next one gets it', async () => {
    await using proxy = await startProxy(server)
    const cutOff = await rig.locker({ through: proxy }, { ttlMs: 3_000 })
    const other = await rig.locker()
    const lease = await cutOff.acquire('black hole')
    proxy.blackhole()
    let wasFreeTooEarly = false
    for (;;) {
      const taken = await other.tryAcquire('black hole')
      if (taken !== null) {
        wasFreeTooEarly = lease.state !== 'lost'
        expect(taken.fence.token).toBeGreaterThan(lease.fence.token)
        await taken.release()
        break
      }
      await sleep(50)
    }
    expect(wasFreeTooEarly).toBe(false)
    proxy.heal()
  }, 60_000)

  test('T6 T18 T20 G10 a waiter in a black hole costs the living one TTL, not one after the other', async () => {
    await using proxy = await startProxy(server)
    const [holder, other] = [await rig.locker(), await rig.locker()]
    const held = await holder.acquire('dead waiters')
    const lost = await Promise.all([1, 2, 3].map(() => rig.locker({ through: proxy }, { ttlMs: 2_000 })))
    for (const each of lost) each.acquire('dead waiters', { waitMs: 60_000 }).catch(() => {})
    const waitersOf = async () => (await other.inspect('dead waiters'))?.waiters.length
    await expect.poll(waitersOf, { timeout: 10_000 }).toBe(3)
    const living = other.acquire('dead waiters', { waitMs: 60_000 })
    await expect.poll(waitersOf, { timeout: 10_000 }).toBe(4)
    proxy.blackhole()
    // Their sessions are over when the server has ended their first connections; those that wait are there still.
    const sessions = async () =>
      (await rig.sql('SELECT FROM holdfast.advisory_locks WHERE NOT granted')).length
    await expect.poll(waitersOf, { timeout: 15_000 }).toBe(1)
    expect(await sessions()).toBe(4)
    await held.release()
    const lease = await living
    expect(lease.state).toBe('held')
    await lease.release()
    proxy.heal()
  }, 60_000)

  test('T20 a waiter whose process was killed leaves the line, and a killed holder frees the name', async () => {
    const other = await rig.locker()
    const code = `
      const { default: pg } = await import('pg')
      const { postgresAdvisory } = await load('src/backends/postgres-advisory/index.ts')
      const { createLocker } = await load('src/index.ts')
      const client = new pg.Pool({ connectionString: ${JSON.stringify(server.url)} })
      const locker = createLocker(await postgresAdvisory({ client }))
      globalThis.held = await locker.acquire('killed holder')
      say('holds')
      locker.acquire('killed waiter', { waitMs: 60_000 })
      setInterval(() => {}, 1_000)`
    const held = await other.acquire('killed waiter')
    const child = await startProgram(code)
    await child.said('holds')
    const waiters = async () => (await other.inspect('killed waiter'))?.waiters.length
    await expect.poll(waiters, { timeout: 10_000 }).toBe(1)
    const waiting = other.acquire('killed holder', { waitMs: 60_000 })
    await child.kill()
    // No TTL has to pass: the server notices that the client has gone.
    expect((await waiting).state).toBe('held')
    const inLine = async () => (await rig.sql('SELECT FROM holdfast.advisory_locks WHERE NOT granted')).length
    await expect.poll(inLine, { timeout: 10_000 }).toBe(0)
    await held.release()
  }, 60_000)

  test('closing keeps the process alive until it is done, also when the pool has nothing open any more', async () => {
    const child = await startProgram(`
      const { default: pg } = await import('pg')
      const { postgresAdvisory } = await load('src/backends/postgres-advisory/index.ts')
      const { createLocker } = await load('src/index.ts')
      const url = ${JSON.stringify(server.url)}
      const client = new pg.Pool({ connectionString: url, idleTimeoutMillis: 1, allowExitOnIdle: true })
      const locker = createLocker(await postgresAdvisory({ client }))
      await locker.withLease('closed last', async () => {
        while (client.totalCount > 0) await new Promise((resolve) => setTimeout(resolve, 5))
      })
      await locker.close()
      say('closed')`)
    await child.said('closed')
  }, 60_000)

  test('a process that holds a lease and has nothing else to do ends', async () => {
    const child = await startProgram(`
      const { default: pg } = await import('pg')
      const { postgresAdvisory } = await load('src/backends/postgres-advisory/index.ts')
      const { createLocker } = await load('src/index.ts')
      const client = new pg.Pool({ connectionString: ${JSON.stringify(server.url)}, allowExitOnIdle: true })
      const locker = createLocker(await postgresAdvisory({ client }))
      globalThis.held = await locker.acquire('idle process')
      process.on('exit', () => say('ends'))`)
    await child.said('ends')
  }, 60_000)

  test.for(libraries)(
    'T11 T14 $name: a wait that is cancelled around the moment of its grant leaves nothing held',
    { timeout: 60_000 },
    async (library) => {
      const backends = [
        await rig.backend({ library, namespace: 't11' }),
        await rig.backend({ library, namespace: 't11' }),
      ]
      const [holder, waiter] = await Promise.all(
        backends.map((backend) =>
          backend
            .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
            .then(namingGrants),
        ),
      )
      if (holder === undefined || waiter?.enqueue === undefined) throw new Error('sessions')
      const outcomes = new Set<string>()
      for (let round = 0; round < 40; round++) {
        const held = request('x')
        const [first] = await Promise.all([holder.tryAcquire(held, call())])
        expect(first.kind).toBe('granted')
        const asked = request('x')
        const controller = new AbortController()
        const queued = Promise.withResolvers<void>()
        const waiting = waiter.enqueue(asked, callWith(controller.signal, { onQueued: queued.resolve }))
        await queued.promise
        const releasing = holder.release(held, { keepForMs: 0 }, call())
        // From before the unlock until after the grant.
        if (round % 4 > 0) await sleep(round % 4)
        controller.abort(new Error('no longer'))
        outcomes.add(
          await waiting.then(
            ({ kind }) => kind,
            () => 'cancelled',
          ),
        )
        await waiter.abandon(asked, call())
        expect(await releasing).toBe('released')
        const next = request('x')
        expect((await holder.tryAcquire(next, call())).kind).toBe('granted')
        await holder.release(next, { keepForMs: 0 }, call())
      }
      expect(outcomes).toContain('cancelled')
      expect((await backends[0]?.list('', { limit: 10 }, call()))?.items).toEqual([])
    },
  )

  test('T11 a wait that the server cancels although it had got the lock gives it up', async () => {
    const backend = await rig.backend({ namespace: 'cancelled' })
    const ours = await backend
      .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
      .then(namingGrants)
    const held = request('x')
    await ours.tryAcquire(held, call())
    // The lock is granted, and then the wait fails all the same: its record cannot be written.
    const waiting = ours.enqueue?.(request('x'), call())
    await expect.poll(async () => (await backend.inspect('x', call()))?.waiters.length).toBe(1)
    await rig.sql(
      'ALTER TABLE holdfast.advisory_claims ADD CONSTRAINT broken CHECK (token IS NULL) NOT VALID',
    )
    await ours.release(held, { keepForMs: 0 }, call())
    await expect(waiting).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    // So does a try: it must not keep what it got before it failed.
    const failing = ours.tryAcquire(request('y'), call())
    await expect(failing).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    await rig.sql('ALTER TABLE holdfast.advisory_claims DROP CONSTRAINT broken')
    for (const name of ['x', 'y'])
      await expect.poll(async () => (await ours.tryAcquire(request(name), call())).kind).toBe('granted')
  })

  test('a holder that does not react to a force release loses its connection', async () => {
    await using proxy = await startProxy(server)
    const [stuck, other] = [await rig.locker({ through: proxy }, { ttlMs: 60_000 }), await rig.locker()]
    const lease = await stuck.acquire('stuck')
    proxy.blackhole()
    expect(await other.forceRelease('stuck', { all: true, reason: 'it hangs' })).toBe(1)
    const successor = await other.acquire('stuck')
    expect(successor.fence.token).toBeGreaterThan(lease.fence.token)
    await successor.release()
    proxy.heal()
  }, 60_000)

  test('T9 G5 when the server’s clock is stepped there may be two believers, and the guard refuses the older', async () => {
    const clock = createClock()
    await using stepped = await startPostgres({ clock })
    await using apart = new Rig(stepped)
    const [backend, other] = [await apart.backend(), await apart.locker()]
    const ttlMs = 6_000
    const holder = await backend
      .openSession({ id: newSessionId(), ttlMs, holder: 'old' }, call())
      .then(namingGrants)
    const asked = request('x')
    const old = await holder.tryAcquire(asked, call())
    if (old.kind !== 'granted') throw new Error(`it was ${old.kind}`)
    await sleep(ttlMs * 0.75)
    const kept = await holder.keepAlive({ held: [asked], waiting: [] }, call())
    expect(kept).toMatchObject({ kind: 'alive', lost: [] })
    // The alarm of the first TTL rings still, and finds a time at which the second one is over as well.
    clock.step(3_600_000)
    const next = await other.acquire('x', { waitMs: 20_000 })
    if (kept.kind !== 'alive') throw new Error('it was gone')
    expect(elapsedMs(backend.clock, kept.since)).toBeLessThan(ttlMs)
    expect(next.fence.token).toBeGreaterThan(old.grant.token)
    const guard = memoryGuard()
    const stale = makeFence({ ...next.fence, token: old.grant.token, grant: publicIdOf(asked.attempt) })
    await guard.run(next.fence, () => {})
    await expect(guard.run(stale, () => {})).rejects.toMatchObject({ code: 'FENCE_STALE' })
    await next.release()
  }, 90_000)

  test('the server is restarted: leases are lost, nothing is left, and locks go on', async () => {
    await using own = await startPostgres()
    await using apart = new Rig(own)
    const locker = await apart.locker({}, { ttlMs: 3_000 })
    const lease = await locker.acquire('x')
    await own.restart()
    await expect.poll(() => lease.state, { timeout: 15_000 }).toBe('lost')
    const again = await locker.acquire('x')
    expect(again.fence.token).toBeGreaterThan(lease.fence.token)
    expect((await locker.list()).map(({ name }) => name)).toEqual(['x'])
    await again.release()
  }, 90_000)
})
