/** Helpers to follow an AbortSignal, for every layer: one set, with one order of arguments. */
import type { Call } from '../spi.ts'
import { BackendUnavailableError, type CallOutcome } from './errors.ts'

/** Runs `callback` when the signal, if there is one, aborts (now, if it already has); the returned function takes it back. */
export function onAborted(
  signal: AbortSignal | undefined,
  callback: (signal: AbortSignal) => void,
): () => void {
  if (signal === undefined) return () => {}
  if (signal.aborted) {
    callback(signal)
    return () => {}
  }
  const listener = () => callback(signal)
  signal.addEventListener('abort', listener, { once: true })
  return () => signal.removeEventListener('abort', listener)
}

/** Settles as `work` does, or with an error as soon as `onStop` calls back with one. `work` is left to itself then. */
export function unlessStopped<T>(
  work: Promise<T>,
  onStop: (stop: (error: unknown) => void) => () => void,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const untie = onStop(reject)
    work.then(
      (value) => {
        untie()
        resolve(value)
      },
      (error) => {
        untie()
        reject(error)
      },
    )
  })
}

/** Settles as `work` does, or as soon as the signal aborts, with what `errorFor` returns. `work` is left to itself then. */
export function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
  errorFor: () => unknown,
): Promise<T> {
  if (signal === undefined) return work
  return unlessStopped(work, (stop) => onAborted(signal, () => stop(errorFor())))
}

/** For a call whose signal aborts. What was already sent may still land, so its outcome is unknown. */
export function cancelledCall(
  backend: string,
  signal: AbortSignal,
  outcome: CallOutcome,
): BackendUnavailableError {
  const when = outcome === 'not-applied' ? ' before it was sent' : ''
  return new BackendUnavailableError(backend, `the call was cancelled${when}`, outcome, {
    cause: signal.reason,
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

/** A call that is cancelled by a signal, or never, with further fields: `callWith(signal, { queued: onQueued })`. */
export function callWith<T extends object>(signal?: AbortSignal, also?: T): Call & T {
  return Object.assign(new SignalCall(signal ?? new AbortController().signal), also) as Call & T
}
