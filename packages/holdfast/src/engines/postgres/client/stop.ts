/** The caller's side of a statement: a signal, or a call, which makes its signal only when it is asked for. */
import { cancelledCall, onAborted, unlessStopped } from '../../../base/aborting.ts'
import type { BackendUnavailableError, CallOutcome } from '../../../base/errors.ts'
import type { Call } from '../../../spi.ts'

export type Stop = AbortSignal | Call

export function isStopped(stop: Stop | undefined): boolean {
  return stop !== undefined && ('onCancel' in stop ? stop.cancelled : stop.aborted)
}

export function onStop(stop: Stop | undefined, callback: () => void): () => void {
  return stop !== undefined && 'onCancel' in stop ? stop.onCancel(callback) : onAborted(stop, callback)
}

/** Only if there is one, and it has stopped. */
export function stoppedCall(
  backend: string,
  stop: Stop | undefined,
  outcome: CallOutcome,
): BackendUnavailableError {
  const { signal } = stop !== undefined && 'onCancel' in stop ? stop : { signal: stop as AbortSignal }
  return cancelledCall(backend, signal, outcome)
}

/** Settles as `work` does, or as soon as the statement has no caller any more: then its outcome is unknown. */
export function unlessStop<T>(work: Promise<T>, backend: string, stop: Stop | undefined): Promise<T> {
  if (stop === undefined) return work
  return unlessStopped(work, (end) => onStop(stop, () => end(stoppedCall(backend, stop, 'unknown'))))
}
