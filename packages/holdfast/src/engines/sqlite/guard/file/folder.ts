/** A folder whose files are guarded: its paths, its staged files, and renames that survive a power cut. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve, sep } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import {
  BackendUnavailableError,
  type CallOutcome,
  InvalidArgumentError,
  messageOf,
  quote,
  UnsupportedError,
} from '../../../../base/errors.ts'
import { type FileSystemTypeOf, openDatabase, ownStep, sharedFileSystemOf } from '../../client/index.ts'

/** Paths relative to the folder: it may be moved between a crash and the redo. */
export interface Rename {
  readonly from: string
  readonly to: string
}

const OWN_FOLDER = '.holdfast'
const MARKS = 'marks.db'

export class GuardedFolder {
  readonly #root: string
  readonly #onStep: (step: string) => void
  #marksId = ''

  /** `onStep`: for tests, which end the process at each step. */
  constructor(folder: unknown, onStep: (step: string) => void = () => {}, typeOf?: FileSystemTypeOf) {
    if (typeof folder !== 'string' || !statSync(folder, { throwIfNoEntry: false })?.isDirectory())
      throw new InvalidArgumentError('folder', 'must be the path of a folder that exists.')
    this.#root = realpathSync(folder)
    const shared = sharedFileSystemOf(this.#root, typeOf)
    if (shared !== undefined)
      throw new UnsupportedError(
        `The guard cannot use ${quote(folder)}: it is on a shared file system (${shared}), on which the locks of SQLite do not ` +
          'reach from one machine to another. Use a local disk, or keep the files in an object store.',
      )
    this.#onStep = onStep
  }

  step(name: string): void {
    this.#onStep(name)
  }

  openMarks(): DatabaseSync {
    const own = join(this.#root, OWN_FOLDER)
    return ownStep(own, () => {
      mkdirSync(own, { recursive: true })
      syncFolder(this.#root)
      if (statSync(own).dev !== statSync(this.#root).dev)
        throw new UnsupportedError(
          `${quote(own)} must be on the same file system as its folder, so that files can be renamed.`,
        )
      const marks = openDatabase(join(own, MARKS))
      this.#marksId = this.#idOfMarks()
      return marks
    })
  }

  /** Other processes would not see what is remembered in a file that is gone, or was replaced (T105, removed files). */
  assertMarksInPlace(): void {
    if (this.#idOfMarks() === this.#marksId) return
    const what = `the marks in ${quote(join(this.#root, OWN_FOLDER))} were removed or replaced. Start this process again`
    throw new BackendUnavailableError('files', what, 'not-applied')
  }

  #idOfMarks(): string {
    const found = statSync(join(this.#root, OWN_FOLDER, MARKS), { throwIfNoEntry: false })
    return `${found?.dev} ${found?.ino}`
  }

  /** The path of a file of the user's, relative to the folder. Neither it nor what it passes through may lead elsewhere. */
  check(path: unknown): string {
    if (typeof path !== 'string' || path === '' || path.includes('\0'))
      throw new InvalidArgumentError('path', 'must be the path of a file.')
    const target = resolve(this.#root, path)
    const parent = dirname(target)
    if (!statSync(parent, { throwIfNoEntry: false })?.isDirectory())
      throw new InvalidArgumentError('path', `must be in a folder that exists: ${quote(path)} is not.`)
    const real = realpathSync(parent)
    const isInside = real === this.#root || real.startsWith(this.#root + sep)
    const found = lstatSync(target, { throwIfNoEntry: false })
    const isFile = found === undefined || found.isFile()
    if (
      !isInside ||
      target === this.#root ||
      !isFile ||
      // Some file systems take upper case for lower case.
      relative(this.#root, join(real, 'x'))
        .toLowerCase()
        .startsWith(OWN_FOLDER + sep)
    )
      throw new InvalidArgumentError(
        'path',
        `must name a file in the folder of the guard: ${quote(path)} does not.`,
      )
    // Not by way of a link: two paths to one file would be two writes, in the wrong order.
    return relative(this.#root, join(real, basename(target)))
  }

  content(path: string): Buffer | null {
    try {
      return readFileSync(this.#absolute(path))
    } catch (error) {
      if (isMissing(error)) return null
      throw unavailable(path, messageOf(error), 'not-applied', error)
    }
  }

  stagingPath(name: string): string {
    return join(OWN_FOLDER, `.${name}`)
  }

  async stage({ from, to }: Rename, content: string | Uint8Array): Promise<void> {
    if (typeof content !== 'string' && !(content instanceof Uint8Array))
      throw new InvalidArgumentError('content', 'must be text or bytes.')
    const mode = statSync(this.#absolute(to), { throwIfNoEntry: false })?.mode
    try {
      const file = await open(this.#absolute(from), 'wx')
      try {
        if (mode !== undefined) await file.chmod(mode & 0o777)
        await file.writeFile(content)
        this.step('staged')
        await file.sync()
      } finally {
        await file.close()
      }
    } catch (error) {
      this.discard([{ from, to }])
      throw unavailable(to, messageOf(error), 'not-applied', error)
    }
    this.step('synced')
  }

  syncStaged(renames: readonly Rename[]): void {
    if (renames.length > 0) syncFolder(join(this.#root, OWN_FOLDER))
    this.step('folder synced')
  }

  /** Just before the commit: afterwards the rename must be possible. */
  assertStaged({ from, to }: Rename): void {
    this.check(to)
    if (!existsSync(this.#absolute(from)))
      throw new BackendUnavailableError(
        'files',
        'a staged file has vanished, so nothing was written',
        'not-applied',
      )
  }

  /** After the commit. Those that were done before, also by another process, are found done. `outcome`: of the caller's run. */
  apply(renames: readonly Rename[], outcome: CallOutcome): void {
    let path = ''
    try {
      for (const { from, to } of renames) {
        path = to
        this.#move(this.#absolute(from), this.#absolute(to))
        this.step('renamed')
      }
      for (const folder of new Set(renames.map(({ to }) => dirname(this.#absolute(to))))) syncFolder(folder)
    } catch (error) {
      const what = `it was committed, and cannot be put in its place: ${messageOf(error)}`
      throw unavailable(path, what, outcome, error)
    }
  }

  #move(from: string, to: string): void {
    if (!existsSync(from)) return
    // Its folder may have been removed since the commit. What was committed is written all the same.
    const made = mkdirSync(dirname(to), { recursive: true })
    try {
      renameSync(from, to)
    } catch (error) {
      if (!isMissing(error) || existsSync(from)) throw error
    }
    if (made === undefined) return
    for (let folder = to; folder !== dirname(made); ) {
      folder = dirname(folder)
      syncFolder(folder)
    }
  }

  discard(renames: readonly Rename[]): void {
    for (const { from } of renames) {
      try {
        rmSync(this.#absolute(from), { force: true })
      } catch {
        // It is found and removed after a day; the error that led here says more.
      }
    }
  }

  removeOrphans(committed: ReadonlySet<string>, untilMs: number): void {
    for (const name of readdirSync(join(this.#root, OWN_FOLDER))) {
      const path = join(OWN_FOLDER, name)
      const found = name.startsWith('.t')
        ? statSync(this.#absolute(path), { throwIfNoEntry: false })
        : undefined
      if (found !== undefined && !committed.has(path) && found.mtimeMs < untilMs)
        this.discard([{ from: path, to: '' }])
    }
  }

  #absolute(path: string): string {
    return join(this.#root, path)
  }
}

/**
 * Without it a rename may be lost in a power cut. A folder that is gone has nothing to keep. Windows has no such call, and keeps
 * renames in its journal.
 */
function syncFolder(path: string): void {
  if (process.platform === 'win32') return
  let folder: number
  try {
    folder = openSync(path, 'r')
  } catch (error) {
    if (isMissing(error)) return
    throw error
  }
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}

function isMissing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR'].includes(String((error as { code?: unknown }).code))
}

function unavailable(
  path: string,
  what: string,
  outcome: CallOutcome,
  cause: unknown,
): BackendUnavailableError {
  return new BackendUnavailableError('files', `${quote(path)}: ${what}`, outcome, { cause })
}
