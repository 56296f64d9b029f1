/**
 * One enqueue, from its request to its turn.
 *
 *   asked ──granted──▶ over                                        [answered]   nobody else hears of it
 *   asked ──waiting──▶ in line ──push | keep-alive | look──▶ over  [granted]
 *   asked ──queue full──▶ over
 *   asked | in line ──cancelled | refused | session gone──▶ over
 *
 * What may go wrong between two steps: the push overtakes the answer that says that there is a wait (the room knows who
 * has asked, and who is over stays over); the answer is lost (the lane says so, and core abandons the attempt).
 */

import type { Instant } from '../../base/clock.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Asker } from '../../kit/lane.ts'
import type { AcquireRequest, Call, EnqueueResult, Fencing } from '../../spi.ts'
import type { Answer, Told } from './answers.ts'
import type { Known } from './known-claims.ts'
import type { Waiter, WaitingRoom } from './waiting-room.ts'

type Result<F extends Fencing> = EnqueueResult<F> | Promise<EnqueueResult<F>>

const LOOK_NOW: Told = { isFirst: true, dueMs: 0, isForeign: false }

/** What a place needs of its session. */
export interface PlaceHost<F extends Fencing> {
  readonly room: WaitingRoom
  handedOver(place: Place<F>, grantId: string, since: Instant, data: string | undefined): Result<F>
  queueFull(place: Place<F>): Result<F>
  refused(place: Place<F>, answer: Answer): Error
  /** The request has failed; it may be certain that it came to nothing. */
  notAsked(place: Place<F>, error: unknown): void
  sinceOf(sent: Instant, leftMs: number | undefined): Instant
}

export class Place<F extends Fencing> implements Waiter, Asker<Answer> {
  readonly request: AcquireRequest
  readonly key: string
  readonly who: string
  readonly session: PlaceHost<F>
  readonly known: Known
  /** Nobody has asked for this attempt before. */
  readonly isNew: boolean
  readonly call: Call
  heartbeat: Instant
  readonly #resolve: (result: Result<F>) => void
  readonly #reject: (error: unknown) => void
  #stopListening: (() => void) | undefined

  constructor(
    session: PlaceHost<F>,
    request: AcquireRequest,
    { key, who, known, isNew }: Pick<Place<F>, 'key' | 'who' | 'known' | 'isNew'>,
    sent: Instant,
    call: Call,
    resolve: (result: Result<F>) => void,
    reject: (error: unknown) => void,
  ) {
    this.session = session
    this.request = request
    this.key = key
    this.who = who
    this.known = known
    this.isNew = isNew
    this.heartbeat = sent
    this.call = call
    this.#resolve = resolve
    this.#reject = reject
  }

  get attempt(): string {
    return this.request.attempt
  }

  answered(answer: Answer): void {
    const { session, known } = this
    const { room } = session
    known.isAsked = false
    if (answer.kind === 'granted') {
      room.granted(this, answer.grantId, session.sinceOf(this.heartbeat, answer.leftMs), answer.data)
    } else if (answer.kind === 'waiting') {
      if (!room.enter(this)) return
      this.#stopListening = this.call.onCancel(() => this.#cancelledCall())
      this.call.onQueued?.()
      // Asked for twice, and handed over to the other meanwhile: nobody will be told again.
      room.told(this, known.isWaiting ? answer.told : LOOK_NOW)
    } else if (room.remove(this)) {
      if (answer.kind === 'queue-full') this.#resolve(session.queueFull(this))
      else this.reject(session.refused(this, answer))
    }
  }

  failed(error: unknown): void {
    this.known.isAsked = false
    this.session.notAsked(this, error)
    if (this.session.room.remove(this)) this.reject(error)
  }

  granted(grantId: string, since: Instant, data: string | undefined): void {
    this.#stopListening?.()
    this.#resolve(this.session.handedOver(this, grantId, since, data))
  }

  sessionGone(): void {
    this.#stopListening?.()
    this.#resolve({ kind: 'session-gone' })
  }

  reject(error: unknown): void {
    this.#stopListening?.()
    this.#reject(error)
  }

  #cancelledCall(): void {
    if (this.session.room.remove(this)) this.reject(cancelledCall('redis', this.call.signal, 'unknown'))
  }
}
