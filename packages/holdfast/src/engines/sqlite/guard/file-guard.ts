/**
 * A guard for files in a folder, for all processes of one machine. Marks are in an SQLite file in the same folder.
 *
 * ```ts
 * const guard = fileGuard({ folder: '/var/lib/reports' })
 *
 * await guard.run(lease, async (files) => {
 *   const before = await files.read('november.json')
 *   await files.write('november.json', next(before))
 * })
 * ```
 *
 * A rename and a commit are two steps, so a crash between them must not leave new content with the old mark (T94, rename inside a
 * transaction). Each write is a redo log of one entry:
 *
 *   1. stage    the content is written to a file beside the marks, and file and folder are synced
 *   2. commit   one transaction judges, finishes the renames of a predecessor, and stores mark and own renames: the commit point
 *   3. apply    the staged files are renamed to their places; whoever comes next does what is missing, because the log says so
 *
 * A staged file has a name of its own, so a rename that comes late, after another process has done it, finds nothing to rename.
 * A read raises the mark by step 2 without renames (T40, unchecked reads). An effect runs outside of any transaction: a process
 * that is frozen in its effect blocks nobody.
 */
import type { Clock } from '../../../base/clock.ts'
import type { GuardOptions } from '../../../guards/guard.ts'
import { checkGuardOptions } from '../../../guards/settings.ts'
import { GuardedFolder } from './file/folder.ts'
import { type FileGuard, openFileGuard } from './file/guard.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from '../../../guards/guard.ts'
export type { FileGuard, Files } from './file/guard.ts'

export interface FileGuardOptions extends GuardOptions {
  /** A folder on a local disk. Nobody but the guard may write to the files that it protects, and to `.holdfast` in it. */
  readonly folder: string
  readonly clock?: Clock
}

export function fileGuard(options: FileGuardOptions): FileGuard {
  const settings = checkGuardOptions(options, ['folder'])
  return openFileGuard(new GuardedFolder(options.folder), settings)
}
