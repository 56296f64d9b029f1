/**
 * What the clients protect: one text that grows by an entry at a time and is always written as a whole, so whoever
 * writes by an old reading takes out what came in the meantime.
 */
import { DatabaseSync } from 'node:sqlite'

/** The part of a connection that is needed here: a guard hands out its own, inside a transaction. */
type Connection = Pick<DatabaseSync, 'prepare'>

export function openResource(path: string): DatabaseSync {
  const database = new DatabaseSync(path)
  database.exec(`
    PRAGMA busy_timeout = 5000;
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS document (id INTEGER PRIMARY KEY CHECK (id = 1), entries TEXT NOT NULL) STRICT;
    INSERT OR IGNORE INTO document VALUES (1, '[]');
  `)
  return database
}

export function readEntries(database: Connection): string[] {
  return JSON.parse(String(database.prepare('SELECT entries FROM document').get()?.entries))
}

export function writeEntries(database: Connection, entries: readonly string[]): void {
  database.prepare('UPDATE document SET entries = ?').run(JSON.stringify(entries))
}
