/**
 * One `enqueue`, from its request to its grant. `kit/waiting-room.ts` has the states.
 *
 * Failures between two steps: the push overtakes the answer that says that there is a wait (the room knows the waiter
 * before its request leaves); the answer is lost (the lane says so, and core abandons the attempt).
 */
import type { Instant } from '../../../base/clock.ts'
import { outcomeOf } from '../../../base/errors.ts'
import type { Asker } from '../../../kit/lane.ts'
import type { AcquireRequest, Call, EnqueueResult, Fencing } from '../../../spi.ts'
import { LOOK_NOW, type ScriptAnswer } from './answers.ts'
import { refusedAcquire } from './failures.ts'
import type { ClaimKey } from './requests.ts'
import type { RecordedGrant, RedisWaiter, RedisWaitingRoom } from './waiting-room.ts'

type Result<F extends Fencing> = EnqueueResult<F> | Promise<EnqueueResult<F>>

/** An attempt that a session has asked for and does not know to be over. */
export interface KnownAttempt {
  readonly name: string
  /** The attempt has, or may have, a position in the queue. */
  isWaiting: boolean
  /** The request to queue it is in flight. */
  isAsked: boolean
}

/** The part of the session that an enqueue needs. */
export interface EnqueueHost<F extends Fencing> {
  readonly room: RedisWaitingRoom
  handOut(request: AcquireRequest, granted: RecordedGrant): EnqueueResult<F>
  sinceOf(sent: Instant, leftMs: number): Instant
  forget(attempt: string): void
}

export class Enqueueing<F extends Fencing> implements RedisWaiter, Asker<ScriptAnswer> {
  readonly request: AcquireRequest
  readonly claim: ClaimKey
  readonly session: EnqueueHost<F>
  readonly call: Call
  heartbeat: Instant
  readonly resolve: (result: Result<Fencing>) => void
  readonly reject: (error: unknown) => void
  readonly #known: KnownAttempt
  /** The attempt has not been asked for before. */
  readonly #isNew: boolean

  constructor(
    session: EnqueueHost<F>,
    request: AcquireRequest,
    asked: {
      readonly claim: ClaimKey
      readonly known: KnownAttempt
      readonly isNew: boolean
      readonly sent: Instant
    },
    call: Call,
    resolve: (result: Result<F>) => void,
    reject: (error: unknown) => void,
  ) {
    this.session = session
    this.request = request
    this.claim = asked.claim
    this.#known = asked.known
    this.#isNew = asked.isNew
    this.heartbeat = asked.sent
    this.call = call
    this.resolve = resolve as (result: Result<Fencing>) => void
    this.reject = reject
  }

  answered(answer: ScriptAnswer): void {
    const { session, request, call } = this
    const { room } = session
    this.#known.isAsked = false
    if (answer.kind === 'granted') {
      const { grantId, leftMs, data } = answer
      const since = leftMs === undefined ? this.heartbeat : session.sinceOf(this.heartbeat, leftMs)
      room.grant(this, { grantId, since, data })
    } else if (answer.kind === 'waiting') {
      if (!room.enter(this)) return
      call.onQueued?.()
      // Asked for twice, and handed over to the other meanwhile: there will be no second push.
      room.expect(this, this.#known.isWaiting ? answer.outlook : LOOK_NOW)
    } else {
      session.forget(request.attempt)
      if (answer.kind === 'queue-full') room.settle(this, { kind: 'queue-full' })
      else room.fail(this, refusedAcquire(request, answer))
    }
  }

  failed(error: unknown): void {
    this.#known.isAsked = false
    // A request that certainly was not applied need not be abandoned, and leaves no mark.
    if (this.#isNew && outcomeOf(error) === 'not-applied') this.session.forget(this.request.attempt)
    this.session.room.fail(this, error)
  }

  granted(granted: RecordedGrant): EnqueueResult<F> {
    this.#known.isWaiting = false
    return this.session.handOut(this.request, granted)
  }
}
