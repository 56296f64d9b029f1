/** State that the backend and its sessions share: the open file, the way to write to it, the waiters and the watchers. */

import { type Clock, sleep } from '../../../base/clock.ts'
import { publicIdOf, type Random } from '../../../base/ids.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { WATCHED_FOR_MS } from '../../../kit/follow-log.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import { expire } from '../../../kit/rules.ts'
import type { Call, Finding } from '../../../spi.ts'
import { type FileSystemTypeOf, isBusy } from '../client/index.ts'
import { Database } from './database.ts'
import { diagnose } from './diagnosis.ts'
import { unavailable } from './failures.ts'
import type { MachineIdentity } from './machine.ts'
import type { OpenFile, Synchronous } from './open.ts'
import { FilePoll } from './poll.ts'
import { prepareStatements, type Statements } from './statements.ts'
import { noStatistics, type Statistics } from './statistics.ts'
import type { Transaction } from './transaction.ts'
import { SqliteWaitingRoom } from './waiting-room.ts'
import { WakeUps } from './wakeups.ts'
import { FileWatchers } from './watch.ts'
import { type Work, Writer } from './writer.ts'

export interface ConnectionOptions {
  readonly file: OpenFile
  readonly synchronous: Synchronous
  readonly namespace: string
  readonly machine: MachineIdentity
  readonly clock: Clock
  readonly random: Random
  readonly pollMs: number
  readonly fileSystemTypeOf: FileSystemTypeOf
  /** For tests: where the sockets are. */
  readonly socketFolder?: string
}

/** The parts that a connection's users share. */
export interface Context extends ConnectionOptions {
  readonly database: Database
  readonly sql: Statements
  readonly statistics: Statistics
}

const READ_AGAIN_AFTER_MS = 5

/**
 * The last connection that is closed writes its log into the file, and removes what is at the log's path. If the log was removed
 * while it was used, that is the log of newcomers, with all that they have committed. So such a connection is not closed, nor left
 * to the collector, which would close it (T105, unlinked logs).
 */
const leftOpen: Database[] = []

export class Connection {
  readonly namespace: string
  readonly clock: Clock
  readonly machine: MachineIdentity
  readonly statistics = noStatistics()
  readonly lifetime: Lifetime
  readonly writer: Writer
  readonly room: SqliteWaitingRoom
  readonly watchers: FileWatchers
  readonly wakeUps: WakeUps
  readonly #context: Context

  constructor(options: ConnectionOptions) {
    const { file, clock, namespace, machine, synchronous } = options
    const { statistics } = this
    this.namespace = namespace
    this.clock = clock
    this.machine = machine
    this.lifetime = new Lifetime('sqlite', clock)
    const database = new Database(file.connection, synchronous, statistics)
    const context = { ...options, database, sql: prepareStatements(database), statistics }
    this.#context = context
    this.writer = new Writer(context, this.#committed)
    const poll = new FilePoll(context, () => this.writer.write(neverCancelled, (tx) => expire(tx)))
    this.room = new SqliteWaitingRoom(context, poll)
    this.watchers = new FileWatchers(this, poll)
    this.wakeUps = new WakeUps(context, (ids) => this.room.wake(ids))
  }

  async write<T>(call: Call, work: Work<T>): Promise<T> {
    this.lifetime.begin(call)
    return this.writer.write(call, work)
  }

  /**
   * For what keeps sessions alive: it overtakes what waits to be written. Before anything is prolonged, this must still be
   * the file that newcomers find, with the same log, and still the same boot's (T105, unlinked logs). Replacing the file or its log, or
   * bringing it to another boot while it is open, ends the leases of processes that do not see it: within one TTL, because
   * a grant is believed for as long as the last prolongation of its session. Acquires are not checked.
   */
  async prolong<T>(call: Call, work: Work<T>): Promise<T> {
    this.lifetime.begin(call)
    return this.writer.writeFirst(call, (tx) => {
      const state = tx.sql.fileState.first()
      const problem = this.#problemOf(state)
      if (problem !== null) throw unavailable(problem, 'not-applied')
      expire(tx, state?.due)
      return work(tx)
    })
  }

  /** Keeps the log of events open for a while. */
  openLog(call: Call): Promise<void> {
    const id = this.#context.random.id()
    return this.write(call, ({ sql, nowMs }) => {
      sql.openLog.run(id, nowMs + WATCHED_FOR_MS)
    })
  }

  /** Readers see the last commit. They wait only while another process cleans up after one that was killed. */
  async read<T>(call: Call, look: (sql: Statements, nowMs: number) => T): Promise<T> {
    for (;;) {
      this.lifetime.begin(call)
      try {
        return look(this.#context.sql, this.clock.monotonicMs())
      } catch (error) {
        if (!isBusy(error)) throw unavailable('the file could not be read', 'not-applied', error)
      }
      await sleep(this.clock, READ_AGAIN_AFTER_MS, { keepsProcessAlive: true })
    }
  }

  #problemOf(
    found: { readonly boot_id: string; readonly time_namespace: string } | undefined,
  ): string | null {
    const displaced = this.#context.file.displaced()
    if (displaced !== null) return `the file at ${displaced} was removed or replaced`
    const { bootId, timeNamespaceOffset } = this.machine
    if (found?.boot_id === bootId && found.time_namespace === timeNamespaceOffset) return null
    return 'the file has been taken over by processes with another boot id'
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    const { file, synchronous, pollMs, fileSystemTypeOf } = this.#context
    const read = await this.read(call, (sql) => ({
      problem: this.#problemOf(sql.fileState.first()),
      sqliteVersion: sql.sqliteVersion.first()?.version ?? '',
    }))
    const hears = this.wakeUps.address() !== null
    return diagnose({ ...read, path: file.path, synchronous, pollMs, fileSystemTypeOf, hears })
  }

  close(): void {
    if (this.lifetime.isOver) return
    const closed = this.lifetime.end()
    this.room.close(closed)
    this.watchers.close(closed)
    this.writer.close()
    this.wakeUps.close()
    const { file, database } = this.#context
    const displaced = file.displaced()
    // SQLite looks after a removed file itself, but not after a removed log.
    if (displaced === null || displaced === file.path) database.close()
    else leftOpen.push(database)
  }

  readonly #committed = ({ endedSessions, handovers }: Transaction): void => {
    for (const session of endedSessions) this.room.sessionEnded(session)
    for (const { session, attempt, token, data, address } of handovers) {
      if (this.room.handOver(session, attempt, { token, data }) || address === null) continue
      this.wakeUps.send(address, publicIdOf(attempt))
    }
    this.room.armForNewcomers()
    this.watchers.changed()
  }
}
