/** Maps SQLite's error codes to typed errors for callers. */
import { dirname, join } from 'node:path'
import { hasSharedZero } from '../../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  isHoldfastError,
  quote,
  UnsupportedError,
} from '../../../base/errors.ts'
import { isBusy, primaryCodeOf, sqliteCodes } from '../client/index.ts'

export function unavailable(what: string, outcome: CallOutcome, cause?: unknown): BackendUnavailableError {
  const detail = cause instanceof Error ? `: ${cause.message}` : ''
  return new BackendUnavailableError('sqlite', `${what}${detail}`, outcome, { cause })
}

/** `problem`: goes on from the path. */
export function unusable(path: string, problem: string, cause?: unknown): UnsupportedError {
  return new UnsupportedError(`sqlite: ${quote(path)} ${problem}`, { cause })
}

export function readOnly(path: string, cause: unknown): UnsupportedError {
  const why =
    'cannot be written by this process. A lock must be able to write its file, and two side files in the same folder; ' +
    'change the permissions, or choose another folder.'
  return unusable(path, why, cause)
}

export function foreignFile(path: string, what: string, cause?: unknown): UnsupportedError {
  const other = quote(join(dirname(path), 'holdfast.db'))
  const why = `${what}, and was left as it is. Holdfast needs a file of its own: choose another path, for example ${other}.`
  return unusable(path, why, cause)
}

/** Why a file could not be opened. */
export function openingFailure(error: unknown, path: string): unknown {
  if (isHoldfastError(error)) return error
  if (isBusy(error)) return unusable(path, hasSharedZero ? TAKEN : TAKEN_BY_A_PROCESS, error)
  switch (primaryCodeOf(error)) {
    case sqliteCodes.NOTADB:
      return foreignFile(path, 'is not an SQLite database', error)
    case sqliteCodes.CORRUPT:
      return unusable(path, DAMAGED, error)
    case sqliteCodes.READONLY:
    case sqliteCodes.CANTOPEN:
      return readOnly(path, error)
    default:
      return unavailable(`${quote(path)} could not be opened`, 'not-applied', error)
  }
}

const DAMAGED =
  'is damaged. When no process uses it any more, remove it together with its -wal and -shm files, or restore a backup; ' +
  'then raise the epoch, because tokens will be counted anew.'

const TAKEN =
  'could not be had. Either another program keeps it locked, or processes that were shown another boot id (as in system ' +
  'containers) have it open: all users of one file must run under one kernel and see the same ' +
  '/proc/sys/kernel/random/boot_id.'

const TAKEN_BY_A_PROCESS =
  'is open in another process. Bun and Deno count monotonic time from the start of the process, so processes cannot agree ' +
  'on when a lease ends: one process has the file at a time. Use Node, or an engine on a server.'
