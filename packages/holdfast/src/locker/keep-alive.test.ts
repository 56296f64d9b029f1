/** Claims that a keep-alive lists, and those for which its answer counts. */
import { describe, expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { createRig, peek, plainCall } from '../../test/rig.ts'
import { tryAcquire } from '../kit/rules.ts'
import type { Backend } from '../spi.ts'
import { type FaultyBackend, faultyBackend } from '../testing/faulty-backend.ts'

const ttlMs = 9_000
const driftMs = ttlMs * 0.01 + 2
/** Longer than any jittered renewal interval, shorter than two. */
const oneIntervalMs = (ttlMs / 3) * 1.1 + 1

describe('what it lists', () => {
  test('T53 while a body runs under a closing locker, its claim is in every one of them', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, listed } = faulty()
    const body = Promise.withResolvers<void>()
    void peek(client.withLease('a', { ttlMs }, () => body.promise))
    await clock.settle()
    const closing = peek(client.close({ graceMs: 60_000 }))
    await clock.settle()
    listed.length = 0
    await clock.advance(ttlMs)
    // An engine that renews claim by claim would otherwise give the name away.
    expect(listed.length).toBeGreaterThan(1)
    for (const { held } of listed) expect(held.map(({ name }) => name)).toEqual(['a'])
    body.resolve()
    await clock.settle()
    expect(closing.status).toBe('fulfilled')
  })

  test('T18 T19 a position that the engine has lost without a word is taken again after it', async () => {
    const { clock, locker, faulty } = createFaultyRig()
    const holder = await locker().acquire('a', { ttlMs: 60_000 })
    const { client, faults, opened, listed } = faulty()
    faults.next('enqueue', { kind: 'lost-reply' })
    const asked = peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.advance(oneIntervalMs)
    const [place] = listed.flatMap(({ waiting }) => waiting)
    if (place === undefined) throw new Error('the waiter was not listed')
    await opened[0]?.abandon(place, plainCall)
    await clock.advance(oneIntervalMs + 100)
    expect(faults.count('enqueue')).toBe(2)
    await holder.release()
    await clock.advance(oneIntervalMs)
    expect(asked.value?.state).toBe('held')
  })
})

describe('what its answer counts for', () => {
  test('G3 T1 only what it listed, on an engine that renews claim by claim', async () => {
    const { clock, locker } = createRig()
    let faults: FaultyBackend<'fenced'> | undefined
    let grantedMs: number | null = null
    // As on Redis: each claim has a time of its own, and a keep-alive renews the keys that it names.
    const claimByClaim = (backend: Backend<'fenced'>) => {
      const openSession = backend.openSession.bind(backend)
      backend.openSession = async (request, call) => {
        const session = await openSession(request, call)
        const tryAcquire = session.tryAcquire.bind(session)
        session.tryAcquire = async (...given) => {
          const result = await tryAcquire(...given)
          if (result.kind !== 'granted' || grantedMs === null) return result
          const since = { ...result.grant.since, monotonicMs: grantedMs }
          return { ...result, grant: { ...result.grant, since } }
        }
        return session
      }
      faults = faultyBackend(backend)
      return faults
    }
    const client = locker({ wrap: claimByClaim })
    const listed = await client.tryAcquire('a', { ttlMs })
    if (listed === null) throw new Error('there is no other session')
    grantedMs = clock.monotonicMs()
    await clock.advance(1_000)
    faults?.next('keepAlive', { kind: 'late-reply', ms: 500 })
    const renewing = peek(listed.renew())
    await clock.settle()
    const later = await client.tryAcquire('b', { ttlMs })
    await clock.advance(500)
    expect(renewing.status).toBe('fulfilled')
    expect(listed.remainingMs).toBeCloseTo(ttlMs - driftMs - 500)
    expect(later?.remainingMs).toBeCloseTo(ttlMs - driftMs - 1_500)
  })

  test('G3 T1 T18 the session from when it was sent, also if it is late: its waiter starts again in time', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    await locker().acquire('a', { ttlMs: 60_000 })
    const { client, faults } = faulty({ callTimeoutMs: 60_000 })
    void peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    faults.next('keepAlive', { kind: 'late-reply', ms: 2_500 })
    while (faults.count('keepAlive') === 0) await clock.advance(10)
    const sentMs = clock.monotonicMs()
    await clock.advance(2_500)
    for (let i = 0; i < 1_000; i++) faults.next('keepAlive', { kind: 'error-before' })
    // From here on the position is worth nothing: the engine may have dropped it.
    const deadlineMs = sentMs + ttlMs - driftMs
    await clock.advance(deadlineMs - clock.monotonicMs() - 20)
    expect(faults.count('openSession')).toBe(1)
    // Before the engine’s own word, which comes one drift later.
    await clock.advance(60)
    expect(faults.count('openSession')).toBe(2)
  })

  test('G8 nothing that came after it was sent: a new position in the queue is no stray', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const holder = await locker().acquire('a', { ttlMs })
    const { client, faults } = faulty()
    const other = await client.acquire('other', { ttlMs })
    faults.next('keepAlive', { kind: 'frozen' })
    const renewing = peek(other.renew())
    await clock.settle()
    const first = peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    const second = peek(locker().acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    // Only now it reaches the engine, which finds a waiter that was not listed.
    faults.unfreeze()
    await clock.settle()
    expect(renewing.status).toBe('fulfilled')
    expect(faults.count('abandon')).toBe(0)
    await holder.release()
    await clock.settle()
    expect([first.status, second.status]).toEqual(['fulfilled', 'pending'])
  })
})

describe('an attempt that was granted twice', () => {
  /** The acquire arrives twice. Before its copy lands, the name is deleted and another client holds it for a while. */
  async function grantedTwice() {
    const rig = createFaultyRig()
    const { clock, engine, faulty, locker } = rig
    const { client, faults } = faulty()
    faults.next('enqueue', { kind: 'duplicate', ms: 1_000 })
    const lease = await client.acquire('a', { ttlMs })
    engine.deleteName('default', 'a')
    const other = await locker().acquire('a', { ttlMs })
    await other.release()
    await clock.advance(1_000)
    const [holder] = engine.inspect('default', 'a')?.holders ?? []
    expect(holder?.id).toBe(lease.id)
    expect(holder?.token).not.toBe(lease.fence.token)
    return { ...rig, client, faults, lease }
  }

  test('T84 G3 the keep-alive says that the first grant is lost, and the second is given back', async () => {
    const { clock, engine, lease } = await grantedTwice()
    await clock.advance(oneIntervalMs)
    expect(lease.state).toBe('lost')
    expect(lease.signal.reason).toMatchObject({ reason: 'deleted' })
    await clock.settle()
    expect(engine.inspect('default', 'a')).toBeNull()
  })

  test('T84 G7 a release of the first grant does not say that it was held', async () => {
    const { clock, engine, lease } = await grantedTwice()
    expect(await lease.release()).toBe('not-held')
    await clock.advance(oneIntervalMs)
    expect(engine.inspect('default', 'a')).toBeNull()
  })

  test('T84 a grant that the keep-alive brings does not confirm a lease of another grant', async () => {
    const { clock, engine, faulty, locker } = createFaultyRig()
    const { client, faults, opened } = faulty()
    const holder = await locker().acquire('a', { ttlMs: 60_000 })
    const asked = peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    const [session] = opened
    if (session === undefined) throw new Error('no session was opened')
    // It is listed as waiting; before its answer comes, the grant is pushed, deleted, and made once more.
    const keepAlive = session.keepAlive.bind(session)
    session.keepAlive = async (claims, call) => {
      session.keepAlive = keepAlive
      await holder.release()
      await clock.settle()
      engine.deleteName('default', 'a')
      const [place] = claims.waiting
      if (place === undefined) throw new Error('the waiter was not listed')
      engine.step((table) => {
        const owner = table.session('default', session.id)
        if (owner === undefined) throw new Error('the session is gone')
        tryAcquire(table, owner, { ...place, mode: 'exclusive', weight: 1, capacity: 1, lockDelayMs: 0 })
      })
      return keepAlive(claims, call)
    }
    await clock.advance(oneIntervalMs)
    expect(faults.count('keepAlive')).toBeGreaterThan(0)
    expect(asked.value?.state).toBe('lost')
    await clock.settle()
    expect(engine.inspect('default', 'a')).toBeNull()
  })
})
