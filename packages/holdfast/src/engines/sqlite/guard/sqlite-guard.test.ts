import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { createTable, readCell, writeCell } from '../../../../test/guard-table.ts'
import { describeGuard, type GuardWorld } from '../../../testing/describe-guard.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { sqliteGuard } from './sqlite-guard.ts'

interface Layout {
  readonly journal: 'wal' | 'delete'
  /** One connection for everything, or one for each guard, as if each lived in a process of its own. */
  readonly connections: 'one' | 'many'
}

async function createWorld({ journal, connections }: Layout): Promise<GuardWorld<DatabaseSync>> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-guard-'))
  const path = join(folder, 'data.db')
  const clock = createFakeClock()
  let opened: DatabaseSync[] = []
  let shared: DatabaseSync | undefined
  const open = () => {
    const database = new DatabaseSync(path)
    // No case pulls the plug, and the disk need not be waited for 5,000 times.
    database.exec('PRAGMA synchronous = off')
    opened.push(database)
    return database
  }
  const start = () => {
    shared = open()
    shared.exec(`PRAGMA journal_mode = ${journal}`)
    createTable(shared)
    return shared
  }
  const stop = () => {
    for (const database of opened) database.close()
    opened = []
  }
  let observer = start()
  return {
    guard: async (options) =>
      sqliteGuard({ ...options, database: connections === 'one' ? observer : open(), clock }),
    read: async (tx, key) => readCell(tx, key),
    write: async (tx, key, value) => writeCell(tx, key, value),
    stored: async (key) => readCell(observer, key),
    async transaction(_guard, body) {
      const database = open()
      database.exec('BEGIN IMMEDIATE')
      try {
        const result = await body(database)
        database.exec('COMMIT')
        return result
      } finally {
        if (database.isTransaction) database.exec('ROLLBACK')
      }
    },
    outsideTransaction: async () => open(),
    passTime: (ms) => clock.advance(ms),
    async reopen() {
      stop()
      observer = start()
    },
    async close() {
      stop()
      await rm(folder, { recursive: true })
    },
  }
}

for (const layout of [
  { journal: 'wal', connections: 'one' },
  { journal: 'delete', connections: 'many' },
] as const)
  describeGuard({
    name: `sqliteGuard (${layout.journal}, connections: ${layout.connections})`,
    describe,
    test,
    createWorld: () => createWorld(layout),
  })
