/** What Holdfast knows of connections to SQLite, for those who use a file of the user's. */
export {
  fileOf,
  isInTransaction,
  isSqliteDatabase,
  prepare,
  primaryCodeOf,
  type SqliteDatabase,
  type SqliteParameter,
  type SqliteStatement,
} from './client.ts'
export { openDatabase } from './opening.ts'
export { ownStep, type TransactionTerms, transact, whileBusy } from './transaction.ts'
