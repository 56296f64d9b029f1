/** A row with a version column, to be read and written by `optimisticUpdate`. */

import { InvalidArgumentError, UnsupportedError } from '../../base/errors.ts'
import { checkKnownOptions } from '../../base/options.ts'
import {
  checkIdentifier,
  type Parameter,
  type PostgresClient,
  quoteIdentifier,
  quoteTable,
  refusedByTable,
  type SqlTransaction,
  serverStateOf,
  sharedDatabase,
  sqlRunnerOf,
  typedStep,
} from '../../clients/postgres/index.ts'
import { type RowShape, rowStatements, type VersionedRow } from '../versioned-row.ts'

export interface PostgresRowOptions<Column extends string> extends RowShape<Column, Parameter> {
  /** Where the table is: a client, or a transaction of yours. */
  readonly client?: PostgresClient
  readonly tx?: SqlTransaction
}

export function postgresRow<Column extends string>(
  options: PostgresRowOptions<Column>,
): VersionedRow<Column, Parameter> {
  checkKnownOptions('postgresRow options', options, [
    'client',
    'tx',
    'table',
    'key',
    'columns',
    'versionColumn',
  ])
  const { client, tx } = options
  if ((client === undefined) === (tx === undefined))
    throw new InvalidArgumentError('postgresRow', 'needs either `client` or `tx`.')
  const runner = client !== undefined ? sharedDatabase(client) : sqlRunnerOf(tx as SqlTransaction)
  const statements = rowStatements(options, {
    table: (table) => quoteTable('table', table),
    column: (argument, name) => quoteIdentifier(checkIdentifier(argument, name)),
    parameter: (at) => `$${at}`,
    version: (column) => `${column}::text`,
    fromText: (parameter) => `${parameter}::text::bigint`,
  })
  return {
    async read() {
      const [row] = await typedStep(() => runner.query(statements.read, statements.keyValues))
      return row === undefined ? null : statements.toRow(row)
    },
    async write(version, changes) {
      const { text, values } = statements.write(version, changes)
      try {
        return (await typedStep(() => runner.query(text, values))).length
      } catch (error) {
        throw refusedValue(error) ?? error
      }
    },
  }
}

/** Values that the table does not take, now or later; null if it is something else. */
function refusedValue(error: unknown): Error | null {
  if (serverStateOf(error) === OUT_OF_RANGE)
    return new UnsupportedError(
      'A number does not fit its column: the version is used up, or one of the changes is too large. Nothing was written. ' +
        'A version column of the type bigint is not used up.',
      { cause: (error as Error).cause },
    )
  return refusedByTable(error, 'changes')
}

/** The server does not say which column it is. */
const OUT_OF_RANGE = '22003'
