/**
 * Calls that nobody waits for any more. Core's own calls make an AbortSignal only when somebody asks for it, and asking
 * costs more than the rest of an uncontended request; so they are asked directly.
 */
import type { Call } from '../spi.ts'
import { Cancellation } from './cancellation.ts'

export function isCalledOff(call: Call): boolean {
  return call instanceof Cancellation ? call.cancelled : call.signal.aborted
}

/** Runs `callback` when the call is called off (now, if it already is); the returned function takes it back. */
export function onCalledOff(call: Call, callback: () => void): () => void {
  return call instanceof Cancellation ? call.onCancel(callback) : onAborted(call.signal, callback)
}

/** The same of a signal. */
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
