/** Everything that Holdfast knows of PostgreSQL's clients. */

export { arrayLiteral } from './arrays.ts'
export { conflictOf, refusedByTable, serverStateOf, typedStep } from './conflicts.ts'
export {
  checkClientOptions,
  type DedicatedConnection,
  isPgPool,
  isPostgresJs,
  type ListenEvents,
  type Listener,
  type PostgresDatabase,
  postgresDatabase,
  type QueryOptions,
  type SqlRunner,
  sharedDatabase,
  type TransactionOptions,
  type TransactionWork,
} from './database.ts'
export { asUnavailable, isStandbyWarning, outcomeOf, remedyOf, sqlStateOf } from './failures.ts'
export { readServerFacts, type ServerFacts, serverFindings, unseenWarnings } from './findings.ts'
export { type Contact, checkServer, withinContact } from './first-contact.ts'
export {
  connectionParameters,
  type OpenedPostgresClient,
  type OwnClient,
  type PostgresLibraries,
  poolFromUrl,
  postgresClientFromUrl,
} from './from-url.ts'
export { checkIdentifier, quoteIdentifier, quoteTable, quoteText } from './identifiers.ts'
export { type NoticeHandler, standbyNotices } from './notices.ts'
export { pageOfSessions } from './session-pages.ts'
export {
  type CustomTransaction,
  type DrizzleTransaction,
  insistOnTransaction,
  type KyselyTransaction,
  type PgTransaction,
  type SqlTransaction,
  sqlRunnerOf,
  TRANSACTION_ID,
} from './sql-runner.ts'
export type {
  NativeTransaction,
  Notice,
  Parameter,
  PgConnection,
  PgNotification,
  PgPool,
  PgPoolClient,
  PgQuery,
  PostgresClient,
  PostgresJs,
  PostgresJsQuery,
  PostgresJsRunner,
  Row,
} from './types.ts'
