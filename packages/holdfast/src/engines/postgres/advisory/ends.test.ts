import { setTimeout as sleep } from 'node:timers/promises'
import { createClock, startProxy } from 'holdfast-lab/faults'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { advisoryLibraries as libraries } from '../../../../test/postgres/clients.ts'
import { startProgram } from '../../../../test/postgres/program.ts'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { elapsedMs } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { makeFence } from '../../../base/fence.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { memoryGuard } from '../../../guards/memory.ts'
import { call, request, shared } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'

describe.runIf(wanted('postgres'))('the end of a connection', () => {
  let server: Server
  let rig: Rig
  beforeAll(async () => {
    server = await startPostgres()
    rig = new Rig(server)
  })
  afterAll(async () => {
    await rig?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  /** The connection that has this name's lock. */
  const pidsOf = async (name: string) =>
    (
      await rig.sql<{ pid: number }>(
        `SELECT me.pid FROM holdfast.advisory_holders c JOIN holdfast.advisory_locks me ON me.key = c.conn AND me.granted
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
      await expect.poll(() => lease.state).toBe('lost')
      expect(isHoldfastError(lease.signal.reason, 'LEASE_LOST') && lease.signal.reason.reason).toBe(
        'session-gone',
      )
      expect(await successor.release()).toBe('released')
      const again = await locker.acquire(name)
      expect(again.fence.token).toBeGreaterThan(successor.fence.token)
      expect(await again.release()).toBe('released')
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
  })

  test('T6 T18 T20 G10 waiters in a black hole cost the living nothing', async () => {
    await using proxy = await startProxy(server)
    const [holder, other] = [await rig.locker(), await rig.locker()]
    const held = await holder.acquire('dead waiters')
    const lost = await Promise.all([1, 2, 3].map(() => rig.locker({ through: proxy }, { ttlMs: 2_000 })))
    const queued = lost.map(async (each) => {
      await each.acquire('mine', { mode: 'shared' })
      each.acquire('dead waiters', { waitMs: 60_000 }).catch(() => {})
    })
    await Promise.all(queued)
    const living = other.acquire('dead waiters', { waitMs: 60_000 })
    proxy.blackhole()
    await held.release()
    const lease = await living
    expect(lease.state).toBe('held')
    await lease.release()
    proxy.heal()
  })

  test('T20 a killed process leaves neither holder nor waiter, and no TTL has to pass', async () => {
    const other = await rig.locker()
    const code = `
      const { default: pg } = await import('pg')
      const { postgresAdvisory } = await load('src/engines/postgres/advisory/index.ts')
      const { createLocker } = await load('src/index.ts')
      const client = new pg.Pool({ connectionString: ${JSON.stringify(server.url)} })
      const locker = createLocker(await postgresAdvisory({ client }), { ttlMs: 3_600_000 })
      globalThis.held = await locker.acquire('killed holder')
      say('holds')
      locker.acquire('killed waiter', { waitMs: 60_000 })
      setInterval(() => {}, 1_000)`
    const held = await other.acquire('killed waiter')
    const child = await startProgram(code)
    await child.said('holds')
    const waiting = other.acquire('killed holder', { waitMs: 60_000 })
    await child.kill()
    expect((await waiting).state).toBe('held')
    await held.release()
    expect(await other.tryAcquire('killed waiter')).not.toBeNull()
  })

  test('closing keeps the process alive until it is done, also when the pool has nothing open any more', async () => {
    const child = await startProgram(`
      const { default: pg } = await import('pg')
      const { postgresAdvisory } = await load('src/engines/postgres/advisory/index.ts')
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
  })

  test('a process that holds a lease and has nothing else to do ends', async () => {
    const child = await startProgram(`
      const { default: pg } = await import('pg')
      const { postgresAdvisory } = await load('src/engines/postgres/advisory/index.ts')
      const { createLocker } = await load('src/index.ts')
      const client = new pg.Pool({ connectionString: ${JSON.stringify(server.url)}, allowExitOnIdle: true })
      const locker = createLocker(await postgresAdvisory({ client }))
      globalThis.held = await locker.acquire('idle process')
      process.on('exit', () => say('ends'))`)
    await child.said('ends')
  })

  test.for(libraries)(
    'T11 T14 $name: an acquire that is cancelled around the moment of its grant leaves nothing held',
    async (library) => {
      const backends = [
        await rig.backend({ library, namespace: 't11' }),
        await rig.backend({ library, namespace: 't11' }),
      ]
      const [holder, other] = await Promise.all(
        backends.map((backend) =>
          backend
            .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
            .then(namingGrants),
        ),
      )
      if (holder === undefined || other === undefined) throw new Error('sessions')
      const outcomes = new Set<string>()
      for (let round = 0; round < 40; round++) {
        const asked = request('x')
        const controller = new AbortController()
        const asking = other.tryAcquire(asked, callWith(controller.signal))
        // From before the lock until after the grant.
        if (round % 4 > 0) await sleep(round % 4)
        controller.abort(new Error('no longer'))
        outcomes.add(
          await asking.then(
            ({ kind }) => kind,
            () => 'cancelled',
          ),
        )
        await other.abandon(asked, call())
        const next = request('x')
        expect((await holder.tryAcquire(next, call())).kind).toBe('granted')
        await holder.release(next, { keepForMs: 0 }, call())
      }
      expect(outcomes).toContain('cancelled')
      expect((await backends[0]?.list('', { limit: 10 }, call()))?.items).toEqual([])
    },
  )

  test('T11 an acquire that the server cancels although it had got the lock gives it up', async () => {
    const backend = await rig.backend({ namespace: 'cancelled' })
    const ours = await backend
      .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
      .then(namingGrants)
    const kept = request('kept')
    expect((await ours.tryAcquire(kept, call())).kind).toBe('granted')
    // The lock is taken, and then its record has to wait.
    await rig.sql(`CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$`)
    await rig.sql(`CREATE TRIGGER hang BEFORE INSERT ON holdfast.advisory_holders FOR EACH ROW
      WHEN (NEW.name = 'x') EXECUTE FUNCTION hang()`)
    const asking = ours.tryAcquire(request('x'), call())
    const sleeping = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    await expect.poll(async () => (await rig.sql(sleeping)).length).toBe(1)
    await expect(asking).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    await rig.sql('DROP TRIGGER hang ON holdfast.advisory_holders')
    // The same if a record cannot be written, also for the locks that the same call has taken before, in either mode.
    await rig.sql("ALTER TABLE holdfast.advisory_holders ADD CONSTRAINT broken CHECK (name <> 'y') NOT VALID")
    const failing = [shared('w'), request('z'), request('y')].map((asked) => ours.tryAcquire(asked, call()))
    for (const each of failing)
      await expect(each).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    await rig.sql('ALTER TABLE holdfast.advisory_holders DROP CONSTRAINT broken')
    const other = await (await rig.backend({ namespace: 'cancelled' })).openSession(
      { id: newSessionId(), ttlMs: 30_000, holder: 'test' },
      call(),
    )
    for (const name of ['w', 'x', 'y', 'z'])
      expect((await other.tryAcquire(request(name), call())).kind).toBe('granted')
    expect(await ours.keepAlive({ held: [kept], waiting: [] }, call())).toMatchObject({
      kind: 'alive',
      lost: [],
    })
  })

  test('T110 after a force release its old holder may acquire, although the answer to its unlock is not there yet', async () => {
    const namespace = 'slow answer'
    const [backend, other] = [await rig.backend({ namespace }), await rig.backend({ namespace })]
    const ours = await backend
      .openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
      .then(namingGrants)
    // An exclusive lock is given back without a write.
    expect((await ours.tryAcquire(shared('x'), call())).kind).toBe('granted')
    const shown = await other.inspect('x', call())
    const ids = (shown?.holders ?? []).map(({ id }) => id)
    // The record is checked when the statement commits, and the lock is free before that.
    await rig.sql(`
      CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(110); RETURN NULL; END $$;
      CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON holdfast.advisory_holders DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.key IS NULL) EXECUTE FUNCTION wait()`)
    const gate = await rig.byHand()
    await gate.query('SELECT pg_advisory_lock(110)')
    const limit = { notAfterMs: Number(shown?.atMs) + 600_000 }
    expect(await other.forceRelease('x', ids, 'test', callWith(undefined, limit))).toBe(1)
    const again = ours.tryAcquire(request('x'), call())
    await gate.query('SELECT pg_advisory_unlock(110)')
    expect((await again).kind).toBe('granted')
    await rig.sql('DROP TRIGGER wait ON holdfast.advisory_holders; DROP FUNCTION wait')
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
  })

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
  })

  test('the server is restarted: leases are lost, nothing is left, and locks go on', async () => {
    await using own = await startPostgres()
    await using apart = new Rig(own)
    const locker = await apart.locker({}, { ttlMs: 3_000 })
    const lease = await locker.acquire('x')
    await own.restart()
    await expect.poll(() => lease.state).toBe('lost')
    const again = await locker.acquire('x')
    expect(again.fence.token).toBeGreaterThan(lease.fence.token)
    expect((await locker.list()).map(({ name }) => name)).toEqual(['x'])
    await again.release()
  })
})
