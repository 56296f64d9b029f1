/** Classifies failures of PostgreSQL, and says whether the statement may have taken effect all the same. */
import {
  BackendUnavailableError,
  type CallOutcome,
  HoldfastError,
  UnsupportedError,
} from '../../../base/errors.ts'
import type { Notice } from './types.ts'

/** A server's own code has five characters; those of sockets and clients look different. */
const SQLSTATE = /^[0-9A-Z]{5}$/

export function sqlStateOf(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' && SQLSTATE.test(code) ? code : null
}

/**
 * `not-applied` only when it is certain: the server said ERROR, and so has undone the statement. What ends the
 * connection (FATAL, PANIC, a reset) may come after the commit and before its answer, unless it is about the connection
 * that could not be made. 40003 is the server's own "I do not know".
 */
export function outcomeOf(error: unknown): CallOutcome {
  const state = sqlStateOf(error)
  if (state === null) return isRefusedConnection(error) ? 'not-applied' : 'unknown'
  if (NOT_LET_IN.test(state)) return 'not-applied'
  const severity = (error as { severity?: unknown }).severity
  return severity === 'ERROR' && state !== '40003' ? 'not-applied' : 'unknown'
}

/** No such user, password or database; too many connections; the server is starting or stopping. */
const NOT_LET_IN = /^(28|3D|53300|57P03)/

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

/** Trying again does not help a user who has closed the client before the locker. */
function isOfClosedClient(error: unknown): boolean {
  if ((error as { code?: unknown } | null)?.code === 'CONNECTION_ENDED') return true
  return error instanceof Error && /^Cannot use a pool after calling end on the pool/.test(error.message)
}

/** `pg` finds out by itself that the server wants a password that it does not have, and says so in these words. */
function stateOfMissingPassword(error: unknown): string | null {
  return error instanceof Error && /^SASL: .*client password must be a/.test(error.message) ? '28P01' : null
}

/**
 * Advice for a mistake that stays until it is corrected; null if it is something else. What is there already
 * (duplicates, among them prepared statements behind a pooler) is no mistake of that kind: others came at the same time.
 */
export function remedyOf(state: string | null): string | null {
  if (state === null) return null
  if (state === '42501')
    return (
      'This user lacks a right: grant it USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables, and USAGE ' +
      'and SELECT on its sequences.'
    )
  if (state.startsWith('28'))
    return 'Correct the user or the password of the client, or let the user in (pg_hba.conf).'
  if (state.startsWith('3D')) return 'Create the database, or correct its name in the settings of the client.'
  if (state === '26000')
    return 'There is a pooler in transaction mode in between: create the client of postgres.js with `prepare: false`.'
  if (state !== '3F000' && (!state.startsWith('42') || DUPLICATES.includes(state))) return null
  return (
    'Check the names of the schema, the table and its columns. Tables of Holdfast that were removed or changed are made ' +
    'again by a new start, or by the SQL that it prints.'
  )
}

const DUPLICATES = ['42701', '42710', '42712', '42723', '42P03', '42P04', '42P05', '42P06', '42P07']

/**
 * As a typed error; one of our own stays what it is. `UNSUPPORTED` if trying again cannot help, otherwise
 * `BACKEND_UNAVAILABLE` with an honest outcome.
 */
export function asUnavailable(
  backend: string,
  what: string,
  error: unknown,
  outcome = outcomeOf(error),
): HoldfastError {
  if (error instanceof HoldfastError) return error
  if (isOfClosedClient(error))
    return new UnsupportedError(`${backend}: the client has been closed. Close it after Holdfast.`, {
      cause: error,
    })
  const state = sqlStateOf(error)
  const detail = error instanceof Error && error.message !== '' ? `: ${error.message}` : ''
  const message = `${what}${detail}${state === null ? '' : ` (SQLSTATE ${state})`}`
  const remedy = outcome === 'not-applied' ? remedyOf(state ?? stateOfMissingPassword(error)) : null
  if (remedy !== null) return new UnsupportedError(`${backend}: ${message}. ${remedy}`, { cause: error })
  const advice = isUnwelcomed(error) ? SPEAKS_OTHERWISE : isRefusedConnection(error) ? CHECK_ADDRESS : ''
  return new BackendUnavailableError(backend, `${message}${advice}`, outcome, { cause: error })
}

/** A time-out while connecting, in the words of `pg` and the code of postgres.js. A server of another kind takes the connection, and waits for more. */
function isUnwelcomed(error: unknown): boolean {
  if ((error as { code?: unknown } | null)?.code === 'CONNECT_TIMEOUT') return true
  return error instanceof Error && /due to connection timeout|^timeout expired/.test(error.message)
}

const CHECK_ADDRESS = '. Check that PostgreSQL runs, and the host and port of the client'
export const SPEAKS_OTHERWISE = `${CHECK_ADDRESS}: what listens there may be another kind of server`

/**
 * The wait for the synchronous standby was cancelled: the commit is done here, and may be gone after a fail-over.
 * The statement succeeds all the same, with this warning.
 */
export function isStandbyWarning({ routine, message }: Notice): boolean {
  return routine === 'SyncRepWaitForLSN' || /wait for synchronous replication/i.test(message ?? '')
}

/** The commit is done on the primary only: what it was may be gone after a fail-over. */
export function standbySkipped(backend: string): BackendUnavailableError {
  return new BackendUnavailableError(backend, 'the wait for the synchronous standby was cancelled', 'unknown')
}
