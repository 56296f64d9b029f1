/** AbortSignal helpers. */
import type { Call } from '../spi.ts'

/** Runs `callback` when the signal aborts (now, if it already has); the returned function takes it back. */
export function onAborted(signal: AbortSignal, callback: () => void): () => void {
  if (signal.aborted) {
    callback()
    return () => {}
  }
  signal.addEventListener('abort', callback, { once: true })
  return () => signal.removeEventListener('abort', callback)
}

/** Settles as `work` does, or as soon as the signal aborts, with what `errorFor` returns. `work` is left to itself then. */
export function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
  errorFor: () => unknown,
): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const stopListening = onAborted(signal, () => reject(errorFor()))
    work.then(resolve, reject).finally(stopListening)
  })
}

class SignalCall implements Call {
  readonly signal: AbortSignal

  constructor(signal: AbortSignal) {
    this.signal = signal
  }

  get cancelled(): boolean {
    return this.signal.aborted
  }

  onCancel(callback: () => void): () => void {
    return onAborted(this.signal, callback)
  }
}

/** A call that is cancelled by a signal, or never, with further fields: `callWith(signal, { onQueued })`. */
export function callWith<T extends object>(signal?: AbortSignal, also?: T): Call & T {
  return Object.assign(new SignalCall(signal ?? new AbortController().signal), also) as Call & T
}
