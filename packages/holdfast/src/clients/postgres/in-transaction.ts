/** Makes sure that what the user gave us is in a transaction: otherwise each statement would be one of its own. */
import { InvalidArgumentError } from '../../base/errors.ts'
import type { SqlRunner } from './database.ts'

/** To be read in a first statement, whose transaction it names. */
export const TRANSACTION_ID = 'pg_current_xact_id()::text'

/** A second statement has the same transaction only if there is one around both; behind a pooler it may even reach another session. */
export async function insistOnTransaction(runner: SqlRunner, id: unknown, otherwise: string): Promise<void> {
  const [row] = await runner.query(
    'SELECT (pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM $1::text)::text',
    [String(id)],
  )
  if (row?.[0] !== 'true') throw new InvalidArgumentError('tx', otherwise)
}
