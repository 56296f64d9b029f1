/** What SQLite's error codes mean for a caller. */
import { dirname, join } from 'node:path'
import { BackendUnavailableError, type CallOutcome, quote, UnsupportedError } from '../../core/errors.ts'

export interface SqliteError extends Error {
  /** The extended code; its low byte is the primary one. */
  readonly errcode: number
}

export const sqliteCodes = {
  BUSY: 5,
  READONLY: 8,
  CORRUPT: 11,
  CANTOPEN: 14,
  PROTOCOL: 15,
  NOTADB: 26,
} as const

export function codeOf(error: unknown): number | null {
  const code = (error as Partial<SqliteError> | null)?.errcode
  return typeof code === 'number' ? code & 0xff : null
}

/** Another connection has the lock that this one needs, and will give it back. */
export function isBusy(error: unknown): boolean {
  const code = codeOf(error)
  return code === sqliteCodes.BUSY || code === sqliteCodes.PROTOCOL
}

export function unavailable(what: string, outcome: CallOutcome, cause?: unknown): BackendUnavailableError {
  const detail = cause instanceof Error ? `: ${cause.message}` : ''
  return new BackendUnavailableError('sqlite', `${what}${detail}`, outcome, { cause })
}

export function readOnly(path: string, cause: unknown): UnsupportedError {
  return new UnsupportedError(
    `sqlite: ${quote(path)} cannot be written by this process. A lock must be able to write its file, and two ` +
      'side files in the same folder; change the permissions, or choose another place.',
    { cause },
  )
}

export function foreignFile(file: string, what: string, cause?: unknown): UnsupportedError {
  return new UnsupportedError(
    `sqlite: ${quote(file)} ${what}, and was left as it is. Holdfast needs a file of its own: choose another path, ` +
      `for example ${quote(join(dirname(file), 'holdfast.db'))}.`,
    { cause },
  )
}
