/** The tables and functions in the user's database. The registry in `engines/postgres/tables/tables.ts` creates them. */
import { UnsupportedError } from '../../../base/errors.ts'
import { type Contact, checkServer } from '../client/index.ts'
import { ensureTables, READ_AND_WRITE, type TablePart, tablesSql } from '../tables/tables.ts'
import { claims } from './sql/claims.ts'
import { events } from './sql/event-log.ts'
import { grants } from './sql/grants.ts'
import { locks } from './sql/locks.ts'
import { operators } from './sql/operators.ts'
import { queue } from './sql/queue.ts'
import { sessions } from './sql/sessions.ts'
import { states } from './sql/states.ts'
import { tables } from './sql/tables.ts'

const SERVER = { backend: 'postgres', version: 13, ifOlder: 'Upgrade it.' }

const lockTables: TablePart = {
  part: 'locks',
  version: 1,
  relations: {
    tokens: ['USAGE'],
    places: ['USAGE'],
    sessions: READ_AND_WRITE,
    holders: READ_AND_WRITE,
    waiters: READ_AND_WRITE,
    marks: READ_AND_WRITE,
    names: READ_AND_WRITE,
    logs: READ_AND_WRITE,
    watchers: READ_AND_WRITE,
    events: READ_AND_WRITE,
  },
  printedBy: 'postgresSchema()',
  sql: (s) =>
    [tables, locks, events, grants, claims, sessions, queue, operators, states]
      .map((part) => part(s))
      .join('\n'),
}

/** All statements that make the schema. Running them twice does no harm. */
export function schemaSql(schema: string): string {
  return tablesSql(lockTables, schema)
}

/** Makes the schema if there is none. Returns its origin. `sql` is for tests. */
export async function ensureSchema(
  contact: Contact,
  schema: string,
  options: { readonly create: boolean; readonly sql?: string },
): Promise<string> {
  const isolation = await checkServer(contact, SERVER)
  if (isolation !== 'read committed') throw wrongIsolation(isolation)
  const { origin } = await ensureTables(contact, lockTables, schema, options)
  return origin
}

export function wrongIsolation(found: string, options?: ErrorOptions): UnsupportedError {
  return new UnsupportedError(
    `postgres: connections of this client have the isolation level ${found} by default. A call that waits for a lock must see ` +
      'what was written meanwhile, which takes READ COMMITTED: give Holdfast a client without ' +
      'default_transaction_isolation.',
    options,
  )
}
