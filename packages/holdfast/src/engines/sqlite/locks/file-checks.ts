/**
 * Whether a path can be our file, as far as it can be told without opening it. Only SQLite may open the file: when a
 * process closes any descriptor of it, the system drops all locks that the process has on it, also those of another
 * client, and a neighbour that closes the file then believes to be the last and removes the log under our feet.
 */
import { accessSync, constants, readFileSync, realpathSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { InvalidArgumentError, quote } from '../../../base/errors.ts'
import { checkFolderOf, type FileSystemTypeOf, sharedFileSystemOf } from '../client/index.ts'
import { foreignFile, readOnly, unusable } from './failures.ts'

const SMALLEST_DATABASE_BYTES = 512

/** Returns the absolute path, or throws a typed error that says what is wrong with it. */
export function checkFile(path: string, typeOf: FileSystemTypeOf): string {
  const file = resolve(path)
  const folder = checkFolderOf(file)
  // Elsewhere than on Linux it is an assumption, and `info.assumptions` says so.
  const shared = sharedFileSystemOf(folder, typeOf)
  if (shared !== undefined)
    throw unusable(
      folder,
      `is on a shared file system (${shared}). The file locks and the shared memory that SQLite relies on do not reach ` +
        'from one machine to another there, so two holders could have one name. Put the file on a local disk, or use an ' +
        'engine with a server for locks across machines.',
    )
  checkWritable(folder)
  const found = statSync(file, { throwIfNoEntry: false })
  if (found === undefined) return file
  if (!found.isFile())
    throw new InvalidArgumentError('path', `must name a file; ${quote(file)} is something else.`)
  checkWritable(file)
  checkOnePath(file)
  // SQLite would take a file of one byte for an empty one, and overwrite it.
  if (found.size > 0 && found.size < SMALLEST_DATABASE_BYTES)
    throw foreignFile(file, 'is not an SQLite database')
  return file
}

/**
 * SQLite names its log after the path. One file under two paths, by a hard link or because the file itself was mounted
 * (as containers do with a single file), would have two logs, and two holders for every name.
 */
export function checkOnePath(file: string, mounts: () => string = readMounts): void {
  if (statSync(file).nlink > 1 || mountPoints(mounts()).includes(realpathSync(file)))
    throw unusable(
      file,
      'has more than one path (a hard link, or the file itself is mounted), and a process that uses another one would not ' +
        'see its locks. Use one path only; into a container, mount the folder and not the file.',
    )
}

function readMounts(): string {
  try {
    return process.platform === 'linux' ? readFileSync('/proc/self/mountinfo', 'utf8') : ''
  } catch {
    return ''
  }
}

/** The fifth field of every line, with blanks and the like in octal. */
function mountPoints(mounts: string): readonly string[] {
  const unescaped = (_: string, code: string) => String.fromCharCode(Number.parseInt(code, 8))
  return mounts.split('\n').map((line) => (line.split(' ')[4] ?? '').replace(/\\([0-7]{3})/g, unescaped))
}

/** SQLite keeps two more files beside its own, so the folder counts as well. */
function checkWritable(path: string): void {
  try {
    accessSync(path, constants.R_OK | constants.W_OK)
  } catch (cause) {
    throw readOnly(path, cause)
  }
}
