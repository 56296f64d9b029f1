/** The server's word that a transaction is to be done again, and failures of our own statements in general. */
import {
  ConflictError,
  type HoldfastError,
  InvalidArgumentError,
  isHoldfastError,
} from '../../../base/errors.ts'
import { asUnavailable, sqlStateOf } from './failures.ts'

/** The state of the server's own error, which a client library or we ourselves may have wrapped. */
export function serverStateOf(error: unknown): string | null {
  for (let each = error, depth = 0; each instanceof Error && depth < 5; each = each.cause, depth++) {
    const state = sqlStateOf(each)
    if (state !== null) return state
  }
  return null
}

const conflicts: Record<string, string> = {
  '40001': 'Another transaction changed what this one was based on, and its isolation level forbids that.',
  '40P01': 'Two transactions waited for each other, and the database ended this one.',
}

/** Null: it is something else. */
export function conflictOf(error: unknown): HoldfastError | null {
  const what = conflicts[serverStateOf(error) ?? '']
  return what === undefined ? null : new ConflictError(what, { cause: error })
}

/** Values of the user's that the table does not take, now or later (classes 22 and 23); null if it is something else. */
export function refusedByTable(error: unknown, argument: string): HoldfastError | null {
  const state = serverStateOf(error)
  if (!state?.startsWith('22') && !state?.startsWith('23')) return null
  const { message } = error as Error
  return new InvalidArgumentError(argument, `has a value that the table refuses: ${message}`, {
    cause: error,
  })
}

/** A statement of our own: every failure of it is typed. */
export async function typedStep<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (error) {
    const conflict = conflictOf(error)
    if (conflict !== null) throw conflict
    throw isHoldfastError(error) ? error : asUnavailable('postgres', 'the statement failed', error)
  }
}
