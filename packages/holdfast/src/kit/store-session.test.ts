/** A session over a store with ordered keys: keep-alives, and how an attempt is given up. */
import { beforeEach, describe, expect, test } from 'vitest'
import { peek } from '../../test/rig.ts'
import { SimulatedStore } from '../../test/simulated-store.ts'
import { callWith } from '../base/aborting.ts'
import { type Instant, instantOf } from '../base/clock.ts'
import { BackendUnavailableError } from '../base/errors.ts'
import type { AcquireRequest, AcquireResult, Call, Claim, GrantedClaim } from '../spi.ts'
import { request } from '../testing/conformance/requests.ts'
import { enqueued } from '../testing/enqueued.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { seededRandom } from '../testing/seeded-random.ts'
import type { ClaimStore } from './conditional-store.ts'
import { Lifetime } from './lifetime.ts'
import { StoreSession } from './store-session.ts'
import type { StoredClaim } from './stored-name.ts'

const ttlMs = 6_000
const clock = createFakeClock()
const call = () => callWith()

/** Tells what the store is asked. The test may stand between the two. */
class TestSession<Since extends Instant | null> extends StoreSession<StoredClaim, Since> {
  readonly store: SimulatedStore
  readonly claims: ClaimStore
  readonly ended: string[] = []

  constructor(since: Since) {
    const store = new SimulatedStore('ranges', undefined, clock)
    const claims = store.openSession('id')
    const ended: string[] = []
    claims.ended = ({ attempt }, isReusable) => ended.push(`${attempt}${isReusable ? ' reusable' : ''}`)
    const lifetime = new Lifetime('simulated', clock)
    const facts = { id: 'id', ttlMs, holder: 'ada', since }
    super({ store: claims, lifetime, clock, random: seededRandom(1) }, facts)
    this.store = store
    this.claims = claims
    this.ended = ended
  }

  get believedSince(): Instant {
    return this.prolongedAt
  }

  async take(attempt: string, name = 'x'): Promise<GrantedClaim> {
    const result: AcquireResult<'fenced'> = await this.tryAcquire({ ...asked(attempt), name }, call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    return result.grant
  }
}

const asked = (attempt: string): AcquireRequest => ({ ...request('x'), attempt })
const shared = (attempt: string): AcquireRequest => ({ ...asked(attempt), mode: 'shared', weight: 1 })
const nothing = { held: [], waiting: [] }

describe('a keep-alive', () => {
  let session: TestSession<Instant>
  let store: SimulatedStore
  beforeEach(() => {
    session = new TestSession(instantOf(clock))
    store = session.store
  })

  test('T1 prolongs from the time that the engine was asked, not from the answer', async () => {
    const held = await session.take('a')
    await clock.advance(500)
    const sent = instantOf(clock)
    store.isHeld = true
    const keeping = session.keepAlive({ held: [held], waiting: [] }, call())
    await clock.advance(1_000)
    store.isHeld = false
    for (const message of store.inFlight.splice(0)) message.deliver()
    expect(await keeping).toEqual({ kind: 'alive', since: sent, ttlMs, lost: [], granted: [], unlisted: [] })
    expect(session.believedSince).toEqual(sent)
  })

  test('says why what is lost was lost: by force, because another has it, or because it was deleted', async () => {
    const lossOf = async (lose: (claim: GrantedClaim) => unknown) => {
      const held = await session.take('a')
      await lose(held)
      const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
      store.remove(asked('other'))
      store.remove(held)
      return kept.kind === 'alive' && kept.lost[0]
    }
    const deleted = await lossOf((claim) => store.remove(claim))
    const other = store.openSession('other')
    const takenOver = await lossOf((claim) => {
      store.remove(claim)
      return other.join(asked('other'), true, call())
    })
    const forced = await lossOf(async (claim) => {
      const [holder] = (await store.names.read('x', call())).holders
      const mark = { reason: 'force-released', detail: 'stuck' } as const
      expect(holder?.attempt).toBe(claim.attempt)
      if (holder !== undefined) await store.names.endClaim(holder, mark, call())
    })
    expect([deleted, takenOver, forced]).toEqual([
      { attempt: 'a', reason: 'deleted' },
      { attempt: 'a', reason: 'taken-over' },
      { attempt: 'a', reason: 'force-released', detail: 'stuck' },
    ])
    // Nothing is kept of what is lost.
    expect(session.ended).toEqual(['a', 'a', 'a'])
  })

  test('T84 what is held under another grant is lost, and is unlisted', async () => {
    const held = await session.take('a')
    const kept = await session.keepAlive({ held: [{ ...held, grantId: '77' }], waiting: [] }, call())
    expect(kept).toMatchObject({ lost: [{ attempt: 'a' }], unlisted: [{ name: 'x', attempt: 'a' }] })
  })

  test('brings the grant of a waiter of another process, leaves one that waits, and misses one without a key', async () => {
    const { claims } = session
    for (const attempt of ['granted', 'waits']) await claims.join(asked(attempt), true, call())
    const waiting = ['granted', 'waits', 'missing'].map(asked)
    const kept = await session.keepAlive({ held: [], waiting }, call())
    expect(kept).toMatchObject({
      granted: [{ attempt: 'granted', since: session.believedSince, ttlMs }],
      lost: [{ attempt: 'missing', reason: 'taken-over' }],
      unlisted: [],
    })
  })

  test('T19 looks again for its own waiters, once each, so that a lost wake-up costs one interval', async () => {
    const first = await session.take('first')
    const second = asked('second')
    const waiting = enqueued(session, second, call())
    await clock.settle()
    // The wake-up is lost, and nothing tells of it.
    store.isHeld = true
    store.remove(first)
    for (const event of store.inFlight.splice(0)) event.lose(true)
    store.isHeld = false
    store.requests = []
    const kept = await session.keepAlive({ held: [], waiting: [second] }, call())
    expect(store.requests).toEqual(['prolong', 'look', 'confirm', 'claims besides'])
    expect((await waiting).kind).toBe('granted')
    expect(kept).toMatchObject({ granted: [{ attempt: 'second' }], lost: [] })
  })

  test('T96 counts although a look of its own waiter hangs on a frozen member, and brings its grant later', async () => {
    const first = await session.take('first')
    const held = await session.take('held', 'y')
    const second = asked('second')
    const waiting = enqueued(session, second, call())
    await clock.settle()
    // The waiter is woken, and what it asks hangs.
    const { confirm } = session.claims
    let answer = () => {}
    session.claims.confirm = async (...given) => {
      await new Promise<void>((resolve) => {
        answer = resolve
      })
      return confirm(...given)
    }
    store.remove(first)
    await clock.advance(500)
    const sent = instantOf(clock)
    const keeping = peek(session.keepAlive({ held: [held], waiting: [second] }, call()))
    await clock.advance(ttlMs / 3)
    expect(keeping.value).toMatchObject({ kind: 'alive', since: sent, lost: [], granted: [], unlisted: [] })
    expect(clock.pendingTimers).toBe(0)
    answer()
    expect(await waiting).toMatchObject({ kind: 'granted', grant: { attempt: 'second', since: sent } })
  })

  test('G9 looks once for a waiter of its own that goes on waiting', async () => {
    await session.take('first')
    const second = asked('second')
    enqueued(session, second, call()).catch(() => {})
    await clock.settle()
    store.requests = []
    const kept = await session.keepAlive({ held: [], waiting: [second] }, call())
    expect(kept).toMatchObject({ granted: [], lost: [] })
    expect(store.requests).toEqual(['prolong', 'look', 'claims besides'])
  })

  test('does not call lost what is still on its way to the engine', async () => {
    store.isHeld = true
    const taking = session.tryAcquire(asked('a'), call())
    await clock.settle()
    const [join] = store.inFlight.splice(0)
    store.isHeld = false
    const kept = await session.keepAlive({ held: [], waiting: [asked('a')] }, call())
    expect(kept).toMatchObject({ lost: [] })
    join?.deliver()
    expect((await taking).kind).toBe('granted')
  })

  test('G3 an engine that grants another TTL than before is believed for that time', async () => {
    const { prolong } = session.claims
    session.claims.prolong = async (...asked) => {
      const prolonged = await prolong(...asked)
      return prolonged && { ...prolonged, ttlMs: 1_000 }
    }
    expect(await session.keepAlive(nothing, call())).toMatchObject({ ttlMs: 1_000 })
    expect(await session.tryAcquire(asked('a'), call())).toMatchObject({ grant: { ttlMs: 1_000 } })
  })

  test('T73 what the prolongation tells besides is not asked for again', async () => {
    const held = await session.take('a')
    const { prolong } = session.claims
    session.claims.prolong = async (...asked) => {
      const prolonged = await prolong(...asked)
      const besides = ['a', 'b'].map((attempt) => ({ name: 'x', attempt }))
      return prolonged && { ...prolonged, besides }
    }
    store.requests = []
    const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
    expect(kept).toMatchObject({ unlisted: [{ name: 'x', attempt: 'b' }] })
    expect(store.requests).toEqual(['prolong'])
  })

  test('that finds the session gone ends its waits, and prolongs nothing', async () => {
    const since = session.believedSince
    await session.take('first')
    const waiting = enqueued(session, asked('second'), call())
    await clock.settle()
    // No watch tells of it.
    store.isHeld = true
    store.endSession('id')
    for (const event of store.inFlight.splice(0)) event.lose(true)
    store.isHeld = false
    expect(await session.keepAlive(nothing, call())).toEqual({ kind: 'gone' })
    expect(await waiting).toEqual({ kind: 'session-gone' })
    expect(session.believedSince).toEqual(since)
  })
})

describe('G11 a claim that is at the engine is never told as not applied', () => {
  const refuse = async () => {
    throw new BackendUnavailableError('simulated', 'no leader', 'not-applied')
  }
  const outcome = (asked: Promise<unknown> | undefined) =>
    expect(asked).rejects.toHaveProperty('outcome', 'unknown')

  test('T98 the second copy of a join finds the key of the first, and cannot look', async () => {
    const session = new TestSession(instantOf(clock))
    const { claims } = session
    const { join } = claims
    claims.join = async (...asked) => {
      await join(...asked)
      return { ...(await join(...asked)), mayLandAgain: true }
    }
    claims.look = refuse
    await outcome(session.tryAcquire(asked('a'), call()))
    expect(session.store.show('x')).toBe('a*')
    expect(session.ended).toEqual([])
  })

  test('one that disagrees about the capacity cannot leave', async () => {
    const session = new TestSession(instantOf(clock))
    const permits = { ...asked('a'), mode: 'permits', weight: 1, capacity: 3 } as const
    await session.tryAcquire(permits, call())
    session.claims.leave = refuse
    await outcome(enqueued(session, { ...permits, attempt: 'b', capacity: 2 }, call()))
    expect(session.store.show('x')).toBe('a* b')
  })
})

test('G8 a claim that has disagreed about the capacity sets it while it is the oldest, until it has left', async () => {
  const session = new TestSession(instantOf(clock))
  const { claims, store } = session
  const permits = (attempt: string, weight: number, capacity: number): AcquireRequest => ({
    ...asked(attempt),
    mode: 'permits',
    weight,
    capacity,
  })
  await claims.join(permits('first', 1, 3), true, call())
  await claims.join(permits('leaving', 1, 4), true, call())
  store.remove(asked('first'))
  expect((await session.tryAcquire(permits('a', 3, 4), call())).kind).toBe('granted')
  expect(store.violations).toEqual([])
})

describe('giving up', () => {
  let session: TestSession<Instant>
  beforeEach(() => {
    session = new TestSession(instantOf(clock))
  })
  /** The next join is on its way, and its answer never comes. */
  const lost = async (attempt: string) => {
    const { claims } = session
    const { join } = claims
    let send = async () => {}
    claims.join = async (...asked) => {
      send = () => join(...asked).then(() => {})
      throw new BackendUnavailableError('simulated', 'no answer', 'unknown')
    }
    await expect(session.tryAcquire(asked(attempt), call())).rejects.toMatchObject({ outcome: 'unknown' })
    claims.join = join
    return send
  }

  test('G9 T99 an attempt whose joins were answered is deleted without a mark, and is refused all the same', async () => {
    await session.take('a')
    session.store.requests = []
    await session.abandon(asked('a'), call())
    expect(session.store.requests).toEqual(['remove'])
    expect(session.ended).toEqual(['a reusable'])
    await expect(session.take('a')).rejects.toThrow(/abandoned/)
  })

  test('T81 of 10,000 attempts that were abandoned since, and no more, a session keeps that it refuses them', async () => {
    const { claims } = session
    const first = 'first'
    for (const attempt of [first, ...Array.from({ length: 10_000 }, (_, index) => `later ${index}`)])
      await session.abandon(asked(attempt), call())
    const { join } = claims
    let joins = 0
    claims.join = (...asked) => {
      joins++
      return join(...asked)
    }
    await expect(session.take('later 0')).rejects.toThrow(/abandoned/)
    expect(joins).toBe(0)
    // The engine's mark refuses it.
    await expect(session.take(first)).rejects.toThrow(/abandoned/)
    expect(joins).toBe(1)
  })

  test('T73 an attempt without an answer is marked before it is deleted, so its late join comes to nothing', async () => {
    const send = await lost('a')
    session.store.requests = []
    await session.abandon(asked('a'), call())
    expect(session.store.requests).toEqual(['mark', 'remove'])
    expect(session.ended).toEqual(['a'])
    await send()
    expect(session.store.show('x')).toBe('')
  })

  test('T99 where the mark is refused, a keep-alive tells of what lands late', async () => {
    const send = await lost('a')
    session.claims.mark = async () => {}
    await session.abandon(asked('a'), call())
    await send()
    expect(await session.keepAlive(nothing, call())).toMatchObject({
      unlisted: [{ name: 'x', attempt: 'a' }],
    })
    await session.abandon(asked('a'), call())
    expect(session.store.show('x')).toBe('')
  })

  test('G7 a released key may be used again, unless a second join of its attempt was not answered', async () => {
    await session.release(await session.take('a'), { keepForMs: 0 }, call())
    const held = await session.take('b')
    await lost('b')
    expect(await session.release(held, { keepForMs: 0 }, call())).toBe('released')
    expect(await session.release(held, { keepForMs: 0 }, call())).toBe('not-held')
    expect(session.ended).toEqual(['a reusable', 'b', 'b'])
  })

  test('a busy attempt leaves a key that may be used again, and one that waits keeps its own', async () => {
    await session.take('a')
    expect((await session.tryAcquire(shared('b'), call())).kind).toBe('busy')
    const waiting: Claim = asked('c')
    enqueued(session, asked('c'), call()).catch(() => {})
    await clock.settle()
    expect((await session.tryAcquire(asked('c'), call())).kind).toBe('busy')
    expect(session.ended).toEqual(['b reusable'])
    await session.abandon(waiting, call())
    expect(session.store.show('x')).toBe('a*')
  })
})

describe('data', () => {
  test('are written for the holder alone, with the grant that they belong to', async () => {
    const session = new TestSession(instantOf(clock))
    const held = await session.take('a')
    expect(await session.setData({ ...held, grantId: '77' }, 'no', call())).toBe('not-held')
    expect(await session.setData(held, 'left', call())).toBe('stored')
    const { data } = await session.store.names.read('x', call())
    expect(data).toMatchObject({ data: 'left', holder: 'ada', token: held.grantId })
    session.store.remove(held)
    expect(await session.setData(held, 'late', call())).toBe('not-held')
  })
})

function ask(
  session: TestSession<null>,
  how: 'tryAcquire' | 'enqueue',
  request: AcquireRequest,
  given: Call,
) {
  return how === 'enqueue' ? enqueued(session, request, given) : session.tryAcquire(request, given)
}

describe('an attached session that does not know its time', () => {
  test.each(['tryAcquire', 'enqueue'] as const)('T64 %s prolongs it first, once', async (acquire) => {
    const session = new TestSession(null)
    const sent = instantOf(clock)
    const result = await ask(session, acquire, asked('a'), call())
    expect(result).toMatchObject({ kind: 'granted', grant: { since: sent } })
    await ask(session, acquire, asked('b'), callWith(AbortSignal.abort())).catch(() => {})
    expect(session.store.requests.filter((each) => each === 'prolong')).toHaveLength(1)
  })

  test.each(['tryAcquire', 'enqueue'] as const)('%s asks for nothing if it has gone', async (acquire) => {
    const session = new TestSession(null)
    session.store.endSession('id')
    expect(await ask(session, acquire, asked('a'), call())).toEqual({ kind: 'session-gone' })
    expect(session.store.requests).toEqual(['prolong'])
  })
})
