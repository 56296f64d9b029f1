/** Renames that were committed, as rows: whoever has the transaction finishes those that are open, before anything else. */
import { prepare, type SqliteDatabase } from '../../client/index.ts'
import type { GuardedFolder, Rename } from './folder.ts'

const table = `
  -- The last write under each name. \`renames\` is null once they are known to be done and on the disk.
  CREATE TABLE IF NOT EXISTS holdfast_file_writes (
    guard   TEXT NOT NULL,
    name    TEXT NOT NULL,
    nonce   TEXT NOT NULL,
    renames TEXT,
    PRIMARY KEY (guard, name)
  ) STRICT, WITHOUT ROWID;

  CREATE INDEX IF NOT EXISTS holdfast_file_writes_open ON holdfast_file_writes (guard) WHERE renames IS NOT NULL;
`

/** A staged file without a commit belongs to a run that goes on, or to a process that has died: after a day, to the latter. */
const ORPHAN_AFTER_MS = 86_400_000

export class RedoLog {
  readonly #database: SqliteDatabase
  readonly #folder: GuardedFolder
  readonly #guard: string

  constructor(database: SqliteDatabase, folder: GuardedFolder, guard: string) {
    this.#database = database
    this.#folder = folder
    this.#guard = guard
  }

  ensureTable(): void {
    this.#database.exec(table)
  }

  lastWriteOf(name: string): string | null {
    const last = prepare(
      this.#database,
      'SELECT nonce FROM holdfast_file_writes WHERE guard = ? AND name = ?',
    )
    return (last.get(this.#guard, name) as { nonce: string } | undefined)?.nonce ?? null
  }

  /** Inside the transaction that judges; the names are those of the proofs. */
  append(names: readonly string[], nonce: string, renames: readonly Rename[]): void {
    for (const rename of renames) this.#folder.assertStaged(rename)
    const write = prepare(this.#database, 'INSERT OR REPLACE INTO holdfast_file_writes VALUES (?, ?, ?, ?)')
    for (const [index, name] of names.entries())
      write.run(this.#guard, name, nonce, index === 0 ? JSON.stringify(renames) : null)
    this.#folder.step('logged')
  }

  /** Finishes the renames of predecessors, of whatever guard. Inside a transaction, so no other process does the same. */
  redo(): void {
    const open = this.#open()
    if (open.length === 0) return
    this.#folder.apply(open, 'not-applied')
    this.#folder.step('redone')
    this.#database.exec('UPDATE holdfast_file_writes SET renames = NULL WHERE renames IS NOT NULL')
  }

  forget(nowMs: number): void {
    this.#folder.removeOrphans(new Set(this.#open().map(({ from }) => from)), nowMs - ORPHAN_AFTER_MS)
    this.#database.exec(`
      DELETE FROM holdfast_file_writes WHERE renames IS NULL AND NOT EXISTS (
        SELECT 1 FROM holdfast_guard_names n
        WHERE n.guard = holdfast_file_writes.guard AND n.name = holdfast_file_writes.name)`)
  }

  #open(): Rename[] {
    const all = prepare(
      this.#database,
      'SELECT json_group_array(json(renames)) AS found FROM holdfast_file_writes WHERE renames IS NOT NULL',
    ).get() as { found: string }
    return (JSON.parse(all.found) as Rename[][]).flat()
  }
}
