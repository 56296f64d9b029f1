/** What went wrong at PostgreSQL, and whether the statement may have taken effect all the same. */
import { BackendUnavailableError, type CallOutcome, HoldfastError } from '../../core/errors.ts'
import type { Notice } from './types.ts'

/** A server's own code has five characters; those of sockets and clients look different. */
const SQLSTATE = /^[0-9A-Z]{5}$/

export function sqlStateOf(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' && SQLSTATE.test(code) ? code : null
}

/**
 * `not-applied` only when it is certain: the server said ERROR, and so has undone the statement. What ends the
 * connection (FATAL, PANIC, a reset) may come after the commit and before its answer. 40003 is the server's own "I do
 * not know".
 */
export function outcomeOf(error: unknown): CallOutcome {
  const state = sqlStateOf(error)
  if (state === null) return isRefusedConnection(error) ? 'not-applied' : 'unknown'
  const severity = (error as { severity?: unknown }).severity
  return severity === 'ERROR' && state !== '40003' ? 'not-applied' : 'unknown'
}

/** Codes that occur only while connecting, or before anything is sent. */
const REFUSED = [
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'CONNECT_TIMEOUT',
  'CONNECTION_ENDED',
]

function isRefusedConnection(error: unknown): boolean {
  const { code, errors } = (error ?? {}) as { code?: unknown; errors?: unknown }
  // Node tries all addresses of a host, and reports all of the failures.
  if (Array.isArray(errors) && errors.length > 0) return errors.every(isRefusedConnection)
  return typeof code === 'string' && REFUSED.includes(code)
}

/** As a typed error; one of our own stays what it is. */
export function asUnavailable(
  backend: string,
  what: string,
  error: unknown,
  outcome = outcomeOf(error),
): HoldfastError {
  if (error instanceof HoldfastError) return error
  const state = sqlStateOf(error)
  const detail = error instanceof Error && error.message !== '' ? `: ${error.message}` : ''
  return new BackendUnavailableError(
    backend,
    `${what}${detail}${state === null ? '' : ` (SQLSTATE ${state})`}`,
    outcome,
    { cause: error },
  )
}

/**
 * Somebody cancelled the wait for the synchronous standby: the commit is done here, and may be gone after a fail-over.
 * The statement succeeds all the same, with this warning.
 */
export function isStandbyWarning({ routine, message }: Notice): boolean {
  return routine === 'SyncRepWaitForLSN' || /wait for synchronous replication/i.test(message ?? '')
}
