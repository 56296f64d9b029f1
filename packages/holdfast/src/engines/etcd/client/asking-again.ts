/**
 * Asks a request again that may be applied twice, for as long as the call lasts. etcd drops what it has proposed when its leader dies,
 * and says so only after its own time-out of 7 s (T98). So the client does not wait for that.
 *
 *   copy sent ──answered──▶ answered: the first answer counts, of whichever copy
 *   copy sent ──silent for AGAIN_AFTER_MS──▶ next copy, while this one is still in flight
 *   copy sent ──outcome unknown; or there is no leader, and a copy before it is unknown──▶ pause ──▶ next copy
 *   copy sent ──refused for another reason──▶ failed: unknown if another copy may have been applied, else not applied
 *
 * Any copy may land later than the answer, or not at all. What may be asked again, and why that does no harm, is said where it is
 * asked: `Statement` in locks/connection.ts, and `repeatable` in client.ts.
 */
import { Cancellation } from '../../../base/cancellation.ts'
import type { Clock, Timer } from '../../../base/clock.ts'
import {
  BackendUnavailableError,
  type HoldfastError,
  isHoldfastError,
  withOutcome,
} from '../../../base/errors.ts'
import type { Call } from '../../../spi.ts'
import { isForAnotherMember } from './failures.ts'

/** An election takes one to two seconds with etcd's defaults. */
export const AGAIN_AFTER_MS = 1_500
/** While there is no leader, members refuse at once. */
const PAUSE_MS = 200

export interface AskingTerms<R> {
  readonly clock: Clock
  /** Sends a copy. `onSilence`: it has had no answer for AGAIN_AFTER_MS. */
  readonly send: (copy: Call, onSilence: () => void) => Promise<R>
  /** Before each copy but the first. */
  readonly onAgain: (() => void) | undefined
  /** Until when there are new copies, on the monotonic clock. */
  readonly untilMs: number
  /** After the end of the client nothing is asked again. */
  readonly isOver: () => boolean
  readonly asTold: (error: unknown) => HoldfastError
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
  /** Of the copy after which there is a pause. */
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
    const mayPass = isUnknown || (this.#sent > 1 && isForAnotherMember(error))
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
    this.#settle(() => this.#reject(isUnsure ? asUnknown(failure) : failure))
  }

  #settle(settle: () => void): void {
    this.#untie()
    this.#pause?.cancel()
    settle()
    this.#copies.cancel(new Error('another copy was answered'))
  }
}

function asUnknown(error: HoldfastError): HoldfastError {
  if (error instanceof BackendUnavailableError) return withOutcome(error, 'unknown')
  return new BackendUnavailableError('etcd', error.message.replace(/\.$/, ''), 'unknown', { cause: error })
}
