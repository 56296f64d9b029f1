/**
 * The ledger that the workers protect: its lines carry a running balance. A line is put where the last reader saw a
 * free line, as in a file, so a worker that writes by an old reading writes over a line that came in the meantime.
 */
import { DatabaseSync } from 'node:sqlite'
import type { Entry } from './events.ts'

export const amount = 10

export interface Line {
  readonly line: number
  readonly entry: string
  readonly balance: number
  readonly token: string
}

export function openLedger(path: string): DatabaseSync {
  const database = new DatabaseSync(path)
  database.exec(`
    PRAGMA busy_timeout = 5000;
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS ledger (
      line INTEGER PRIMARY KEY, entry TEXT NOT NULL, balance INTEGER NOT NULL, token TEXT NOT NULL
    ) STRICT;
  `)
  return database
}

/** The part of a connection that is needed here: a guard hands out its own, inside a transaction. */
export type Connection = Pick<DatabaseSync, 'prepare'>

export function nextEntry(database: Connection, id: string): Entry {
  const last = database.prepare('SELECT line, balance FROM ledger ORDER BY line DESC LIMIT 1').get()
  return { id, line: Number(last?.line ?? 0) + 1, balance: Number(last?.balance ?? 0) + amount }
}

export function putEntry(database: Connection, { id, line, balance }: Entry, token: string): void {
  database
    .prepare('INSERT OR REPLACE INTO ledger (line, entry, balance, token) VALUES (?, ?, ?, ?)')
    .run(line, id, balance, token)
}

export function allLines(path: string): Line[] {
  const database = openLedger(path)
  try {
    return database
      .prepare('SELECT line, entry, balance, token FROM ledger ORDER BY line')
      .all()
      .map((row) => ({
        line: Number(row.line),
        entry: String(row.entry),
        balance: Number(row.balance),
        token: String(row.token),
      }))
  } finally {
    database.close()
  }
}
