/** A table to protect, and fences to show, for tests of guards on SQLite. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type Fence, makeFence } from '../src/base/fence.ts'
import type { SqliteDatabase } from '../src/engines/sqlite/guard/sqlite-guard.ts'

export function fence(token: bigint, name = 'n', grant = `g${token}`): Fence {
  return makeFence({ issuer: 'i', name, mode: 'exclusive', token, grant })
}

/** A file in a folder of its own, with the table in it. */
export async function createGuardedFile() {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-guard-'))
  const path = join(folder, 'data.db')
  const database = new DatabaseSync(path)
  createTable(database)
  const remove = async () => {
    if (database.isOpen) database.close()
    await rm(folder, { recursive: true })
  }
  return { folder, path, database, remove }
}

export function createTable(database: DatabaseSync): void {
  database.exec('CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, value TEXT NOT NULL)')
}

export function readCell(database: SqliteDatabase, key: string): string | undefined {
  const row = database.prepare('SELECT value FROM cells WHERE key = ?').get(key)
  return (row as { value: string } | undefined)?.value
}

export function writeCell(database: SqliteDatabase, key: string, value: string): void {
  database.prepare('INSERT OR REPLACE INTO cells (key, value) VALUES (?, ?)').run(key, value)
}
