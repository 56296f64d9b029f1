/** Names of schemas, tables and columns in statements. Values never get here: they are parameters. */
import { InvalidArgumentError } from '../../../base/errors.ts'

/** The bytes that PostgreSQL keeps of an identifier. */
const LONGEST_BYTES = 63

export function checkIdentifier(argument: string, identifier: unknown): string {
  if (typeof identifier !== 'string' || identifier === '')
    throw new InvalidArgumentError(argument, 'must be the name of something in PostgreSQL, as a string.')
  if (identifier.includes('\0') || !identifier.isWellFormed())
    throw new InvalidArgumentError(argument, 'must not contain a zero byte or a lone surrogate.')
  if (Buffer.byteLength(identifier) > LONGEST_BYTES)
    throw new InvalidArgumentError(
      argument,
      `must have at most ${LONGEST_BYTES} bytes: PostgreSQL would cut it short.`,
    )
  return identifier
}

export function quoteIdentifier(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`
}

/** A quoted name without backslashes, as a string constant: for functions that take the name of something. */
export function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`
}

/** `table` or `schema.table`, checked and quoted. */
export function quoteTable(argument: string, table: unknown): string {
  if (typeof table !== 'string') throw new InvalidArgumentError(argument, 'must be the name of a table.')
  const parts = table.split('.')
  if (parts.length > 2)
    throw new InvalidArgumentError(argument, "must be 'table' or 'schema.table', without a database.")
  return parts.map((part) => quoteIdentifier(checkIdentifier(argument, part))).join('.')
}
