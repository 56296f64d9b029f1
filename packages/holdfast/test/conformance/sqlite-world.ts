/** One SQLite file, with several backends on it as if in several processes. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { openSqlite } from '../../src/engines/sqlite/locks/assemble.ts'
import type { SqliteBackend } from '../../src/engines/sqlite/locks/backend.ts'
import { Clients, type Wrap } from '../../src/testing/conformance/clients.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'

export interface SqliteWorldOptions {
  readonly clock: Clock
  readonly passTime: (ms: number) => Promise<void>
  readonly ttlMs: number
  readonly resolutionMs: number
  readonly wrap?: Wrap<'fenced'>
}

/** Nothing here is about the disk, so nobody waits for it where the system keeps files in memory. */
const root = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

/** Nothing is random here, so that two runs of one case do the same number of things. */
const evenRandom = { id: () => systemRandom.id(), fraction: () => 0.5 }

export async function sqliteWorld(options: SqliteWorldOptions): Promise<World<'fenced'>> {
  const { wrap, ...time } = options
  const { clock } = time
  const folder = mkdtempSync(join(root, 'holdfast-conformance-'))
  const path = join(folder, 'locks.db')
  let boots = 1
  const opened: SqliteBackend[] = []
  const clients = new Clients(
    clock,
    (client, clock) => {
      const machine = { bootId: `boot ${boots}`, timeNamespaceOffset: '0 0' }
      const file = { path, clock, random: evenRandom, pollMs: 20, machine, ...client }
      const backend = openSqlite(file, { socketFolder: join(folder, 's') })
      opened.push(backend)
      return backend
    },
    wrap,
  )
  return {
    ...time,
    client: (client) => clients.add(client),
    delayAnswers: (ms) => clients.delayAnswers(ms),
    async deleteName(name) {
      const connection = new DatabaseSync(path)
      for (const table of ['holders', 'waiters', 'names'])
        connection.prepare(`DELETE FROM ${table} WHERE namespace = 'default' AND name = ?`).run(name)
      connection.close()
    },
    async restart() {
      await clients.close()
      boots++
    },
    async countCommands() {
      return opened.reduce((sum, { statistics }) => sum + statistics.statements + statistics.wakeUpsSent, 0)
    },
    async close() {
      await clients.close()
      rmSync(folder, { recursive: true })
    },
  }
}

export function sqliteWorldOnFakeClock(wrap?: Wrap<'fenced'>): Promise<World<'fenced'>> {
  const clock = createFakeClock()
  const time = { clock, passTime: (ms: number) => clock.advance(ms), ttlMs: 1_000, resolutionMs: 1 }
  return sqliteWorld({ ...time, ...(wrap && { wrap }) })
}
