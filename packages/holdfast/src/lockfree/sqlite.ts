/** Ways without a lock, on a SQLite file: for all processes of one machine. */
import { type Clock, hasSharedZero, systemClock } from '../base/clock.ts'
import { InvalidArgumentError, UnsupportedError } from '../base/errors.ts'
import { type Random, systemRandom } from '../base/ids.ts'
import { checkKnownOptions } from '../base/options.ts'
import {
  checkFolderOf,
  isSqliteDatabase,
  openDatabase,
  ownStep,
  prepare,
  type SqliteDatabase,
  type SqliteParameter,
} from '../clients/sqlite/index.ts'
import { createIdempotent, type Idempotent } from './idempotent.ts'
import { SqliteKeys } from './sqlite/keys.ts'
import { type RowShape, rowStatements, type VersionedRow } from './versioned-row.ts'

export type { SqliteDatabase, SqliteParameter, SqliteStatement } from '../clients/sqlite/index.ts'
export type {
  Idempotent,
  IdempotentContext,
  IdempotentOptions,
  IdempotentRequest,
} from './idempotent.ts'
export type { ReadRow, RowShape, VersionedRow } from './versioned-row.ts'

export interface SqliteIdempotentOptions {
  /** The file in which the keys are kept, best the one in which the work is done. A connection of its own is opened. */
  readonly path: string
  readonly clock?: Clock
  readonly random?: Random
}

export function sqliteIdempotent(options: SqliteIdempotentOptions): Idempotent<SqliteDatabase> {
  if (options === undefined) throw new InvalidArgumentError('sqliteIdempotent options', 'must be given.')
  checkKnownOptions('sqliteIdempotent options', options, ['path', 'clock', 'random'])
  const { path, clock = systemClock, random = systemRandom } = options
  if (typeof path !== 'string' || path === '' || path === ':memory:')
    throw new InvalidArgumentError('path', 'must be the path of a file.')
  checkFolderOf(path)
  if (clock === systemClock && !hasSharedZero)
    throw new UnsupportedError(
      'sqliteIdempotent needs a monotonic clock that all processes of the machine share. Bun and Deno count from the ' +
        'start of the process. Use Node, or holdfast/lockfree/postgres.',
    )
  const database = ownStep(path, () => openDatabase(path), 'store of idempotency keys')
  return createIdempotent(new SqliteKeys(database, clock, random), { clock, random })
}

export interface SqliteRowOptions<Column extends string> extends RowShape<Column, SqliteParameter> {
  readonly database: SqliteDatabase
}

export function sqliteRow<Column extends string>(
  options: SqliteRowOptions<Column>,
): VersionedRow<Column, SqliteParameter> {
  checkKnownOptions('sqliteRow options', options, ['database', 'table', 'key', 'columns', 'versionColumn'])
  const { database, columns } = options
  if (!isSqliteDatabase(database))
    throw new InvalidArgumentError('database', 'must be a DatabaseSync of node:sqlite, or an object like it.')
  const statements = rowStatements(options, {
    table: (table) => quoteName('table', table),
    column: quoteName,
    parameter: (at) => `?${at}`,
    version: (column) => `CAST(${column} AS TEXT) AS "holdfast version"`,
    fromText: (parameter) => `CAST(${parameter} AS INTEGER)`,
  })
  return {
    async read() {
      const statement = database.prepare(statements.read)
      const row = statement.get(...statements.keyValues) as Record<string, unknown> | undefined
      return row === undefined
        ? null
        : statements.toRow([row['holdfast version'], ...columns.map((name) => row[name])])
    },
    async write(version, changes) {
      const { text, values } = statements.write(version, changes)
      return prepare(database, text).get(...values) === undefined ? 0 : 1
    },
  }
}

function quoteName(argument: string, name: unknown): string {
  if (typeof name !== 'string' || name === '' || name.includes('\0'))
    throw new InvalidArgumentError(argument, 'must be a name in SQLite, as a string.')
  return `"${name.replaceAll('"', '""')}"`
}
