/** A file in a folder of its own, with clients on a fake clock: what most tests of the sqlite backend start from. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { systemRandom } from '../../src/base/ids.ts'
import { openSqlite, type SqliteOptions, type Surroundings } from '../../src/engines/sqlite/locks/assemble.ts'
import type { SqliteBackend } from '../../src/engines/sqlite/locks/backend.ts'
import type { MachineIdentity } from '../../src/engines/sqlite/locks/machine.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/fake-clock.ts'
import { type NamingSession, namingGrants } from '../naming-grants.ts'

/** A session of this backend with all that it can do. */
export type FullSession = NamingSession<'fenced'>

export class SqliteRig implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
  readonly path = join(this.folder, 'locks.db')
  readonly socketFolder = join(this.folder, 'run')
  readonly clock: FakeClock = createFakeClock()
  machine: MachineIdentity = { bootId: 'boot 1', timeNamespaceOffset: '0 0' }
  clients: SqliteBackend[] = []

  /** Another client, as if in another process. */
  open(options: Partial<SqliteOptions> = {}, surroundings: Surroundings = {}): SqliteBackend {
    const { clock, machine, path, socketFolder } = this
    const client = openSqlite({ path, clock, machine, ...options }, { socketFolder, ...surroundings })
    this.clients.push(client)
    return client
  }

  /** A session in a client of its own, or in the given one. */
  async session(client = this.open(), ttlMs = 10_000): Promise<FullSession> {
    const session = await client.openSession({ id: this.id(), ttlMs, holder: 'tester' }, call())
    assert(session.enqueue !== undefined && session.setData !== undefined)
    return namingGrants(session)
  }

  /** The machine goes down with all of its processes, and comes up again. */
  async restart(): Promise<void> {
    await this.closeAll()
    this.machine = { ...this.machine, bootId: `after ${this.machine.bootId}` }
  }

  id(): string {
    return systemRandom.id()
  }

  /** Looks into the file, or changes it behind everybody's back. */
  sql(text: string, ...parameters: (string | number | bigint)[]): Record<string, unknown>[] {
    const connection = new DatabaseSync(this.path)
    try {
      return connection
        .prepare(text)
        .all(...parameters)
        .map((row) => ({ ...row }))
    } finally {
      connection.close()
    }
  }

  /** How many rows each table has, besides the one of `meta`. */
  rows(): Record<string, number> {
    const count = (table: string) => Number(this.sql(`SELECT count(*) AS n FROM ${table}`)[0]?.n)
    return Object.fromEntries(
      ['sessions', 'holders', 'waiters', 'marks', 'names'].map((table) => [table, count(table)]),
    )
  }

  /** Lets real time pass until it is so; the fake clock stands still. */
  async until(what: string, holds: () => boolean): Promise<void> {
    for (let turn = 0; !holds(); turn++) {
      assert(turn < 2_000, `in vain: ${what}`)
      await (turn < 50 ? this.clock.settle() : new Promise((resolve) => setTimeout(resolve, 1)))
    }
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

/** The state of a promise so far. */
export function watch<T>(promise: Promise<T>) {
  const seen: { state: 'pending' | 'fulfilled' | 'rejected'; value?: T; error?: unknown } = {
    state: 'pending',
  }
  promise.then(
    (value) => Object.assign(seen, { state: 'fulfilled', value }),
    (error: unknown) => Object.assign(seen, { state: 'rejected', error }),
  )
  return seen
}
