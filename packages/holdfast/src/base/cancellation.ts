import { onAborted, unlessStopped } from './aborting.ts'
import { callSafely } from './call-safely.ts'
import { TransientMap } from './transient-map.ts'

/**
 * A reason to stop, raised at most once: what a deadline, a caller's signal, a closing locker and a lost position in
 * the queue have in common. Lighter than an AbortSignal, which is made only when a backend asks for it.
 */
export class Cancellation {
  #cancelled = false
  #reason: unknown
  /** Most have one callback at a time, and need no set for it. */
  #callback: (() => void) | undefined
  #others: TransientMap<() => void, true> | undefined
  #controller: AbortController | undefined

  get cancelled(): boolean {
    return this.#cancelled
  }

  get reason(): unknown {
    return this.#reason
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#cancelled) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }

  cancel(reason: unknown): void {
    if (this.#cancelled) return
    this.#cancelled = true
    this.#reason = reason
    this.#controller?.abort(reason)
    // A later callback that an earlier one takes back is not called any more.
    const first = this.#callback
    this.#callback = undefined
    if (first !== undefined) callSafely(first)
    for (const callback of this.#others?.keys() ?? []) callSafely(callback)
    this.#others = undefined
  }

  /**
   * Runs `callback` when cancelled (now, if it already is); the returned function takes it back. Several are run in no
   * particular order, each whatever the others do.
   */
  onCancel(callback: () => void): () => void {
    if (this.#cancelled) {
      callback()
      return () => {}
    }
    if (this.#callback === undefined) this.#callback = callback
    else {
      this.#others ??= new TransientMap()
      this.#others.set(callback, true)
    }
    return () => {
      if (this.#callback === callback) this.#callback = undefined
      else this.#others?.delete(callback)
    }
  }

  /** Cancels together with a caller's signal; the returned function unties the two. */
  follow(signal: AbortSignal | undefined): () => void {
    return onAborted(signal, ({ reason }) => this.cancel(reason))
  }
}

/** `promise`, unless the cancellation comes first: then its reason is thrown at once, and `promise` is on its own. */
export function unlessCancelled<T>(promise: Promise<T>, cancellation: Cancellation): Promise<T> {
  return unlessStopped(promise, (stop) => cancellation.onCancel(() => stop(cancellation.reason)))
}
