/** The part of `node:sqlite` that guards and the like use; any connection that has it will do. */
export interface SqliteStatement {
  get(...parameters: SqliteParameter[]): unknown
  run(...parameters: SqliteParameter[]): { readonly changes: number | bigint }
  setReadBigInts(enabled: boolean): void
  /** Only where a connection can be told to return arrays. */
  setReturnArrays?(enabled: boolean): void
}

export type SqliteParameter = string | bigint | number | null

export interface SqliteDatabase {
  exec(sql: string): void
  prepare(sql: string): SqliteStatement
  /** Node has it from 22.16 on. */
  readonly isTransaction?: boolean
}

export function isSqliteDatabase(value: unknown): value is SqliteDatabase {
  const { exec, prepare } = (value ?? {}) as Partial<SqliteDatabase>
  return typeof exec === 'function' && typeof prepare === 'function'
}

/** A statement that answers with objects and bigints, whatever the connection's own settings are. */
export function prepare(database: SqliteDatabase, sql: string): SqliteStatement {
  const statement = database.prepare(sql)
  statement.setReadBigInts(true)
  statement.setReturnArrays?.(false)
  return statement
}

export function isInTransaction(database: SqliteDatabase): boolean {
  if (typeof database.isTransaction === 'boolean') return database.isTransaction
  // Without a property that says so, trying is the only way: SQLite refuses a transaction inside another.
  try {
    database.exec('BEGIN DEFERRED')
  } catch (error) {
    if (primaryCodeOf(error) === sqliteCodes.ERROR) return true
    throw error
  }
  database.exec('ROLLBACK')
  return false
}

/** Primary result codes. */
export const sqliteCodes = {
  ERROR: 1,
  BUSY: 5,
  LOCKED: 6,
  READONLY: 8,
  CORRUPT: 11,
  CANTOPEN: 14,
  PROTOCOL: 15,
  CONSTRAINT: 19,
  NOTADB: 26,
} as const

/** Another connection has the file, and will let go of it. */
export function isBusy(error: unknown): boolean {
  const code = primaryCodeOf(error)
  return code === sqliteCodes.BUSY || code === sqliteCodes.LOCKED || code === sqliteCodes.PROTOCOL
}

/** True for a write that breaks a rule of the user's own tables. */
export function isConstraintViolation(error: unknown): boolean {
  return primaryCodeOf(error) === sqliteCodes.CONSTRAINT
}

/** Advice for a file that is wrong in itself, so that trying again will not help; undefined if it is not. */
export function remedyFor(error: unknown): string | undefined {
  switch (primaryCodeOf(error)) {
    case sqliteCodes.READONLY:
      return 'this connection may not write it. Open it for writing, change the permissions of the file and of its folder, in which SQLite keeps side files, or choose another place.'
    case sqliteCodes.CANTOPEN:
      return 'it cannot be opened. It must be a file, or the place for a new one, and this process must be allowed to read and write it and its folder.'
    case sqliteCodes.NOTADB:
      return 'it is not an SQLite database, and was left as it is. Choose the file in which the protected data is.'
    default:
      return undefined
  }
}

/** The low byte of SQLite's extended result code; undefined if the error is not SQLite's. */
export function primaryCodeOf(error: unknown): number | undefined {
  const { errcode, code, message } = (error ?? {}) as {
    readonly errcode?: unknown
    readonly code?: unknown
    readonly message?: unknown
  }
  if (typeof errcode === 'number') return errcode & 0xff
  return code === 'ERR_SQLITE_ERROR' ? codeOfMessage[String(message)] : undefined
}

/** For Deno, whose `exec` leaves the code out. */
const codeOfMessage: Readonly<Record<string, number>> = {
  'database is locked': sqliteCodes.BUSY,
  'database table is locked': sqliteCodes.LOCKED,
  'cannot start a transaction within a transaction': sqliteCodes.ERROR,
  'attempt to write a readonly database': sqliteCodes.READONLY,
  'database disk image is malformed': sqliteCodes.CORRUPT,
  'unable to open database file': sqliteCodes.CANTOPEN,
  'locking protocol': sqliteCodes.PROTOCOL,
  'file is not a database': sqliteCodes.NOTADB,
}

/** The path of the file behind a connection; empty for a database in memory, and for one that cannot say. */
export function fileOf(database: SqliteDatabase): string {
  try {
    const row = prepare(database, 'PRAGMA database_list').get()
    return String((row as { file?: unknown } | undefined)?.file ?? '')
  } catch {
    // The file is closed or broken: the caller is about to say so.
    return ''
  }
}
