/** Opening a file of SQLite. */
import { statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { InvalidArgumentError, quote, UnsupportedError } from '../../../base/errors.ts'

/** The folder of a file, which must exist. */
export function checkFolderOf(path: string): string {
  const folder = dirname(resolve(path))
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return folder
  throw new InvalidArgumentError('path', `must be in a folder that exists; create ${quote(folder)} first.`)
}

/** A static import would fail on a runtime without the module, before anything could say what is needed. */
export function openDatabase(path: string): DatabaseSync {
  const sqlite = process.getBuiltinModule('node:sqlite')
  if (sqlite === undefined)
    throw new UnsupportedError('SQLite needs the module node:sqlite, and this runtime does not have it.')
  return new sqlite.DatabaseSync(path)
}
