/**
 * Calls that nobody waits for any more. Core's own calls make an AbortSignal only when somebody asks for it, and asking
 * costs more than the rest of an uncontended request; so they are asked directly.
 */
import { Cancellation } from '../../core/cancellation.ts'
import type { Call } from '../../spi.ts'

export function isCalledOff(call: Call): boolean {
  return call instanceof Cancellation ? call.cancelled : call.signal.aborted
}

/** Runs `callback` when the call is called off (now, if it already is); the returned function takes it back. */
export function onCalledOff(call: Call, callback: () => void): () => void {
  if (call instanceof Cancellation) return call.onCancel(callback)
  const { signal } = call
  if (signal.aborted) {
    callback()
    return () => {}
  }
  signal.addEventListener('abort', callback, { once: true })
  return () => signal.removeEventListener('abort', callback)
}
