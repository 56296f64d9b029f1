/** Questions that both backends on PostgreSQL ask the server at first contact. */
import { BackendUnavailableError, UnsupportedError } from '../../../base/errors.ts'
import type { PostgresDatabase } from './database.ts'
import { unseenWarnings } from './findings.ts'

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
  database: PostgresDatabase,
  { backend, version, ifOlder }: ServerNeeds,
): Promise<string> {
  const [row = []] = await database.query(
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
  if (standbys !== '' && !database.seesWarnings)
    throw new UnsupportedError(
      `${backend}: ${unseenWarnings.what} ${unseenWarnings.why} ${unseenWarnings.fix}`,
    )
  return isolation ?? ''
}
