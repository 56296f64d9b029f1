/**
 * First contact with a server: within a limit, because the user's client may have none and wait for ever for a server that takes the
 * connection and says nothing; and what both backends on PostgreSQL ask it then.
 */
import { type Cancellation, unlessCancelled } from '../../../base/cancellation.ts'
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError, UnsupportedError } from '../../../base/errors.ts'
import { withLimit } from '../../../base/within.ts'
import type { PostgresDatabase, SqlRunner } from './database.ts'
import { SPEAKS_OTHERWISE } from './failures.ts'
import { unseenWarnings } from './findings.ts'

export type Contact = SqlRunner & Pick<PostgresDatabase, 'seesWarnings'>

/** Nothing has been begun of any caller's request, so a failure is `not-applied`. */
export function withinContact<T>(
  database: PostgresDatabase,
  { backend, clock, limitMs }: { readonly backend: string; readonly clock: Clock; readonly limitMs: number },
  work: (contact: Contact) => Promise<T>,
): Promise<T> {
  const reason = () => {
    const { shortage } = database
    const what = `no answer within ${limitMs} ms${SPEAKS_OTHERWISE}${shortage === undefined ? '' : `. Or ${shortage}`}`
    return new BackendUnavailableError(backend, what, 'not-applied')
  }
  const limited = async (limit: Cancellation) => {
    const { signal } = limit
    const { seesWarnings } = database
    const query: SqlRunner['query'] = (text, parameters) => database.query(text, parameters, { signal })
    try {
      return await unlessCancelled(work({ query, seesWarnings }), limit)
    } catch (error) {
      throw limit.cancelled ? limit.reason : error
    }
  }
  return withLimit(clock, limitMs, limited, { reason, keepsProcessAlive: true })
}

export interface ServerNeeds {
  /** The backend's name, for errors. */
  readonly backend: string
  /** The oldest version that will do. */
  readonly version: number
  /** Advice for a server that is older. */
  readonly ifOlder: string
}

/** Rejects if the server cannot be used. Returns the isolation level that transactions of this client have by default. */
export async function checkServer(
  contact: Contact,
  { backend, version, ifOlder }: ServerNeeds,
): Promise<string> {
  const [row = []] = await contact.query(
    `SELECT current_setting('server_version_num')::text, pg_is_in_recovery()::text,
      current_setting('synchronous_standby_names'), current_setting($1::text)`,
    ['transaction_isolation'],
  )
  const [found, inRecovery, standbys, isolation] = row.map(String)
  if (Number(found) < version * 10_000)
    throw new UnsupportedError(`${backend}: the server is older than PostgreSQL ${version}. ${ifOlder}`)
  if (inRecovery === 'true')
    throw new BackendUnavailableError(
      backend,
      'the server is a standby, which only reads; connect to the primary',
      'not-applied',
    )
  if (standbys !== '' && !contact.seesWarnings)
    throw new UnsupportedError(
      `${backend}: ${unseenWarnings.what} ${unseenWarnings.why} ${unseenWarnings.fix}`,
    )
  return isolation ?? ''
}
