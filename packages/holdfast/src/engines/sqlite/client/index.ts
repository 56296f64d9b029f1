/** Everything that Holdfast knows of connections to SQLite, for modules that use a file of the user's. */
export {
  fileOf,
  isBusy,
  isInTransaction,
  isSqliteDatabase,
  prepare,
  primaryCodeOf,
  type SqliteDatabase,
  type SqliteParameter,
  type SqliteStatement,
  sqliteCodes,
} from './client.ts'
export {
  checkFolderOf,
  type FileSystemTypeOf,
  fileSystemTypeOf,
  openDatabase,
  sharedFileSystemOf,
} from './opening.ts'
export { ownStep, rollBack, type TransactionTerms, transact, whileBusy } from './transaction.ts'
