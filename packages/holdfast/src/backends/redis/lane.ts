/**
 * Where requests stand until a call takes them along, as many as there are: core's coalescer, with two differences that
 * matter at tens of thousands a second. Up to two calls are under way, so that the server works on one while this
 * process reads the answers of the other; and a request is one promise, which also knows how to be called off.
 *
 *   waiting ──room for a call──▶ under way ──answer──▶ settled
 *   waiting | under way ──signal aborts──▶ settled: it may land all the same
 *
 * A single request never waits for company: when nothing is under way, a call leaves at the end of the microtask.
 */
import { calledOff } from '../../core/backend-kit.ts'
import { Cancellation } from '../../core/cancellation.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { Call } from '../../spi.ts'
import type { Answer } from './answers.ts'

export interface Request {
  readonly key: string
  /** The letter and its arguments. */
  readonly args: readonly string[]
}

class Entry {
  readonly request: Request
  readonly call: Call
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
  isSettled = false
  stopListening: (() => void) | undefined

  constructor(
    request: Request,
    call: Call,
    resolve: (answer: Answer) => void,
    reject: (error: unknown) => void,
  ) {
    this.request = request
    this.call = call
    this.resolve = resolve
    this.reject = reject
  }
}

export interface LaneOptions {
  readonly clock: Clock
  readonly send: (requests: readonly Request[]) => Promise<readonly Answer[]>
}

const MOST_AT_ONCE = 256
const MOST_UNDER_WAY = 2
/** Fewer than these wait for the call that is under way: two small calls cost more than one. */
const WORTH_A_SECOND_CALL = 16
/** Until then a call is likely to be answered, and nobody needs to listen for its being called off. */
const USUAL_ANSWER_MS = 20

export class Lane {
  readonly #options: LaneOptions
  #waiting: Entry[] = []
  #underWay = 0
  #isGathering = false
  /** Those that nobody listens for yet. */
  #young: Entry[] = []
  #sweep: Timer | undefined

  constructor(options: LaneOptions) {
    this.#options = options
  }

  add(request: Request, call: Call): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      if (isCalledOff(call)) {
        reject(calledOff('redis', call.signal, 'not-applied'))
        return
      }
      this.#waiting.push(new Entry(request, call, resolve, reject))
      if (this.#isGathering || !this.#hasRoom()) return
      this.#isGathering = true
      queueMicrotask(() => {
        this.#isGathering = false
        while (this.#waiting.length > 0 && this.#hasRoom()) this.#leave()
      })
    })
  }

  close(): void {
    this.#sweep?.cancel()
  }

  #hasRoom(): boolean {
    if (this.#underWay === 0) return true
    return this.#underWay < MOST_UNDER_WAY && this.#waiting.length >= WORTH_A_SECOND_CALL
  }

  #leave(): void {
    const batch = this.#waiting.length <= MOST_AT_ONCE ? this.#waiting : this.#waiting.splice(0, MOST_AT_ONCE)
    if (batch === this.#waiting) this.#waiting = []
    this.#underWay++
    for (const entry of batch) this.#young.push(entry)
    this.#sweep ??= this.#options.clock.setTimer(USUAL_ANSWER_MS, () => this.#listenForTheOld())
    this.#options
      .send(batch.map((entry) => entry.request))
      .then(
        (answers) => {
          for (const [index, entry] of batch.entries()) {
            settle(entry)
            entry.resolve(answers[index] as Answer)
          }
        },
        (error: unknown) => {
          for (const entry of batch) {
            settle(entry)
            entry.reject(error)
          }
        },
      )
      .finally(() => {
        this.#underWay--
        while (this.#waiting.length > 0 && this.#hasRoom()) this.#leave()
      })
  }

  /** Listening costs more than most calls last, so it begins when an answer takes longer than usual. */
  #listenForTheOld(): void {
    this.#sweep = undefined
    for (const entry of this.#young) {
      if (entry.isSettled) continue
      const { signal } = entry.call
      const onAbort = () => entry.reject(calledOff('redis', signal, 'unknown'))
      if (signal.aborted) onAbort()
      signal.addEventListener('abort', onAbort, { once: true })
      entry.stopListening = () => signal.removeEventListener('abort', onAbort)
    }
    this.#young = []
  }
}

function settle(entry: Entry): void {
  entry.isSettled = true
  entry.stopListening?.()
}

/** Core's calls make a signal only when somebody asks for it, and asking is not for free. */
function isCalledOff(call: Call): boolean {
  return call instanceof Cancellation ? call.cancelled : call.signal.aborted
}
