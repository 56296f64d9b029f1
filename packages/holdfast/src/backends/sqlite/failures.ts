/** What SQLite's error codes mean for a caller. */
import { dirname, join } from 'node:path'
import { BackendUnavailableError, type CallOutcome, quote, UnsupportedError } from '../../base/errors.ts'
import { primaryCodeOf } from '../../clients/sqlite/index.ts'

export const sqliteCodes = {
  BUSY: 5,
  READONLY: 8,
  CORRUPT: 11,
  CANTOPEN: 14,
  PROTOCOL: 15,
  NOTADB: 26,
} as const

/** The primary code. */
export function codeOf(error: unknown): number | null {
  return primaryCodeOf(error) ?? null
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
      'side files in the same folder; change the permissions, or choose another folder.',
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
