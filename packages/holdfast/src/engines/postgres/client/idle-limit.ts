/**
 * A transaction that its client leaves idle, because the client is frozen or its network is gone, keeps its locks until
 * the server ends the session. Without a limit that is never (T86, frozen transactions). So every transaction of ours has one.
 */
import { BackendUnavailableError } from '../../../base/errors.ts'
import { sqlStateOf } from './failures.ts'

/** The server's code when it ends a session for it. */
const IDLE_IN_TRANSACTION = '25P03'

const SETTING = 'idle_in_transaction_session_timeout'
const MOST_MS = 2 ** 31 - 1

/** Ends with the transaction, and never raises a limit that the session has; 0 is none. */
export function limitIdleSql(maxIdleMs: number): string | null {
  if (maxIdleMs > MOST_MS) return null
  const ms = Math.max(1, Math.ceil(maxIdleMs))
  return (
    `SELECT set_config('${SETTING}', '${ms}', true) ` +
    `FROM (SELECT extract(epoch FROM current_setting('${SETTING}')::interval) * 1000 AS ms) AS own ` +
    `WHERE own.ms = 0 OR own.ms > ${ms}`
  )
}

export function isEndedAsIdle(error: unknown): boolean {
  return sqlStateOf(error) === IDLE_IN_TRANSACTION
}

/** The server ended it before a COMMIT arrived, so nothing was applied. */
export function endedAsIdle(backend: string, maxIdleMs: number, cause: unknown): BackendUnavailableError {
  const limit =
    limitIdleSql(maxIdleMs) === null
      ? 'The limit is the session’s own'
      : `Holdfast sets ${maxIdleMs} ms (or the session’s lower limit)`
  const what =
    'the server ended the transaction because it was idle for longer than its limit: the process was paused, or waited ' +
    `for something else between two statements. ${limit}. Move the wait out of the transaction, or raise maxIdleMs`
  return new BackendUnavailableError(backend, what, 'not-applied', { cause })
}
