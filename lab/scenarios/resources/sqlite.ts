/** The document in a SQLite file, which all clients write to by themselves. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import type { Fence } from '../../../packages/holdfast/src/base/fence.ts'
import { sqliteGuard } from '../../../packages/holdfast/src/engines/sqlite/guard/sqlite-guard.ts'
import type { Addresses } from '../engines/engine.ts'
import { isFileBusy, temporaryFolder } from '../files.ts'
import { nowMs } from '../observer.ts'
import {
  ChangedMeanwhileError,
  type Document,
  needFence,
  type OpenResource,
  type Protection,
  type Resource,
  UnknownOutcomeError,
} from './resource.ts'

export const sqliteResource: Resource = {
  name: 'sqlite',
  async start() {
    const folder = temporaryFolder()
    const path = join(folder.path, 'ledger.db')
    // Made before the clients come: two that change the journal of a new file at once do not wait for each other.
    openDocument(path).close()
    return {
      addresses: [path],
      isBlocked: async () => isFileBusy(path),
      [Symbol.asyncDispose]: async () => folder.remove(),
    }
  },
  async open([path = '']: Addresses, protection: Protection) {
    return openProtected(openDocument(path), protection)
  },
}

function openProtected(database: DatabaseSync, protection: Protection): OpenResource {
  const guard = protection === 'guard' ? sqliteGuard({ database, name: 'guard' }) : null
  /** One atomic step of the file; its time is taken inside, so that all of them are in their true order. */
  const step = async <T>(fence: Fence | undefined, effect: () => T): Promise<{ at: number; value: T }> => {
    const timed = () => ({ at: nowMs(), value: effect() })
    try {
      return await (guard === null ? timed() : guard.run(needFence(fence), timed))
    } catch (error) {
      throw isUnclear(error) ? new UnknownOutcomeError(error) : error
    }
  }
  return {
    guard: guard && { name: guard.name, isTimed: true },
    async read(fence) {
      const { at, value } = await step(fence, () => readDocument(database))
      return { ...value, at }
    },
    async write(entries, before, fence) {
      const expected = protection === 'compare-and-set' ? before.version : null
      const { at } = await step(fence, () => writeDocument(database, entries, expected))
      return { at }
    },
    async close() {
      await guard?.close()
      database.close()
    },
  }
}

function openDocument(path: string): DatabaseSync {
  const database = new DatabaseSync(path)
  database.exec(`
    PRAGMA busy_timeout = 5000;
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS document (
      id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, entries TEXT NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO document VALUES (1, 0, '[]');
  `)
  return database
}

function readDocument(database: DatabaseSync): Document {
  const row = database.prepare('SELECT version, entries FROM document').get()
  return { version: Number(row?.version), entries: JSON.parse(String(row?.entries)) }
}

/** With an expected version it is a compare-and-set: one statement, so nothing comes in between. */
function writeDocument(database: DatabaseSync, entries: readonly string[], expected: number | null): void {
  const { changes } = database
    .prepare('UPDATE document SET entries = ?1, version = version + 1 WHERE ?2 IS NULL OR version = ?2')
    .run(JSON.stringify(entries), expected)
  if (changes === 0) throw new ChangedMeanwhileError()
}

function isUnclear(error: unknown): boolean {
  const isSqliteError = (error as NodeJS.ErrnoException).code === 'ERR_SQLITE_ERROR'
  return isSqliteError || isHoldfastError(error, 'BACKEND_UNAVAILABLE')
}
