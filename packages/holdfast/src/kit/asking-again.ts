/**
 * Asks a request again that may be applied twice, for as long as the call lasts. A cluster may drop what it has proposed when its
 * leader dies, and say so late or never: etcd after its own time-out of 7 s (T98, dropped proposals). So the client does not wait for that.
 *
 *   copy sent ──answered──▶ answered: the first answer counts, of whichever copy
 *   copy sent ──silent for so long as the sender says──▶ next copy, while this one is still in flight
 *   copy sent ──outcome unknown; or there is no leader, and a copy before it is unknown──▶ pause ──▶ next copy
 *   copy sent ──refused, and an election is about to begin──▶ pause ──▶ next copy, also after the first
 *   copy sent ──refused for another reason──▶ failed: unknown if another copy may have been applied, else not applied
 *
 * Any copy may land later than the answer, or not at all. Which requests may be asked again, and why that does no harm, is said by
 * the engine where it asks (ADR 0022).
 */
import { Cancellation } from '../base/cancellation.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { BackendUnavailableError, type HoldfastError, isHoldfastError, withOutcome } from '../base/errors.ts'
import type { Call } from '../spi.ts'

/** While there is no leader, members refuse at once. */
const PAUSE_MS = 200

export interface AskingTerms<R> {
  readonly backend: string
  readonly clock: Clock
  /** Sends a copy. `onSilence`: nothing of an answer has come for a while: 1 s with etcd. */
  readonly send: (copy: Call, onSilence: () => void) => Promise<R>
  /** Before each copy but the first. */
  readonly onAgain: (() => void) | undefined
  /** The end of asking again: no new copies after it, on the monotonic clock. */
  readonly untilMs: number
  /** After the end of the client nothing is asked again. */
  readonly isOver: () => boolean
  readonly asTold: (error: unknown) => HoldfastError
  /** The copy was certainly not applied, and another member, or this one after an election, may accept it. */
  readonly isForAnotherMember: (error: unknown) => boolean
  /** The copy was certainly not applied: the member does not reach its leader, and the others are about to elect another one. */
  readonly isBeforeElection?: (error: unknown) => boolean
}

export function askAgain<R>(terms: AskingTerms<R>, call: Call): Promise<R> {
  return new Promise((resolve, reject) => new Asking(terms, call, resolve, reject).begin())
}

class Asking<R> {
  readonly #terms: AskingTerms<R>
  readonly #call: Call
  readonly #resolve: (answer: R) => void
  readonly #reject: (error: unknown) => void
  /** Cancels all copies: the call is, or one of them is answered. */
  readonly #copies = new Cancellation()
  #sent = 0
  #inFlight = 0
  /** A copy has failed, and may have been applied. */
  #isUnsure = false
  /** The failure of the copy before the pause. */
  #failure: HoldfastError | undefined
  #pause: Timer | undefined
  #untie = () => {}

  constructor(
    terms: AskingTerms<R>,
    call: Call,
    resolve: (answer: R) => void,
    reject: (error: unknown) => void,
  ) {
    this.#terms = terms
    this.#call = call
    this.#resolve = resolve
    this.#reject = reject
  }

  begin(): void {
    this.#untie = this.#call.onCancel(() => {
      this.#pause?.cancel()
      this.#copies.cancel(this.#call.signal.reason)
      if (this.#failure !== undefined && this.#inFlight === 0) this.#fail(this.#failure)
    })
    this.#send()
  }

  #send(): void {
    const number = ++this.#sent
    if (number > 1) this.#terms.onAgain?.()
    this.#inFlight++
    const onSilence = () => {
      if (number === this.#sent && this.#mayGoOn) this.#send()
    }
    this.#terms.send(this.#copies, onSilence).then(
      (answer) => this.#settle(() => this.#resolve(answer)),
      (error: unknown) => this.#failed(error, number),
    )
  }

  get #mayGoOn(): boolean {
    const { clock, untilMs, isOver } = this.#terms
    return !this.#copies.cancelled && !isOver() && clock.monotonicMs() < untilMs
  }

  #failed(error: unknown, number: number): void {
    this.#inFlight--
    const told = this.#terms.asTold(error)
    const isUnknown = isHoldfastError(told, 'BACKEND_UNAVAILABLE') && told.outcome === 'unknown'
    this.#isUnsure ||= isUnknown
    const { isForAnotherMember, isBeforeElection } = this.#terms
    const mayPass = isUnknown || (this.#sent > 1 && isForAnotherMember(error)) || isBeforeElection?.(error)
    if (!mayPass) this.#fail(told)
    else if (!this.#mayGoOn) {
      if (this.#inFlight === 0) this.#fail(told)
    } else if (number === this.#sent) {
      this.#failure = told
      this.#pause = this.#terms.clock.setTimer(PAUSE_MS, () => this.#send())
    }
  }

  #fail(failure: HoldfastError): void {
    const isUnsure = this.#isUnsure || this.#inFlight > 0
    this.#settle(() => this.#reject(isUnsure ? asUnknown(this.#terms.backend, failure) : failure))
  }

  #settle(settle: () => void): void {
    this.#untie()
    this.#pause?.cancel()
    settle()
    this.#copies.cancel(new Error('another copy was answered'))
  }
}

function asUnknown(backend: string, error: HoldfastError): HoldfastError {
  if (error instanceof BackendUnavailableError) return withOutcome(error, 'unknown')
  return new BackendUnavailableError(backend, error.message.replace(/\.$/, ''), 'unknown', { cause: error })
}
