/**
 * Session advisory locks of PostgreSQL as a backend, and locks for transactions of your own.
 *
 * ```ts
 * const locker = createLocker(await postgresAdvisory({ client: pool }))
 * ```
 */
import { checkKnownOptions } from '../../../base/options.ts'
import type { Backend } from '../../../spi.ts'
import { checkSchema, tablesSql } from '../tables/tables.ts'
import { openPostgresAdvisory, type PostgresAdvisoryOptions } from './assemble.ts'
import { advisoryPart } from './schema.ts'

export {
  type CustomTransaction,
  type DrizzleTransaction,
  type KyselyTransaction,
  type Notice,
  type NoticeHandler,
  type Parameter,
  type PgConnection,
  type PgNotification,
  type PgPool,
  type PgPoolClient,
  type PgQuery,
  type PgTransaction,
  type PostgresClient,
  type PostgresJs,
  type PostgresJsQuery,
  type PostgresJsRunner,
  type Row,
  type SqlTransaction,
  standbyNotices,
} from '../client/index.ts'
export type { PostgresAdvisoryOptions } from './assemble.ts'
export type { KeyChoice } from './keys.ts'
export {
  type IfLocked,
  type LockedRow,
  lockRow,
  type RowLock,
  type RowLockRequest,
  type RowLockStrength,
} from './row-lock.ts'
export {
  type TransactionLockOptions,
  tryTransactionLock,
  type WaitingTransactionLockOptions,
  withTransactionLock,
} from './transaction-lock.ts'

/** Makes first contact: creates its tables if there are none, and rejects if the server or the way to it cannot be used. */
export function postgresAdvisory(options: PostgresAdvisoryOptions): Promise<Backend<'fenced'>> {
  return openPostgresAdvisory(options)
}

/** The SQL that creates its tables and functions, to apply it with your own migrations. */
export function postgresAdvisorySchema(options: { readonly schema?: string } = {}): string {
  checkKnownOptions('postgresAdvisorySchema options', options, ['schema'])
  return tablesSql(advisoryPart, checkSchema(options.schema))
}
