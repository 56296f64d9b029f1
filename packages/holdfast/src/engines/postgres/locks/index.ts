/**
 * Locks in the PostgreSQL that you have, also behind a connection pooler.
 *
 * ```ts
 * const locker = createLocker(await postgres({ client: pool }))
 * ```
 */

import { checkKnownOptions } from '../../../base/options.ts'
import type { Backend } from '../../../spi.ts'
import { checkSchema } from '../tables/tables.ts'
import { openPostgres, type PostgresOptions } from './assemble.ts'
import { schemaSql } from './schema.ts'

export {
  type Notice,
  type NoticeHandler,
  type Parameter,
  type PgConnection,
  type PgNotification,
  type PgPool,
  type PgPoolClient,
  type PgQuery,
  type PostgresClient,
  type PostgresJs,
  type PostgresJsQuery,
  type PostgresJsRunner,
  standbyNotices,
} from '../client/index.ts'
export type { PostgresOptions } from './assemble.ts'

/** Makes first contact: creates the schema if there is none, and rejects if the server cannot be used. */
export function postgres(options: PostgresOptions): Promise<Backend<'fenced'>> {
  return openPostgres(options)
}

/** The SQL that creates the schema, for users who apply migrations themselves. Running it twice does no harm. */
export function postgresSchema(options: { readonly schema?: string } = {}): string {
  checkKnownOptions('postgresSchema options', options, ['schema'])
  return schemaSql(checkSchema(options.schema))
}
