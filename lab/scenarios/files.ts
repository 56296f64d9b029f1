/** The files of a run: where they lie, that none stays behind, and whether a writer is in the way of the others. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'

export interface TemporaryFolder {
  readonly path: string
  remove(): void
}

/** Removed at the latest when this process exits; so clients that use it have to be ended before. */
export function temporaryFolder(): TemporaryFolder {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-lab-'))
  const remove = () => {
    process.off('exit', remove)
    rmSync(path, { recursive: true, force: true, maxRetries: 3 })
  }
  process.on('exit', remove)
  return { path, remove }
}

/** Whether a client is stopped in the middle of a transaction, and so blocks the file for all. */
export function isFileBusy(path: string): boolean {
  const database = new DatabaseSync(path)
  try {
    database.exec('PRAGMA busy_timeout = 250; BEGIN IMMEDIATE; ROLLBACK')
    return false
  } catch (error) {
    if (/locked|busy/.test((error as Error).message)) return true
    throw error
  } finally {
    database.close()
  }
}
