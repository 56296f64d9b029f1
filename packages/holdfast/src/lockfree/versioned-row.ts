/** A row of a table of the user's that has a version column, as statements that both databases understand. */
import { InvalidArgumentError, quote, UnsupportedError } from '../base/errors.ts'

export interface RowShape<Column extends string, Value> {
  readonly table: string
  /** The columns that say which row. */
  readonly key: Readonly<Record<string, Value>>
  /** The columns to read. */
  readonly columns: readonly Column[]
  /** An integer column that counts up. Default `version`. */
  readonly versionColumn?: string
}

export interface ReadRow<Column extends string> {
  readonly values: Readonly<Record<Column, unknown>>
  readonly version: bigint
}

/** For `optimisticUpdate`. */
export interface VersionedRow<Column extends string, Value> {
  /** Null: there is no such row. */
  read(): Promise<ReadRow<Column> | null>
  /** Writes on condition of the version, and raises it; how many rows it has changed. */
  write(version: bigint, changes: Readonly<Record<string, Value>>): Promise<number>
}

/** How a database writes things. */
export interface Dialect {
  table(name: string): string
  column(argument: string, name: string): string
  parameter(at: number): string
  /** The version as text: a 64-bit number may not fit into a double (T42). */
  version(column: string): string
  fromText(parameter: string): string
}

export function rowStatements<Column extends string, Value>(
  shape: RowShape<Column, Value>,
  dialect: Dialect,
) {
  const { columns } = shape
  if (!Array.isArray(columns)) throw new InvalidArgumentError('columns', 'must be a list of columns.')
  const table = dialect.table(shape.table)
  const version = dialect.column('versionColumn', shape.versionColumn ?? 'version')
  const key = namesOf('key', shape.key, dialect)
  if (key.length === 0) throw new InvalidArgumentError('key', 'must name at least one column.')
  const keyValues = Object.values(shape.key)
  const where = (first: number) =>
    key.map((name, at) => `${name} = ${dialect.parameter(first + at)}`).join(' AND ')
  const listed = columns.map((name) => dialect.column('columns', name))
  return {
    keyValues,
    read: `SELECT ${[dialect.version(version), ...listed].join(', ')} FROM ${table} WHERE ${where(1)}`,
    write(from: bigint, changes: Readonly<Record<string, Value>>) {
      if (from >= LARGEST_VERSION) throw versionUsedUp()
      const names = namesOf('changes', changes, dialect)
      if (names.includes(version))
        throw new InvalidArgumentError('changes', 'must not name the version column.')
      const sets = names.map((name, at) => `${name} = ${dialect.parameter(key.length + 2 + at)}`)
      const text =
        `UPDATE ${table} SET ${[...sets, `${version} = ${version} + 1`].join(', ')} ` +
        `WHERE ${version} = ${dialect.fromText(dialect.parameter(1))} AND ${where(2)} RETURNING 1`
      return { text, values: [String(from), ...keyValues, ...Object.values(changes)] as (string | Value)[] }
    },
    toRow(row: readonly unknown[]): ReadRow<Column> {
      const [from, ...values] = row
      if (!/^-?\d+$/.test(String(from)))
        throw new UnsupportedError(
          `The version column must hold an integer, and holds ${quote(String(from))}. Correct the row, and let it count up.`,
        )
      const entries = columns.map((name, at) => [name, values[at]] as const)
      return { version: BigInt(String(from)), values: Object.fromEntries(entries) as Record<Column, unknown> }
    },
  }
}

const LARGEST_VERSION = 2n ** 63n - 1n

function versionUsedUp(): UnsupportedError {
  return new UnsupportedError(
    'The version is used up: it has the largest value of a bigint. Nothing was written. Let it count up from 0.',
  )
}

function namesOf(argument: string, values: unknown, dialect: Dialect): string[] {
  if (typeof values !== 'object' || values === null || Array.isArray(values))
    throw new InvalidArgumentError(argument, 'must be an object: column names and their values.')
  return Object.entries(values).map(([name, value]) => {
    if (value === undefined)
      throw new InvalidArgumentError(argument, `must have a value for ${quote(name)}: null for none.`)
    return dialect.column(argument, name)
  })
}
