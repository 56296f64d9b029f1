/** An attempt on its own, between an engine that a test speaks for and a caller that may leave: its states, and many orders of events. */
import { getEventListeners } from 'node:events'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { peek } from '../../test/rig.ts'
import { Background } from '../base/background.ts'
import { Cancellation } from '../base/cancellation.ts'
import { instantOf } from '../base/clock.ts'
import { BackendUnavailableError, ClosedError } from '../base/errors.ts'
import type {
  AcquireResult,
  BackendInfo,
  BackendSession,
  EnqueueResult,
  Grant,
  KeepAliveResult,
  ListedClaims,
} from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { seededRandom } from '../testing/seeded-random.ts'
import { Attempt, type Outcome, type Wanted } from './attempt.ts'
import { KeptSession } from './keeper.ts'
import type { LeaseRecord } from './lease.ts'

const ttlMs = 9_000
const waitMs = 30_000
const callTimeoutMs = 5_000

const wanted: Wanted = {
  ttlMs,
  request: { name: 'a', mode: 'exclusive', weight: 1, capacity: 1, lockDelayMs: 0 },
  maxHoldMs: Number.POSITIVE_INFINITY,
  holdAtLeastMs: 0,
  warnHoldMs: Number.POSITIVE_INFINITY,
  onJeopardy: undefined,
}

/** The engine's side of one session: its claims, each with its grant or null while it waits. It answers no attempt by itself. */
class ToldEngine implements BackendSession<'fenced'> {
  readonly id = 'session'
  readonly ttlMs = ttlMs
  readonly handle = {}
  readonly clock = createFakeClock()
  readonly since = instantOf(this.clock)
  readonly claims = new Map<string, Grant<'fenced'> | null>()
  readonly listed: ListedClaims[] = []
  abandons = 0
  /** Called in the middle of `enqueue`. */
  onEnqueue = (): void => {}
  answerTry: (result: AcquireResult<'fenced'>) => void = () => {}
  isGone = false
  #prolongedAt = this.since
  #grants = 0

  enqueue({ attempt }: { attempt: string }): void {
    if (!this.isGone) this.claims.set(attempt, null)
    this.onEnqueue()
  }

  tryAcquire(): Promise<AcquireResult<'fenced'>> {
    return new Promise((resolve) => {
      this.answerTry = resolve
    })
  }

  grant(attempt: string): Grant<'fenced'> {
    const number = ++this.#grants
    const since = this.#prolongedAt
    const grant = { name: 'a', attempt, grantId: `${number}`, token: BigInt(number), since, ttlMs }
    this.claims.set(attempt, grant)
    return grant
  }

  async keepAlive(listed: ListedClaims): Promise<KeepAliveResult<'fenced'>> {
    this.listed.push(listed)
    if (this.isGone) return { kind: 'gone' }
    this.#prolongedAt = instantOf(this.clock)
    const known = new Set([...listed.held, ...listed.waiting].map(({ attempt }) => attempt))
    const lost = [
      ...listed.held.filter(({ attempt, grantId }) => this.claims.get(attempt)?.grantId !== grantId),
      ...listed.waiting.filter(({ attempt }) => !this.claims.has(attempt)),
    ]
    for (const { attempt } of lost) known.delete(attempt)
    const granted = listed.waiting.flatMap(({ attempt }) => this.claims.get(attempt) ?? [])
    return {
      kind: 'alive',
      since: this.#prolongedAt,
      ttlMs,
      lost: lost.map(({ attempt }) => ({ attempt, reason: 'deleted' })),
      granted,
      unlisted: [...this.claims.keys()]
        .filter((attempt) => !known.has(attempt))
        .map((attempt) => ({ name: 'a', attempt })),
    }
  }

  async abandon({ attempt }: { attempt: string }): Promise<void> {
    this.abandons++
    this.claims.delete(attempt)
  }

  async release({ attempt, grantId }: { attempt: string; grantId: string }) {
    if (this.claims.get(attempt)?.grantId !== grantId) return 'not-held' as const
    this.claims.delete(attempt)
    return 'released' as const
  }

  async close(): Promise<void> {
    this.claims.clear()
  }
}

const info: BackendInfo<'fenced'> = {
  name: 'told',
  scope: 'process',
  fencing: 'fenced',
  namespace: 'default',
  issuer: 'told',
  epoch: 0,
  modes: ['exclusive'],
  waiting: 'queue',
  lockDelay: 'none',
  holdAtLeast: 'none',
  data: false,
  ttlMs: { min: 1, max: 1e9, step: 1 },
  driftMs: (ms) => ms / 100,
  expirySlackMs: () => 0,
  prolongation: 'committed',
  assumptions: [],
  confirmed: '',
}

/** Counts who listens. */
class CountingCancellation extends Cancellation {
  listeners = 0

  override onCancel(callback: () => void): () => void {
    const untie = super.onCancel(callback)
    let isTied = !this.cancelled
    if (isTied) this.listeners++
    return () => {
      if (isTied) this.listeners--
      isTied = false
      untie()
    }
  }
}

function createStage({ waitMs: ms = waitMs } = {}) {
  const engine = new ToldEngine()
  const { clock } = engine
  const background = new Background()
  const context = {
    clock,
    info,
    backendName: info.name,
    holder: 'me',
    random: seededRandom(1),
    callTimeoutMs,
    maxSessions: 1,
    maxAbandonedPerSession: 1_000,
    background,
  }
  const closing = new CountingCancellation()
  const caller = new AbortController()
  const session = new KeptSession<'fenced'>(context, engine, 0, () => {})
  const timersBefore = clock.pendingTimers
  const attempt = new Attempt<'fenced'>({ context, closing }, wanted, caller.signal, ms)
  return { attempt, caller, clock, closing, engine, session, timersBefore }
}

type Stage = ReturnType<typeof createStage>

/** Nothing of the attempt is left: in its session, at the engine, on what it was tied to, or as a timer. */
async function expectNothingLeft({ attempt, caller, clock, closing, engine, session }: Stage) {
  attempt.end()
  expect(closing.listeners).toBe(0)
  expect(getEventListeners(caller.signal, 'abort')).toHaveLength(0)
  await clock.settle()
  expect(session.attempts.size).toBe(0)
  expect([...engine.claims.keys()]).toEqual([])
  await session.close()
  expect(clock.pendingTimers).toBe(0)
}

const away = (outcome: 'unknown' | 'not-applied') => new BackendUnavailableError('told', 'away', outcome)
const isLease = (outcome: Outcome | undefined): outcome is LeaseRecord =>
  outcome != null && 'claim' in (outcome as object)

/** Asks, and has the engine answer. */
function asked(stage: Stage) {
  const outcome = peek(stage.attempt.askIn(stage.session, 'asked'))
  return { ...stage, outcome, id: stage.attempt.claim.attempt }
}

describe('an attempt that was asked for', () => {
  test('is in its session before its request leaves, with the time that is left', async () => {
    const stage = createStage()
    stage.clock.block(1_000)
    let state: string | undefined
    stage.engine.onEnqueue = () => {
      state = stage.session.attempts.get(stage.attempt.claim.attempt)?.state
    }
    void stage.attempt.askIn(stage.session, 'asked')
    expect(state).toBe('asked')
    expect(stage.attempt.claim).toMatchObject({ waitMs: waitMs - 1_000 })
  })

  test('without a limit says nothing of a time', () => {
    const { attempt, session } = createStage({ waitMs: Number.POSITIVE_INFINITY })
    void attempt.askIn(session, 'asked')
    expect(attempt.claim).not.toHaveProperty('waitMs')
  })

  test('may be answered while it is being asked for', async () => {
    const stage = createStage()
    const { attempt, engine, session } = stage
    engine.onEnqueue = () => {
      attempt.answer({ kind: 'granted', grant: engine.grant(attempt.claim.attempt) })
      throw new Error('after the answer')
    }
    const outcome = await attempt.askIn(session, 'asked')
    expect(outcome).toBe(attempt.lease)
    expect([attempt.state, session.isSound]).toEqual(['held', true])
    await attempt.lease?.release()
    await expectNothingLeft(stage)
  })

  test('fails as unknown if the engine throws, and is abandoned', async () => {
    const stage = createStage()
    stage.engine.onEnqueue = () => {
      throw new Error('in the engine')
    }
    const { outcome, session, clock } = asked(stage)
    expect(session.isSound).toBe(false)
    await clock.settle()
    expect(outcome.reason).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    expect(stage.engine.abandons).toBe(1)
    await expectNothingLeft(stage)
  })

  test('is not asked for in a session that has ended, nor after it was cancelled', async () => {
    const ended = createStage()
    ended.session.end('session-gone')
    expect(await ended.attempt.askIn(ended.session, 'asked')).toBeNull()
    await expectNothingLeft(ended)

    const cancelled = createStage()
    const reason = new Error('enough')
    cancelled.caller.abort(reason)
    await expect(cancelled.attempt.askIn(cancelled.session, 'asked')).rejects.toBe(reason)
    await expectNothingLeft(cancelled)
  })

  test('a caller that has gone, or a closed locker, gets no attempt and leaves no tie', () => {
    const { attempt, caller, closing } = createStage()
    attempt.end()
    const host = { context: { clock: createFakeClock() } as never, closing }
    closing.cancel(new ClosedError())
    expect(() => new Attempt(host, wanted, undefined, 0)).toThrow(ClosedError)
    caller.abort(new Error('enough'))
    const open = new CountingCancellation()
    expect(() => new Attempt({ ...host, closing: open }, wanted, caller.signal, 0)).toThrow('enough')
    expect(open.listeners).toBe(0)
  })
})

describe('the caller is answered', () => {
  const grantIt = ({ attempt, engine, id }: ReturnType<typeof asked>) =>
    attempt.answer({ kind: 'granted', grant: engine.grant(id) })

  test('once: an answer that comes while it is being cancelled is of no use, and its claim is abandoned', async () => {
    const stage = asked(createStage())
    const { attempt, caller, clock, engine, outcome } = stage
    const reason = new Error('enough')
    attempt.onCancel(() => grantIt(stage))
    caller.abort(reason)
    await clock.settle()
    expect(outcome.reason).toBe(reason)
    expect([attempt.lease, engine.abandons]).toEqual([undefined, 1])
    await expectNothingLeft(stage)
  })

  test('a deadline, an abort and the closing are told to the engine, and abandon the claim', async () => {
    for (const leave of ['deadline', 'abort', 'close', 'lost'] as const) {
      const stage = asked(createStage())
      const { attempt, caller, clock, closing, engine, outcome } = stage
      let told = 0
      attempt.onCancel(() => told++)
      if (leave === 'deadline') await clock.advance(waitMs)
      if (leave === 'abort') caller.abort(new Error('enough'))
      if (leave === 'close') closing.cancel(new ClosedError())
      if (leave === 'lost') attempt.lose()
      await clock.settle()
      expect([leave, told, engine.abandons, attempt.isStopped]).toEqual([leave, 1, 1, leave !== 'lost'])
      expect(outcome.status).toBe(leave === 'lost' ? 'fulfilled' : 'rejected')
      await expectNothingLeft(stage)
    }
  })

  test('the time-out says that the name is taken only if the engine has said so', async () => {
    for (const [isQueued, code] of [
      [true, 'ACQUIRE_TIMEOUT'],
      [false, 'BACKEND_UNAVAILABLE'],
    ] as const) {
      const { attempt, clock, outcome } = asked(createStage())
      if (isQueued) attempt.queued()
      await clock.advance(waitMs)
      expect(outcome.reason).toMatchObject({ code })
    }
  })

  test('`queued` counts only while it is asked for', () => {
    const { attempt, engine, id } = asked(createStage())
    attempt.queued()
    expect(attempt.state).toBe('waiting')
    attempt.answer({ kind: 'granted', grant: engine.grant(id) })
    attempt.queued()
    expect(attempt.state).toBe('held')
  })

  test('what was not applied leaves nothing to abandon', async () => {
    const answers: ((attempt: Attempt<'fenced'>) => void)[] = [
      (attempt) => attempt.fail(away('not-applied')),
      (attempt) => attempt.answer({ kind: 'queue-full' }),
      (attempt) => attempt.answer({ kind: 'session-gone' }),
    ]
    for (const answer of answers) {
      const { attempt, clock, engine, session } = asked(createStage())
      answer(attempt)
      await clock.settle()
      expect([engine.abandons, session.attempts.size]).toEqual([0, 0])
    }
  })

  test('a grant whose time is up is given back, and another try follows', async () => {
    const stage = asked(createStage())
    const { attempt, clock, engine, id, outcome } = stage
    await clock.advance(ttlMs / 2)
    const grant = { ...engine.grant(id), since: engine.since }
    clock.block(ttlMs / 2)
    attempt.answer({ kind: 'granted', grant })
    await clock.settle()
    expect([outcome.value, engine.abandons]).toEqual([null, 1])
    await expectNothingLeft(stage)
  })

  test('an old grant is confirmed first, within the deadline', async () => {
    for (const isInTime of [true, false]) {
      const stage = asked(createStage({ waitMs: ttlMs }))
      const { attempt, clock, engine, id, outcome } = stage
      const grant = engine.grant(id)
      clock.block(ttlMs * 0.8)
      const keepAlive = engine.keepAlive.bind(engine)
      const answer = Promise.withResolvers<void>()
      engine.keepAlive = async (listed) => {
        await answer.promise
        return keepAlive(listed)
      }
      attempt.answer({ kind: 'granted', grant })
      await clock.settle()
      expect([attempt.state, outcome.status]).toEqual(['held', 'pending'])
      if (isInTime) answer.resolve()
      else await clock.advance(ttlMs * 0.2)
      await clock.settle()
      expect(outcome.status).toBe('fulfilled')
      expect([isInTime, attempt.cancelled]).toEqual([isInTime, !isInTime])
      answer.resolve()
      await attempt.lease?.release(0)
      await expectNothingLeft(stage)
    }
  })
})

describe('a try', () => {
  test('is not listed by keep-alives, and its limit is that of a call', async () => {
    const stage = createStage({ waitMs: 0 })
    const { attempt, clock, engine, session } = stage
    const outcome = peek(attempt.askIn(session, 'trying'))
    await clock.advance(ttlMs / 2)
    expect(engine.listed.flatMap(({ waiting }) => waiting)).toEqual([])
    await clock.advance(callTimeoutMs)
    expect(outcome.reason).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    expect([attempt.isStopped, engine.abandons]).toEqual([false, 1])
    engine.answerTry({ kind: 'busy' })
    await expectNothingLeft(stage)
  })

  test('of a wait ends with the deadline of the wait, if that comes first', async () => {
    const { attempt, clock, session } = createStage({ waitMs: 1_000 })
    const outcome = peek(attempt.askIn(session, 'trying'))
    await clock.advance(1_000)
    expect([outcome.status, attempt.isStopped]).toEqual(['rejected', true])
  })

  test('the next one has another id, the same start, and the reason for the time-out', async () => {
    const { attempt, caller, clock, closing, engine, session } = createStage()
    const first = peek(attempt.askIn(session, 'trying'))
    const { attempt: id } = attempt.claim
    engine.answerTry({ kind: 'busy', retryAfterMs: 5 })
    await clock.advance(1_000)
    expect(first.value).toEqual({ kind: 'busy', retryAfterMs: 5 })
    attempt.noteTaken()
    const { attemptId } = attempt.about
    const next = attempt.next()
    expect(closing.listeners).toBe(1)
    expect(getEventListeners(caller.signal, 'abort')).toHaveLength(1)
    const outcome = peek(next.askIn(session, 'asked'))
    expect(next.claim.attempt).not.toBe(id)
    expect(next.about.attemptId).toBe(attemptId)
    await clock.advance(waitMs - 1_000)
    expect(outcome.reason).toMatchObject({ code: 'ACQUIRE_TIMEOUT', waitedMs: waitMs })
  })
})

/** The lease is what keeps the attempt in memory: it must not keep what belongs to the caller. */
test('an attempt that has ended has no timer, and does not listen', async () => {
  const stage = asked(createStage())
  const { attempt, caller, clock, closing, engine, id, timersBefore } = stage
  attempt.answer({ kind: 'granted', grant: engine.grant(id) })
  attempt.end()
  expect(clock.pendingTimers).toBe(timersBefore)
  caller.abort(new Error('later'))
  closing.cancel(new ClosedError())
  expect([attempt.cancelled, attempt.state, attempt.lease?.isLive]).toEqual([false, 'held', true])
})

test('G7 a release in flight is known: a keep-alive that finds its claim does not abandon it', async () => {
  const stage = asked(createStage())
  const { attempt, clock, engine, id } = stage
  attempt.answer({ kind: 'granted', grant: engine.grant(id) })
  const release = engine.release.bind(engine)
  const answer = Promise.withResolvers<void>()
  engine.release = async (claim) => {
    await answer.promise
    return release(claim)
  }
  const releasing = peek(attempt.lease?.release() ?? Promise.reject(new Error('no lease')))
  await clock.advance(ttlMs / 2)
  expect([engine.listed.length, engine.abandons]).toEqual([1, 0])
  answer.resolve()
  await clock.settle()
  expect(releasing.value).toBe('released')
  await expectNothingLeft(stage)
})

type Event =
  | 'queue'
  | 'grant'
  | 'grant-anew'
  | 'push'
  | 'refuse'
  | 'session-gone'
  | 'fail-unknown'
  | 'fail-not-applied'
  | 'delete'
  | 'keep-alive'
  | 'abort'
  | 'close'
  | 'deadline'
  | 'lose'
  | 'end-session'
  | 'end'
  | 'lose-lease'
  | 'release'

const events: readonly Event[] = [
  'queue',
  'grant',
  'grant-anew',
  'push',
  'push',
  'refuse',
  'session-gone',
  'fail-unknown',
  'fail-not-applied',
  'delete',
  'keep-alive',
  'keep-alive',
  'abort',
  'close',
  'deadline',
  'lose',
  'end-session',
  'end',
  'lose-lease',
  'release',
]

/** Its end, as the caller sees it. */
type Settled = 'lease' | 'null' | 'abort' | 'closed' | 'timeout' | 'full' | 'unknown' | 'not-applied'

function settledAs(outcome: ReturnType<typeof asked>['outcome']): Settled | undefined {
  const { status, value, reason } = outcome
  if (status === 'pending') return undefined
  if (status === 'fulfilled') return isLease(value) ? 'lease' : 'null'
  if ((reason as Error).message === 'enough') return 'abort'
  const { code, outcome: effect } = reason as { code: string; outcome?: 'unknown' | 'not-applied' }
  if (code === 'CLOSED') return 'closed'
  if (code === 'QUEUE_FULL') return 'full'
  if (code === 'ACQUIRE_TIMEOUT') return 'timeout'
  return (reason as Error).message.includes('no answer within') ? 'timeout' : (effect as Settled)
}

test('in every order of events the first one settles it, and nothing is left at the engine, in the session or in memory', async () => {
  const order = fc.array(fc.record({ event: fc.constantFrom(...events), turns: fc.boolean() }), {
    maxLength: 12,
  })
  await fc.assert(
    fc.asyncProperty(order, async (steps) => {
      const stage = asked(createStage())
      const { attempt, caller, clock, closing, engine, id, outcome, session } = stage
      let expected: Settled | undefined
      const settles = (as: Settled) => {
        expected ??= as
      }
      const hasEnded = () => session.ended.cancelled
      const answer = (result: EnqueueResult<'fenced'>, as: Settled) => {
        settles(as)
        attempt.answer(result)
      }
      for (const { event, turns } of steps) {
        const grant = engine.claims.get(id)
        const isThere = engine.claims.has(id)
        if (event === 'queue') attempt.queued()
        if (event === 'grant' && isThere && grant == null) engine.grant(id)
        // A late copy of the request, after the grant was deleted (T84).
        if (event === 'grant-anew' && grant != null && !engine.isGone) engine.grant(id)
        if (event === 'push' && grant != null) answer({ kind: 'granted', grant }, 'lease')
        // The engine speaks the truth: it refuses only what it does not have.
        if (event === 'refuse' && expected === undefined) {
          engine.claims.delete(id)
          answer({ kind: 'queue-full' }, 'full')
        }
        if (event === 'session-gone') {
          engine.isGone = true
          engine.claims.clear()
          answer({ kind: 'session-gone' }, 'null')
        }
        if (event === 'fail-unknown') {
          settles('unknown')
          attempt.fail(away('unknown'))
        }
        if (event === 'fail-not-applied' && expected === undefined) {
          engine.claims.delete(id)
          settles('not-applied')
          attempt.fail(away('not-applied'))
        }
        if (event === 'delete' && isThere) engine.claims.delete(id)
        if (event === 'keep-alive') {
          if (engine.isGone || !isThere) settles('null')
          else if (grant != null) settles('lease')
          const before = engine.listed.length
          while (engine.listed.length === before && !hasEnded()) await clock.advance(ttlMs / 10)
        }
        if (event === 'abort') {
          settles('abort')
          caller.abort(new Error('enough'))
        }
        if (event === 'close') {
          settles('closed')
          closing.cancel(new ClosedError())
        }
        if (event === 'deadline') {
          // Keep-alives come first.
          if (engine.isGone || !isThere) settles('null')
          else if (grant != null) settles('lease')
          settles('timeout')
          await clock.advance(waitMs)
        }
        if (event === 'lose') {
          settles('null')
          attempt.lose()
        }
        if (event === 'end-session') {
          settles('null')
          const lingered = session.attempts.get(id)?.state === 'lingering'
          session.end('unreachable')
          // It is not closed for the sake of a body that runs (T53): the engine's own time ends it.
          if (lingered) engine.claims.clear()
        }
        if (event === 'end' && expected !== undefined) {
          await clock.settle()
          attempt.end()
        }
        if (event === 'lose-lease') attempt.lease?.lose('closed', turns ? 'abandoned' : 'kept')
        if (event === 'release') void attempt.lease?.release()
        if (turns) await clock.settle()
        // The session has at most what it is answerable for.
        const state = session.attempts.get(id)?.state
        expect(state, event).not.toBe('over')
        if (attempt.lease?.isLive === true) expect(state).toBe('held')
        if (state === 'asked' || state === 'waiting') expect(expected, event).toBeUndefined()
      }
      await clock.settle()
      expect(settledAs(outcome), JSON.stringify(steps)).toBe(expected)
      if (expected === undefined) attempt.lose()
      await attempt.lease?.release()
      // A claim that lingers is given up with the session; else keep-alives find what is there besides.
      const lingers = session.attempts.get(id)?.state === 'lingering'
      if (lingers) await session.close()
      else await clock.advance(ttlMs)
      await expectNothingLeft(stage)
    }),
    { numRuns: 1_000 },
  )
})
