/** One statement on a connection of `pg`. See `pg.ts` for what may go wrong around it. */
import { BackendUnavailableError } from '../../base/errors.ts'
import { cancelledCall, orAborted } from './cancelling.ts'
import { asUnavailable, isStandbyWarning } from './failures.ts'
import type { Notice, Parameter, PgConnection, PgQuery, Row } from './types.ts'

export async function runStatement(
  connection: PgConnection,
  backend: string,
  text: string,
  parameters: readonly Parameter[],
  signal: AbortSignal | undefined,
  name?: string,
): Promise<readonly Row[]> {
  if (signal?.aborted) throw cancelledCall(backend, 'not-applied', signal)
  let standbySkipped = false
  const onNotice = (notice: Notice) => {
    standbySkipped ||= isStandbyWarning(notice)
  }
  connection.on('notice', onNotice)
  try {
    // Without values `pg` uses the simple protocol, which takes several statements at once.
    const query: PgQuery = {
      text,
      rowMode: 'array',
      ...(parameters.length > 0 && { values: [...parameters] }),
      ...(name !== undefined && { name }),
    }
    const answer = await orAborted(connection.query(query), signal, () =>
      cancelledCall(backend, 'unknown', signal as AbortSignal),
    )
    if (standbySkipped)
      throw new BackendUnavailableError(
        backend,
        'the wait for the synchronous standby was cancelled',
        'unknown',
      )
    return rowsOf(answer)
  } catch (error) {
    throw asUnavailable(backend, 'the statement failed', error)
  } finally {
    connection.removeListener('notice', onNotice)
  }
}

/** Of several statements at once, those of the last. */
function rowsOf(answer: unknown): readonly Row[] {
  const last = Array.isArray(answer) ? answer.at(-1) : answer
  return (last as { rows?: readonly Row[] } | undefined)?.rows ?? []
}
