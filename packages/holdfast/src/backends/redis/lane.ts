/**
 * Where requests stand until a call takes them along, as many as there are: core's coalescer, with two differences that
 * matter at tens of thousands a second. Up to two calls are in flight, so that the server works on one while this
 * process reads the answers of the other; and whoever asks is told directly, without a promise in between.
 *
 *   waiting ──room for a call──▶ in flight ──answer──▶ settled
 *   waiting ──cancelled──▶ settled: it is never sent
 *   in flight ──cancelled──▶ settled: it may land all the same
 *
 * A call of which every request was cancelled stops counting as in flight: its answer may never come (T76). While the client
 * is not connected it goes on counting, because it is in the client's queue, which would otherwise grow without limit.
 *
 * A single request never waits for company: when nothing is in flight, a call leaves at the end of the microtask.
 */

import { afterThisTurn, type Clock, type Timer } from '../../base/clock.ts'
import { BackendUnavailableError, type CallOutcome } from '../../base/errors.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Call } from '../../spi.ts'
import type { Answer } from './answers.ts'
import type { Letter } from './scripts/letters.ts'
import { SLOT_IS_MOVING } from './scripts/prelude.ts'

export interface Request {
  readonly key: string
  readonly letter: Letter
  /** The attempt and its session. */
  readonly who: string
  /** What the letter needs besides. */
  readonly args: readonly string[]
}

/** Told once what became of its request. */
export interface Asker {
  answered(answer: Answer): void
  failed(error: unknown): void
}

class Entry {
  readonly request: Request
  readonly call: Call
  readonly asker: Asker
  isSent = false
  isSettled = false
  stopListening: (() => void) | undefined

  constructor(request: Request, call: Call, asker: Asker) {
    this.request = request
    this.call = call
    this.asker = asker
  }

  listen(): void {
    if (this.isSettled || this.stopListening !== undefined) return
    this.stopListening = this.call.onCancel(() =>
      this.fail(cancelledCall('redis', this.call.signal, this.isSent ? 'unknown' : 'not-applied')),
    )
  }

  answer(answer: Answer): void {
    if (answer.kind === 'failed')
      this.fail(
        new BackendUnavailableError(
          'redis',
          answer.message.replace(/\.$/, ''),
          outcomeOfRefusal(answer.message),
        ),
      )
    else if (this.#settle()) this.asker.answered(answer)
  }

  fail(error: unknown): void {
    if (this.#settle()) this.asker.failed(error)
  }

  #settle(): boolean {
    if (this.isSettled) return false
    this.isSettled = true
    this.stopListening?.()
    return true
  }
}

/** These are said only where nothing has been written yet. */
function outcomeOfRefusal(message: string): CallOutcome {
  return message.includes('OOM command not allowed') || message === SLOT_IS_MOVING ? 'not-applied' : 'unknown'
}

export interface LaneOptions {
  readonly clock: Clock
  /** Two calls of one turn of the event loop would leave, and be answered, as one. */
  readonly writesOncePerTurn: boolean
  /** The client writes commands to the socket now, instead of queueing them. */
  readonly isConnected: () => boolean
  readonly send: (requests: readonly Request[]) => Promise<readonly Answer[]>
}

const MOST_AT_ONCE = 256
const MOST_IN_FLIGHT = 2
/** Fewer than these wait for the call that is in flight: two small calls cost more than one. */
const WORTH_A_SECOND_CALL = 16
/** Until then a call is likely to be answered, and nobody needs to listen for its being cancelled. */
const USUAL_ANSWER_MS = 20

/** A microtask without what Node's queueMicrotask adds to each. */
const soon = Promise.resolve()

export class Lane {
  readonly #options: LaneOptions
  #waiting: Entry[] = []
  /** At most two; a Set would keep those that came and went alive for long. */
  #inFlight: (readonly Entry[])[] = []
  #isGathering = false
  #isClosed = false
  /** The calls that were in flight at the last sweep: those that still are take longer than usual. */
  #slow: readonly (readonly Entry[])[] = []
  #sweep: Timer | undefined

  constructor(options: LaneOptions) {
    this.#options = options
  }

  readonly #leaveTogether = (): void => {
    this.#isGathering = false
    this.#leaveIfRoom()
  }

  add(request: Request, call: Call, asker: Asker): void {
    if (this.#isClosed) {
      asker.failed(new BackendUnavailableError('redis', 'it was closed', 'not-applied'))
      return
    }
    if (call.cancelled) {
      asker.failed(cancelledCall('redis', call.signal, 'not-applied'))
      return
    }
    this.#waiting.push(new Entry(request, call, asker))
    if (this.#isGathering || !this.#hasRoom()) return
    this.#isGathering = true
    soon.then(this.#leaveTogether)
  }

  /** Nobody is left waiting: answers may not come any more. */
  close(): void {
    this.#isClosed = true
    this.#sweep?.cancel()
    const closed = (outcome: CallOutcome) => new BackendUnavailableError('redis', 'it was closed', outcome)
    for (const entry of this.#waiting.splice(0)) entry.fail(closed('not-applied'))
    for (const batch of this.#inFlight) for (const entry of batch) entry.fail(closed('unknown'))
  }

  #hasRoom(): boolean {
    if (this.#inFlight.length === 0) return true
    return this.#inFlight.length < MOST_IN_FLIGHT && this.#waiting.length >= WORTH_A_SECOND_CALL
  }

  #leaveIfRoom(): void {
    while (this.#waiting.length > 0 && this.#hasRoom()) {
      const isFirstHalf = this.#share() < this.#waiting.length
      this.#leave()
      if (!isFirstHalf || !this.#options.writesOncePerTurn) continue
      this.#isGathering = true
      afterThisTurn(this.#leaveTogether)
      return
    }
  }

  /**
   * How many go along. Many who come at once leave in two halves, and from then on the halves take turns: one is
   * answered while the server works on the other. All in one call, server and client would wait for each other.
   */
  #share(): number {
    const { length } = this.#waiting
    const isWorthTwo = this.#inFlight.length === 0 && length >= 2 * WORTH_A_SECOND_CALL
    return Math.min(MOST_AT_ONCE, isWorthTwo ? Math.ceil(length / 2) : length)
  }

  #leave(): void {
    const leaving = this.#waiting.splice(0, this.#share())
    const batch: Entry[] = []
    const requests: Request[] = []
    for (const entry of leaving) {
      if (entry.isSettled) continue
      entry.isSent = true
      batch.push(entry)
      requests.push(entry.request)
    }
    if (batch.length === 0) return
    this.#inFlight.push(batch)
    this.#sweep ??= this.#options.clock.setTimer(USUAL_ANSWER_MS, () => this.#listenForTheSlow())
    this.#options.send(requests).then(
      (answers) => {
        this.#over(batch)
        for (let index = 0; index < batch.length; index++) batch[index]?.answer(answers[index] as Answer)
        this.#leaveIfRoom()
      },
      (error: unknown) => {
        this.#over(batch)
        for (const entry of batch) entry.fail(error)
        this.#leaveIfRoom()
      },
    )
  }

  #over(batch: readonly Entry[]): void {
    this.#inFlight = this.#inFlight.filter((each) => each !== batch)
  }

  /** Listening costs more than most calls last, so it begins when an answer takes longer than usual. */
  #listenForTheSlow(): void {
    this.#sweep = undefined
    const isSlow = this.#slow.some((batch) => this.#inFlight.includes(batch))
    if (isSlow) {
      for (const batch of this.#slow)
        if (this.#inFlight.includes(batch)) for (const entry of batch) entry.listen()
      for (const entry of this.#waiting) entry.listen()
    }
    if (this.#options.isConnected())
      this.#inFlight = this.#inFlight.filter((batch) => batch.some(({ isSettled }) => !isSettled))
    this.#leaveIfRoom()
    this.#slow = [...this.#inFlight]
    if (this.#inFlight.length > 0)
      this.#sweep ??= this.#options.clock.setTimer(USUAL_ANSWER_MS, () => this.#listenForTheSlow())
  }
}
