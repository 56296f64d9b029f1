/** Calls that nobody waits for any more. */
import { BackendUnavailableError, type CallOutcome } from '../../base/errors.ts'

export function cancelledCall(
  backend: string,
  outcome: CallOutcome,
  signal: AbortSignal,
): BackendUnavailableError {
  const when = outcome === 'unknown' ? 'after' : 'before'
  return new BackendUnavailableError(backend, `cancelled ${when} it was sent`, outcome, {
    cause: signal.reason,
  })
}

/** Settles as `work` does, or when the signal aborts, with what `onAbort` returns. `work` is left to itself then. */
export function orAborted<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
  onAbort: () => Error,
): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(onAbort())
    if (signal.aborted) {
      work.catch(() => {})
      return abort()
    }
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
