/** Tables that are made at the first use. */
import { unlessAborted } from '../../base/aborting.ts'
import type { Clock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { typedStep } from './conflicts.ts'
import type { PostgresDatabase, SqlRunner } from './database.ts'
import { ensureTables, type TablePart } from './tables.ts'

/**
 * As `ensureTables`, with a limit: all calls wait for the first one, so it must not wait for ever. The next one has another
 * connection. Returns the origin.
 */
export async function prepareTables(
  database: PostgresDatabase,
  part: TablePart,
  schema: string,
  { create, clock }: { readonly create: boolean; readonly clock: Clock },
): Promise<string> {
  const limitMs = defaults.callTimeoutMs
  const tooLong = new AbortController()
  const timer = clock.setTimer(limitMs, () => tooLong.abort(), { keepsProcessAlive: true })
  const { signal } = tooLong
  const limited: SqlRunner = { query: (text, parameters) => database.query(text, parameters, { signal }) }
  // Of what the caller asked for, nothing has been begun.
  const noAnswer = () =>
    new BackendUnavailableError('postgres', `no answer within ${limitMs} ms`, 'not-applied')
  try {
    const ensuring = typedStep(() => ensureTables(limited, part, schema, { create }))
    return (await unlessAborted(ensuring, signal, noAnswer)).origin
  } catch (error) {
    throw signal.aborted ? noAnswer() : error
  } finally {
    timer.cancel()
  }
}
