/** Why a lock was not given, when it is neither free nor merely busy. */

import {
  BackendUnavailableError,
  type HoldfastError,
  InvalidArgumentError,
  quote,
  UnsupportedError,
} from '../../base/errors.ts'
import { remedyOf } from '../../clients/postgres/index.ts'
import { NAME } from './links.ts'

export function collision(name: string, other: string, key: string): InvalidArgumentError {
  return new InvalidArgumentError(
    'name',
    `${quote(name)} has the same advisory key as ${quote(other)} (${key}), which is held now. The two exclude each other ` +
      'although they are not the same: let key(name) spread names over all 64 bits, or use the default.',
  )
}

const LOCK_TABLE_IS_FULL = '53200'

/** `problem` starts with the server's own code. */
export function failed(name: string, problem: string): HoldfastError {
  const remedy = remedyOf(problem.split(' ', 1)[0] ?? '')
  if (remedy !== null)
    return new UnsupportedError(`${NAME}: acquire of ${quote(name)}: SQLSTATE ${problem}. ${remedy}`)
  const advice = problem.startsWith(LOCK_TABLE_IS_FULL)
    ? "; the server's lock table is full: raise max_locks_per_transaction"
    : ''
  return new BackendUnavailableError(
    NAME,
    `acquire of ${quote(name)}: SQLSTATE ${problem}${advice}`,
    'not-applied',
  )
}

export function abandoned(options?: ErrorOptions): BackendUnavailableError {
  return new BackendUnavailableError(NAME, 'the attempt was abandoned', 'not-applied', options)
}
