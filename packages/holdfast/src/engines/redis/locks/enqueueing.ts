/**
 * One `enqueue`, from its request to its grant. `kit/waiting-room.ts` has the states.
 *
 * Failures between two steps: the push overtakes the answer that says that there is a wait (the room knows the waiter
 * before its request leaves); the answer is lost (the lane says so, and core abandons the attempt).
 */
import type { Instant } from '../../../base/clock.ts'
import { outcomeOf } from '../../../base/errors.ts'
import type { Asker } from '../../../kit/lane.ts'
import type { AcquireRequest, Attempt, EnqueueResult, Fencing } from '../../../spi.ts'
import { LOOK_NOW, type ScriptAnswer } from './answers.ts'
import { refusedAcquire } from './failures.ts'
import type { ClaimKey } from './requests.ts'
import type { RecordedGrant, RedisWaiter, RedisWaitingRoom } from './waiting-room.ts'

/** An attempt that a session has asked for and does not know to be over. */
export interface KnownAttempt {
  readonly name: string
  /** The attempt has, or may have, a position in the queue. */
  isWaiting: boolean
}

/** The part of the session that an enqueue needs. */
export interface EnqueueHost<F extends Fencing> {
  readonly room: RedisWaitingRoom
  handOut(request: AcquireRequest, granted: RecordedGrant): EnqueueResult<F>
  sinceOf(sent: Instant, leftMs: number): Instant
  forget(attempt: string): void
}

/** A waiter that is told the answer to its own request. `isNew`: the attempt has not been asked for before. */
export function enqueueing<F extends Fencing>(
  session: EnqueueHost<F>,
  request: AcquireRequest,
  asked: {
    readonly claim: ClaimKey
    readonly known: KnownAttempt
    readonly isNew: boolean
    readonly sent: Instant
  },
  attempt: Attempt<F>,
): RedisWaiter & Asker<ScriptAnswer> {
  const { room } = session
  const { claim, known, isNew, sent } = asked
  const waiter: RedisWaiter & Asker<ScriptAnswer> = {
    request,
    claim,
    session,
    attempt: attempt as Attempt,
    heartbeat: sent,
    answered(answer) {
      if (answer.kind === 'granted') {
        const { grantId, leftMs, data } = answer
        const since = leftMs === undefined ? waiter.heartbeat : session.sinceOf(waiter.heartbeat, leftMs)
        room.grant(waiter, { grantId, since, data })
      } else if (answer.kind === 'waiting') {
        if (!room.enter(waiter)) return
        attempt.queued()
        // Asked for twice, and handed over to the other meanwhile: there will be no second push.
        room.expect(waiter, known.isWaiting ? answer.outlook : LOOK_NOW)
      } else {
        session.forget(request.attempt)
        if (answer.kind === 'queue-full') room.settle(waiter, { kind: 'queue-full' })
        else room.fail(waiter, refusedAcquire(request, answer))
      }
    },
    failed(error) {
      // A request that certainly was not applied need not be abandoned, and leaves no mark.
      if (isNew && outcomeOf(error) === 'not-applied') session.forget(request.attempt)
      room.fail(waiter, error)
    },
    granted(granted) {
      known.isWaiting = false
      return session.handOut(request, granted)
    },
  }
  return waiter
}
