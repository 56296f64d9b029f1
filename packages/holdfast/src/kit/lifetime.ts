/** From the opening of a backend to its end: what every call checks first, and what ends with the backend. */

import { unlessStopped } from '../base/aborting.ts'
import { Cancellation } from '../base/cancellation.ts'
import type { Clock } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import { ClosedError } from '../base/errors.ts'
import { withLimit } from '../base/within.ts'
import type { Call } from '../spi.ts'
import { cancelledCall, throwIfCancelled } from './backend-kit.ts'

export class Lifetime {
  readonly backend: string
  readonly #clock: Clock
  readonly #end = new Cancellation()

  constructor(backend: string, clock: Clock) {
    this.backend = backend
    this.#clock = clock
  }

  get isOver(): boolean {
    return this.#end.cancelled
  }

  /** Every call starts here: a call that was cancelled is not made, and after the end nothing is. */
  begin(call: Call): void {
    if (this.#end.cancelled) throw this.#end.reason
    throwIfCancelled(this.backend, call)
  }

  /** For a call that waits: `cut` is called when it is cancelled, or the backend ends. */
  onCut(call: Call, cut: (error: unknown) => void): () => void {
    const untieCall = call.onCancel(() => cut(cancelledCall(this.backend, call.signal, 'unknown')))
    const untieEnd = this.#end.onCancel(() => cut(this.#end.reason))
    return () => {
      untieCall()
      untieEnd()
    }
  }

  /** Settles as `work` does, or when the call is cancelled or the backend ends. `work` goes on then. */
  untilCut<T>(work: Promise<T>, call: Call): Promise<T> {
    return unlessStopped(work, (stop) => this.onCut(call, stop))
  }

  /**
   * Work that no caller waits for. It has a limit of its own, because on a connection that hangs it would hang too, and it
   * ends with the backend.
   */
  inBackground<T>(work: (call: Call) => Promise<T>, limitMs: number = defaults.callTimeoutMs): Promise<T> {
    const tie = (call: Cancellation) => this.#end.onCancel(() => call.cancel(this.#end.reason))
    return withLimit(this.#clock, limitMs, work, { tie })
  }

  /** Calls in `inBackground` and `onCut` end now. The error with which all calls are rejected from now on. */
  end(): ClosedError {
    this.#end.cancel(new ClosedError(`The ${this.backend} backend`))
    return this.#end.reason as ClosedError
  }
}
