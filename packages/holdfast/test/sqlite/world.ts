/** A file in a folder of its own, with clients on a fake clock: what most tests of the sqlite backend start from. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { SqliteBackend } from '../../src/backends/sqlite/backend.ts'
import { openSqlite, type SqliteOptions } from '../../src/backends/sqlite/index.ts'
import type { MachineIdentity } from '../../src/backends/sqlite/machine.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/fake-clock.ts'

export class SqliteWorld implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
  readonly path = join(this.folder, 'locks.db')
  readonly clock: FakeClock = createFakeClock()
  machine: MachineIdentity = { bootId: 'boot 1', timeNamespaceOffset: '0 0' }
  clients: SqliteBackend[] = []

  /** Another client, as if in another process. */
  open(options: Partial<SqliteOptions> = {}): SqliteBackend {
    const { clock, machine, path } = this
    const client = openSqlite({ path, clock, machine, ...options }, { socketFolder: join(this.folder, 'run') })
    this.clients.push(client)
    return client
  }

  /** The machine goes down with all of its processes, and comes up again. */
  async restart(): Promise<void> {
    await this.closeAll()
    this.machine = { ...this.machine, bootId: `after ${this.machine.bootId}` }
  }

  /** Looks into the file, or changes it behind everybody's back. */
  sql(text: string, ...parameters: (string | number | bigint)[]): Record<string, unknown>[] {
    const connection = new DatabaseSync(this.path)
    try {
      return connection.prepare(text).all(...parameters).map((row) => ({ ...row }))
    } finally {
      connection.close()
    }
  }

  /** How many rows each table has, besides the one of `meta`. */
  rows(): Record<string, number> {
    const count = (table: string) => Number(this.sql(`SELECT count(*) AS n FROM ${table}`)[0]?.n)
    return Object.fromEntries(['sessions', 'holders', 'waiters', 'marks', 'names'].map((table) => [table, count(table)]))
  }

  async closeAll(): Promise<void> {
    const { clients } = this
    this.clients = []
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.closeAll()
    rmSync(this.folder, { recursive: true, force: true })
  }
}
