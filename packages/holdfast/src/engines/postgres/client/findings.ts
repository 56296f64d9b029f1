/** Findings about a server's configuration and activity that matter for locks. Nothing here is changed, and nothing is secret. */
import { defaults } from '../../../base/defaults.ts'
import type { Finding } from '../../../spi.ts'
import { arrayLiteral } from './arrays.ts'
import type { Parameter, Row } from './types.ts'

/** Shorter ones cut off statements that a loaded server would have answered. */
const SHORTEST_STATEMENT_TIMEOUT_MS = 1_000
const OLD_TRANSACTION_S = 600
const FEW_CONNECTIONS = 5

export interface ServerFacts {
  /** As `pg_settings` has them, in the units of that view. */
  readonly settings: ReadonlyMap<string, string>
  /** How many standbys or other receivers of the log are connected. */
  readonly receivers: number
  /** Connections that the server has now, of all users and to all databases. */
  readonly connections: number
  /** The age of the oldest open transaction that this user may see. */
  readonly oldestTransactionS: number
}

const SETTINGS = [
  'fsync',
  'full_page_writes',
  'synchronous_standby_names',
  'autovacuum',
  'statement_timeout',
  'idle_session_timeout',
  'transaction_timeout',
  'max_connections',
  'superuser_reserved_connections',
  'reserved_connections',
]

/** `query` runs one statement on the server. */
export async function readServerFacts(
  query: (text: string, parameters: readonly Parameter[]) => Promise<readonly Row[]>,
): Promise<ServerFacts> {
  const rows = await query(
    `SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY ($1::text::text[])
    UNION ALL SELECT 'connections', (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database)::text
    UNION ALL SELECT 'receivers', (SELECT count(*) FROM pg_catalog.pg_stat_replication)::text
    UNION ALL SELECT 'oldest transaction', (
      SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_catalog.pg_stat_activity
      WHERE backend_type = 'client backend' AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid())::text`,
    [arrayLiteral(SETTINGS)],
  )
  const found = new Map(rows.map(([name, value]) => [String(name), String(value ?? '')]))
  return {
    settings: found,
    receivers: Number(found.get('receivers')),
    connections: Number(found.get('connections')),
    oldestTransactionS: Number(found.get('oldest transaction')),
  }
}

/** Findings that every backend on PostgreSQL has to tell about its server. */
export function serverFindings(
  { settings, receivers, connections, oldestTransactionS }: ServerFacts,
  { seesWarnings }: { readonly seesWarnings: boolean },
): readonly Finding[] {
  const findings: Finding[] = []
  const standbys = settings.get('synchronous_standby_names') ?? ''
  const statementTimeoutMs = Number(settings.get('statement_timeout'))
  if (settings.get('fsync') === 'off')
    findings.push({
      code: 'HOLDFAST_POSTGRES_FSYNC',
      severity: 'danger',
      what: 'fsync is off.',
      why: 'A crash of the machine may undo grants that were confirmed, and tokens may be issued twice.',
      fix: 'Set fsync = on, and restart the server.',
    })
  if (settings.get('full_page_writes') === 'off')
    findings.push({
      code: 'HOLDFAST_POSTGRES_FULL_PAGE_WRITES',
      severity: 'danger',
      what: 'full_page_writes is off.',
      why: 'A crash of the machine may damage the tables of locks and tokens.',
      fix: 'Set full_page_writes = on, unless the file system never writes half a page.',
    })
  if (standbys !== '' && !seesWarnings) findings.push(unseenWarnings)
  if (standbys === '' && receivers > 0)
    findings.push({
      code: 'HOLDFAST_POSTGRES_ASYNC_STANDBY',
      severity: 'warning',
      what: 'The server has receivers of its log, and no synchronous standby.',
      why: 'After a fail-over to an asynchronous standby, grants and tokens that it had not received are gone.',
      fix: 'Set synchronous_standby_names, or raise the epoch after each fail-over before locks are used again.',
    })
  if (settings.get('autovacuum') === 'off')
    findings.push({
      code: 'HOLDFAST_POSTGRES_AUTOVACUUM',
      severity: 'warning',
      what: 'autovacuum is off.',
      why: 'Each lock leaves a dead row behind. The tables grow, and every call becomes slower.',
      fix: 'Set autovacuum = on.',
    })
  if (statementTimeoutMs > 0 && statementTimeoutMs < SHORTEST_STATEMENT_TIMEOUT_MS)
    findings.push({
      code: 'HOLDFAST_POSTGRES_STATEMENT_TIMEOUT',
      severity: 'warning',
      what: `statement_timeout is ${statementTimeoutMs} ms for this client.`,
      why: 'While the server is busy, it cancels keep-alives that would have been in time, and leases are lost.',
      fix: `Give Holdfast a client with a statement_timeout of 0, or of ${SHORTEST_STATEMENT_TIMEOUT_MS} ms or more.`,
    })
  for (const name of ['idle_session_timeout', 'transaction_timeout']) {
    const timeoutMs = Number(settings.get(name) ?? 0)
    if (timeoutMs > 0 && timeoutMs < defaults.ttlMs)
      findings.push({
        code: 'HOLDFAST_POSTGRES_SESSION_TIMEOUT',
        severity: 'warning',
        what: `${name} is ${timeoutMs} ms for this client, less than a lease of ${defaults.ttlMs} ms.`,
        why: 'The server closes connections that a lease, a waiter or a guarded transaction still needs.',
        fix: `Give Holdfast a client with a ${name} of 0.`,
      })
  }
  const setting = (name: string) => Number(settings.get(name) ?? 0)
  const reserved = setting('superuser_reserved_connections') + setting('reserved_connections')
  const mostConnections = setting('max_connections') - reserved
  const freeConnections = mostConnections - connections
  if (freeConnections < FEW_CONNECTIONS)
    findings.push({
      code: 'HOLDFAST_POSTGRES_CONNECTIONS_LEFT',
      severity: 'warning',
      what: `${Math.max(0, freeConnections)} of ${mostConnections} connections are left.`,
      why: 'A client that finds none cannot renew, and loses its leases.',
      fix: 'Raise max_connections, use smaller pools, or put a pooler in between.',
    })
  if (oldestTransactionS > OLD_TRANSACTION_S)
    findings.push({
      code: 'HOLDFAST_POSTGRES_OLD_TRANSACTION',
      severity: 'warning',
      what: `A transaction has been open for ${Math.round(oldestTransactionS / 60)} minutes.`,
      why: 'The server keeps all old versions of rows for it, also those of keep-alives, and calls become slower.',
      fix: 'Find it in pg_stat_activity, and end it if nothing needs it.',
    })
  return findings
}

/** A backend does not start with it; the standby may be configured later. */
export const unseenWarnings: Finding = {
  code: 'HOLDFAST_POSTGRES_UNSEEN_WARNINGS',
  severity: 'danger',
  what: 'The server has a synchronous standby, and this client of postgres.js does not show its warnings.',
  why: 'A commit that did not reach the standby would go unnoticed.',
  fix: 'Create the client with `onnotice: standbyNotices()`, from holdfast/postgres.',
}
