/** One statement on a connection of `pg`. See `pg.ts` for what may go wrong around it. */
import { cancelledCall, unlessAborted } from '../../base/aborting.ts'
import { asUnavailable, isStandbyWarning, standbySkipped } from './failures.ts'
import type { Parameter, PgConnection, PgQuery, Row } from './types.ts'

/** What a connection has told by events. */
export interface ConnectionState {
  broken: Error | undefined
  /** Since it was last set to false. */
  hasSkippedStandby: boolean
}

const states = new WeakMap<PgConnection, ConnectionState>()

/**
 * One set of listeners for each connection, for as long as it lives: `pg` takes its own listener for `error` away while a
 * connection is checked out, and an `error` without a listener ends the process (T51).
 */
export function stateOf(connection: PgConnection): ConnectionState {
  const known = states.get(connection)
  if (known !== undefined) return known
  const state: ConnectionState = { broken: undefined, hasSkippedStandby: false }
  states.set(connection, state)
  connection.on('error', (error) => {
    state.broken ??= error
  })
  connection.on('notice', (notice) => {
    state.hasSkippedStandby ||= isStandbyWarning(notice)
  })
  return state
}

export async function runStatement(
  connection: PgConnection,
  backend: string,
  text: string,
  parameters: readonly Parameter[],
  signal: AbortSignal | undefined,
  name?: string,
): Promise<readonly Row[]> {
  if (signal?.aborted) throw cancelledCall(backend, signal, 'not-applied')
  const state = stateOf(connection)
  state.hasSkippedStandby = false
  const query: PgQuery = { text, rowMode: 'array' }
  // Without values `pg` uses the simple protocol, which takes several statements at once.
  if (parameters.length > 0) query.values = [...parameters]
  if (name !== undefined) query.name = name
  let answer: unknown
  try {
    const asked = connection.query(query)
    answer = await (signal === undefined
      ? asked
      : unlessAborted(asked, signal, () => cancelledCall(backend, signal, 'unknown')))
  } catch (error) {
    throw asUnavailable(backend, 'the statement failed', error)
  }
  if (state.hasSkippedStandby) throw standbySkipped(backend)
  return rowsOf(answer)
}

/** Of several statements at once, those of the last. */
function rowsOf(answer: unknown): readonly Row[] {
  const last = Array.isArray(answer) ? answer.at(-1) : answer
  return (last as { rows?: readonly Row[] } | undefined)?.rows ?? []
}
