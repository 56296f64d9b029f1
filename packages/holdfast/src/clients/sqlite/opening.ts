import type { DatabaseSync } from 'node:sqlite'
import { UnsupportedError } from '../../base/errors.ts'

/** A static import would fail on a runtime without the module, before anything could say what is needed. */
export function openDatabase(path: string): DatabaseSync {
  const sqlite = process.getBuiltinModule('node:sqlite')
  if (sqlite === undefined)
    throw new UnsupportedError('SQLite needs the module node:sqlite, and this runtime does not have it.')
  return new sqlite.DatabaseSync(path)
}
