/** A connection of `pg`: one statement on it, what it has told by events, and pools beside the user's. */

import { BackendUnavailableError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import { asUnavailable, isStandbyWarning, standbySkipped } from './failures.ts'
import { isStopped, type Stop, stoppedCall, unlessStop } from './stop.ts'
import type { Parameter, PgConnection, PgPool, PgPoolClient, PgQuery, Row } from './types.ts'

export interface ConnectionState {
  /** Why it must not go back to the pool: it has ended, or a statement on it was not answered. */
  broken: Error | undefined
  /** Since it was last set to false. */
  hasSkippedStandby: boolean
}

const states = new WeakMap<PgConnection, ConnectionState>()

/**
 * One set of listeners for each connection, for as long as it lives: `pg` takes its own listener for `error` away while a
 * connection is checked out, and an `error` without a listener ends the process (T51, unheard errors).
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

/** See `pg.ts` for what may go wrong around it. */
export async function runStatement(
  connection: PgConnection,
  backend: string,
  text: string,
  parameters: readonly Parameter[] = [],
  stop?: Stop,
  name?: string,
): Promise<readonly Row[]> {
  if (isStopped(stop)) throw stoppedCall(backend, stop, 'not-applied')
  const state = stateOf(connection)
  state.hasSkippedStandby = false
  const query: PgQuery = { text, rowMode: 'array' }
  // Without values `pg` uses the simple protocol, which takes several statements at once.
  if (parameters.length > 0) query.values = [...parameters]
  if (name !== undefined) query.name = name
  let answer: unknown
  try {
    answer = await unlessStop(connection.query(query), backend, stop)
  } catch (error) {
    // After an error of the server a connection is as good as any. One whose statement has not been answered is not: no other
    // call may get it while it is still at work.
    const failure = asUnavailable(backend, 'the statement failed', error)
    if (failure instanceof BackendUnavailableError && failure.outcome === 'unknown') state.broken ??= failure
    throw failure
  }
  if (state.hasSkippedStandby) throw standbySkipped(backend)
  // Several statements at once answer with the rows of the last.
  const last = Array.isArray(answer) ? answer.at(-1) : answer
  return (last as { rows?: readonly Row[] } | undefined)?.rows ?? []
}

/** One that is broken is destroyed. */
export function giveBack(client: PgPoolClient): void {
  client.release(stateOf(client).broken)
}

/** Pools that have our listeners, which stay for as long as the pool lives. */
const listenedTo = new WeakSet<PgPool>()

/**
 * A pool reports the end of an idle connection as an event, and opens another when it needs one. The event can also come
 * before a caller has its connection, when the server's last word arrives together with its first.
 */
export function listenForErrors(pool: PgPool): void {
  if (listenedTo.has(pool)) return
  listenedTo.add(pool)
  pool.on('error', ignore)
  pool.on('acquire', (connection) => void stateOf(connection))
}

/** Null: this pool does not tell its options, so no other can be made. */
export function poolBeside(pool: PgPool, changes: object): PgPool | null {
  const { options } = pool
  if (typeof options !== 'object' || options === null) return null
  const Pool = pool.constructor as new (options: object) => PgPool
  // `pg` hides the password from enumeration.
  const password = 'password' in options && { password: options.password }
  const own = new Pool({ ...options, ...password, ...changes })
  listenForErrors(own)
  return own
}
