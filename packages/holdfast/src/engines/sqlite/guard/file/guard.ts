/** A guard on a folder: its runs, from the first look to the end. The protocol stands in `file-guard.ts`. */
import {
  ClosedError,
  ConflictError,
  InvalidArgumentError,
  quote,
  UnsupportedError,
} from '../../../../base/errors.ts'
import { type Random, systemRandom } from '../../../../base/ids.ts'
import { SerialQueue } from '../../../../base/serial-queue.ts'
import { decide, pass } from '../../../../guards/checkpoint.ts'
import type { Guard } from '../../../../guards/guard.ts'
import { type Entry, GuardBase } from '../../../../guards/guard-base.ts'
import type { Remembered } from '../../../../guards/rule.ts'
import type { GuardSettings } from '../../../../guards/settings.ts'
import {
  ownStep,
  prepare,
  type SqliteDatabase,
  type TransactionTerms,
  transact,
  whileBusy,
} from '../../client/index.ts'
import { ensureLayout } from '../layout.ts'
import { SqliteStore } from '../store.ts'
import type { GuardedFolder, Rename } from './folder.ts'
import { RedoLog } from './redo-log.ts'

/** Files of the folder, as an effect sees them. Paths are relative to the folder. */
export interface Files {
  /** Content of a file; null if there is none. Shuts out every older holder first. */
  read(path: string): Promise<Uint8Array | null>
  /**
   * Replaces the whole file when the effect has ended; of two writes to one, the later call counts. Its folder must exist. A write that
   * fails fails its run, and is waited for although the effect does not.
   */
  write(path: string, content: string | Uint8Array): Promise<void>
}

export interface FileGuard extends Guard<Files>, AsyncDisposable {
  /** Waits for the runs that were asked for, and closes the file of marks. */
  close(): Promise<void>
}

export function openFileGuard(
  folder: GuardedFolder,
  settings: GuardSettings,
  random: Random = systemRandom,
): FileGuard {
  return new FolderGuard(folder, settings, random)
}

/** A run, from its first look to its end. */
interface Run {
  readonly entry: Entry
  readonly signal: AbortSignal | undefined
  readonly staged: Map<string, Staged>
  readonly writes: Promise<void>[]
  /** The first read, which raises the mark for all. */
  look: Promise<void> | undefined
  /** The last write under each name at that time; undefined before. */
  seen: ReadonlyMap<string, string | null> | undefined
  isOver: boolean
}

interface Staged {
  readonly rename: Rename
  readonly written: Promise<void>
}

class FolderGuard extends GuardBase<Files> implements FileGuard {
  readonly #folder: GuardedFolder
  readonly #random: Random
  readonly #database: SqliteDatabase & { close(): void }
  readonly #store: SqliteStore
  readonly #log: RedoLog
  readonly #queue = new SerialQueue()
  #isReady = false
  #closing: Promise<void> | undefined

  constructor(folder: GuardedFolder, settings: GuardSettings, random: Random) {
    super(settings)
    this.#folder = folder
    this.#random = random
    this.#database = folder.openMarks()
    this.#store = new SqliteStore(this.#database, settings.name, settings.clock)
    this.#log = new RedoLog(this.#database, folder, settings.name)
  }

  protected async runEntered<T>(
    entry: Entry,
    effect: (files: Files) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const run: Run = {
      entry,
      signal,
      staged: new Map(),
      writes: [],
      look: undefined,
      seen: undefined,
      isOver: false,
    }
    return this.#queued(signal, async () => {
      try {
        await whileBusy(this.#terms(signal), () =>
          decide(this.#store, this.settings, entry.proofs, entry.once),
        )
        const result = await effect({
          read: (path) => this.#read(run, path),
          write: (path, content) => {
            const writing = this.#stage(run, path, content)
            run.writes.push(writing)
            return writing
          },
        })
        run.isOver = true
        await Promise.all([...run.writes, run.look])
        signal?.throwIfAborted()
        if (run.staged.size > 0 || run.seen === undefined) await this.#commit(run)
        // Several reads are of one state, if nobody has written since the first.
        else await whileBusy(this.#terms(signal), () => this.#assertUnchanged(run))
        return result
      } finally {
        run.isOver = true
        await Promise.allSettled([...run.writes, run.look])
        this.#folder.discard(renamesOf(run))
      }
    })
  }

  async #read(run: Run, path: string): Promise<Uint8Array | null> {
    assertOpen(run)
    const target = this.#folder.check(path)
    const staged = run.staged.get(target)
    if (staged !== undefined) {
      await staged.written
      return this.#folder.content(staged.rename.from)
    }
    run.look ??= this.#judged(run, () => {
      run.seen = new Map(run.entry.proofs.map(({ fence }) => [fence.name, this.#log.lastWriteOf(fence.name)]))
    })
    await run.look
    return this.#folder.content(target)
  }

  async #stage(run: Run, path: string, content: string | Uint8Array): Promise<void> {
    assertOpen(run)
    const target = this.#folder.check(path)
    const token = run.entry.proofs[0]?.fence.token
    const rename = { from: this.#folder.stagingPath(`t${token}-${this.#random.id()}`), to: target }
    const replaced = run.staged.get(target)
    const written = this.#folder.stage(rename, content)
    run.staged.set(target, { rename, written })
    await written
    if (replaced === undefined) return
    await replaced.written
    this.#folder.discard([replaced.rename])
  }

  async #commit(run: Run): Promise<void> {
    const renames = renamesOf(run)
    this.#folder.syncStaged(renames)
    await this.#judged(run, () => {
      this.#assertUnchanged(run)
      if (renames.length > 0)
        this.#log.append(
          run.entry.proofs.map(({ fence }) => fence.name),
          this.#random.id(),
          renames,
        )
    })
    run.staged.clear()
    this.#folder.step('committed')
    // If this fails, whoever comes next does it.
    this.#folder.apply(renames, 'unknown')
    this.#folder.step('applied')
  }

  /** Step 2: one transaction, without anything that waits. */
  #judged(run: Run, further: () => void): Promise<void> {
    const { entry, signal } = run
    return transact(this.#terms(signal), async () =>
      ownStep(this.#database, () => {
        this.#folder.assertMarksInPlace()
        if (this.isTidyingDue()) this.#forgetNow(this.settings.forgetAfterMs)
        // A run that has read has passed already, and `once` must not refuse it because of itself.
        pass(this.#store, this.settings, entry.proofs, entry.once && run.seen === undefined)
        this.#log.redo()
        further()
        this.#folder.step('before the commit')
      }),
    )
  }

  #assertUnchanged({ entry, seen }: Run): void {
    if (seen === undefined) return
    decide(this.#store, this.settings, entry.proofs, false)
    for (const [name, nonce] of seen)
      if (this.#log.lastWriteOf(name) !== nonce)
        throw new ConflictError(`Another run under the fence for ${quote(name)} has written meanwhile.`)
  }

  protected async enterIn(): Promise<void> {
    throw new UnsupportedError(
      'A guard for files has no transaction to enter: hand all proofs to `run` at once.',
    )
  }

  protected async recall(name: string): Promise<Remembered | null> {
    const recall = () => this.#store.recall(name)
    if (this.#queue.inside !== undefined) return ownStep(this.#database, recall)
    return this.#queued(undefined, () => whileBusy(this.#terms(), recall))
  }

  protected forget(untouchedForMs: number): Promise<number> {
    return this.#queued(undefined, () =>
      transact(this.#terms(), async () => ownStep(this.#database, () => this.#forgetNow(untouchedForMs))),
    )
  }

  #forgetNow(untouchedForMs: number): number {
    const forgotten = untouchedForMs === Number.POSITIVE_INFINITY ? 0 : this.#store.forget(untouchedForMs)
    this.#log.forget(this.settings.clock.wallMs())
    return forgotten
  }

  async close(): Promise<void> {
    this.#queue.assertOutside()
    this.#closing ??= this.#queue.run(async () => this.#database.close())
    await this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #terms(signal?: AbortSignal): TransactionTerms {
    return { database: this.#database, clock: this.settings.clock, signal, who: 'guard' }
  }

  async #queued<T>(signal: AbortSignal | undefined, body: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) throw new ClosedError('The guard')
    const prepared = async () => {
      if (!this.#isReady) await this.#prepare(signal)
      return body()
    }
    return this.#queue.run(prepared, { signal })
  }

  /** The mark must survive a power cut, before any rename does. */
  async #prepare(signal: AbortSignal | undefined): Promise<void> {
    const terms = this.#terms(signal)
    await whileBusy(terms, () => prepare(this.#database, 'PRAGMA journal_mode = WAL').get())
    this.#database.exec('PRAGMA synchronous = FULL')
    await transact(terms, async () =>
      ownStep(this.#database, () => {
        ensureLayout(this.#database)
        this.#log.ensureTable()
      }),
    )
    this.#isReady = true
  }
}

const renamesOf = ({ staged }: Run): Rename[] => [...staged.values()].map(({ rename }) => rename)

function assertOpen({ isOver }: Run): void {
  if (isOver) throw new InvalidArgumentError('files', 'belong to a run that is over.')
}
