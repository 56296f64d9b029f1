/** What a keep-alive answers, from what the engine says of the session's claims. */
import { beforeEach, describe, expect, test } from 'vitest'
import { SimulatedStore } from '../../test/simulated-store.ts'
import { callWith } from '../base/aborting.ts'
import { type Instant, instantOf } from '../base/clock.ts'
import type { AcquireRequest, Claim, GrantedClaim, LostClaim } from '../spi.ts'
import { request } from '../testing/conformance/requests.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { seededRandom } from '../testing/seeded-random.ts'
import { Lifetime } from './lifetime.ts'
import { PredecessorQueue } from './predecessor-queue.ts'
import { type Prolonged, QueueSession } from './queue-session.ts'

const ttlMs = 6_000
const clock = createFakeClock()
const call = () => callWith()

/** The engine's side of the session is set by the test. */
class TestSession<Since extends Instant | null> extends QueueSession<Since> {
  readonly store = new SimulatedStore('ranges')
  protected readonly queue: PredecessorQueue
  isGone = false
  lost: readonly Claim[] = []
  readonly tokens = new Map<string, bigint | null>()
  besides: readonly Claim[] = []
  /** What it was asked, in this order. */
  readonly asked: string[] = []
  readonly known: string[] = []
  beforeAnswer: () => unknown = () => {}

  constructor(since: Since) {
    super({ id: 'id', ttlMs, holder: 'ada', since })
    this.queue = new PredecessorQueue({
      lifetime: new Lifetime('simulated', clock),
      store: this.store.openSession('id'),
      clock,
      random: seededRandom(1),
      session: () => ({ since: this.prolongedAt, ttlMs }),
    })
  }

  get believedSince(): Instant {
    return this.prolongedAt
  }

  sending<T>(claim: Claim, send: () => Promise<T>): Promise<T> {
    return this.asking(claim, send)
  }

  protected async prolong(held: readonly GrantedClaim[]): Promise<Prolonged | null> {
    this.asked.push(`prolong ${held.map(({ attempt }) => attempt).join()}`)
    const since = instantOf(clock)
    await this.beforeAnswer()
    return this.isGone ? null : { since, lost: this.lost }
  }

  protected async tokenOf({ attempt }: Claim): Promise<bigint | null | undefined> {
    this.asked.push(`token ${attempt}`)
    return this.tokens.get(attempt)
  }

  protected async lossOf({ attempt }: Claim): Promise<LostClaim> {
    this.asked.push(`loss ${attempt}`)
    return { attempt, reason: 'deleted' }
  }

  protected async claimsBesides(known: ReadonlySet<string>): Promise<readonly Claim[]> {
    this.known.push(...known)
    return this.besides
  }

  async abandon(): Promise<void> {}
  async release(): Promise<'released'> {
    return 'released'
  }
  async close(): Promise<void> {}
}

const asked = (attempt: string): AcquireRequest => ({ ...request('x'), attempt })
const held = (attempt: string, grantId = '1'): GrantedClaim => ({ name: 'x', attempt, grantId })

describe('a keep-alive', () => {
  let session: TestSession<Instant>
  beforeEach(() => {
    session = new TestSession(instantOf(clock))
  })

  test('T1 prolongs from the time that the engine was asked, not from the answer', async () => {
    const sent = instantOf(clock)
    session.beforeAnswer = () => clock.advance(1_000)
    expect(await session.keepAlive({ held: [held('a')], waiting: [] }, call())).toEqual({
      kind: 'alive',
      since: sent,
      ttlMs,
      lost: [],
      granted: [],
      unlisted: [],
    })
    expect(session.believedSince).toEqual(sent)
    expect(session.asked).toEqual(['prolong a'])
  })

  test('says why what is lost was lost, and looks for it among what the session has besides', async () => {
    session.lost = [held('b')]
    session.besides = [{ name: 'x', attempt: 'b' }]
    const kept = await session.keepAlive({ held: [held('a'), held('b')], waiting: [] }, call())
    expect(kept).toMatchObject({
      lost: [{ attempt: 'b', reason: 'deleted' }],
      unlisted: [{ attempt: 'b' }],
    })
    expect(session.known).toEqual(['a'])
  })

  test('brings the grant of a waiter of another process, leaves one that waits, and misses one without a key', async () => {
    session.tokens.set('granted', 7n).set('waits', null)
    const waiting = ['granted', 'waits', 'missing'].map(asked)
    const kept = await session.keepAlive({ held: [], waiting }, call())
    expect(kept).toMatchObject({
      granted: [{ attempt: 'granted', token: 7n, grantId: '7', since: session.believedSince, ttlMs }],
      lost: [{ attempt: 'missing' }],
    })
    expect(session.known).toEqual(['granted', 'waits'])
  })

  test('T19 looks again for its own waiters, so that a lost wake-up costs one interval', async () => {
    const first = asked('first')
    expect((await session.tryAcquire(first, call())).kind).toBe('granted')
    const second = asked('second')
    const waiting = session.enqueue(second, call())
    await clock.settle()
    // The wake-up is lost, and nothing tells of it.
    session.store.isHeld = true
    session.store.remove(first)
    for (const event of session.store.inFlight.splice(0)) event.lose(true)
    session.store.isHeld = false
    const kept = await session.keepAlive({ held: [], waiting: [second] }, call())
    const result = await waiting
    expect(result.kind).toBe('granted')
    expect(kept).toMatchObject({ granted: [{ attempt: 'second' }], lost: [] })
  })

  test('does not call lost what is still on its way to the engine', async () => {
    const answer = Promise.withResolvers<void>()
    const sending = session.sending(held('a'), () => answer.promise)
    await session.keepAlive({ held: [held('a'), held('b')], waiting: [asked('a')] }, call())
    expect(session.asked).toEqual(['prolong b'])
    answer.resolve()
    await sending
    await session.keepAlive({ held: [held('a')], waiting: [] }, call())
    expect(session.asked.at(-1)).toBe('prolong a')
  })

  test('that finds the session gone ends its waits, and prolongs nothing', async () => {
    const since = session.believedSince
    await session.tryAcquire(asked('first'), call())
    const waiting = session.enqueue(asked('second'), call())
    await clock.settle()
    session.isGone = true
    await clock.advance(1)
    expect(await session.keepAlive({ held: [], waiting: [] }, call())).toEqual({ kind: 'gone' })
    expect(await waiting).toEqual({ kind: 'session-gone' })
    expect(session.believedSince).toEqual(since)
  })
})

describe('an attached session that does not know its time', () => {
  test.each(['tryAcquire', 'enqueue'] as const)('T64 %s prolongs it first, once', async (acquire) => {
    const session = new TestSession(null)
    const sent = instantOf(clock)
    const result = await session[acquire](asked('a'), call())
    expect(result).toMatchObject({ kind: 'granted', grant: { since: sent } })
    await session[acquire](asked('b'), callWith(AbortSignal.abort())).catch(() => {})
    expect(session.asked).toEqual(['prolong '])
  })

  test.each(['tryAcquire', 'enqueue'] as const)('%s asks for nothing if it has gone', async (acquire) => {
    const session = new TestSession(null)
    session.isGone = true
    expect(await session[acquire](asked('a'), call())).toEqual({ kind: 'session-gone' })
    expect(session.store.requests).toEqual([])
  })
})
