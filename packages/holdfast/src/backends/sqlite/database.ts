/** A thin layer over `node:sqlite`: typed rows, counted statements, and transactions that say when they are busy. */
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import { isBusy } from '../../clients/sqlite/index.ts'
import type { Synchronous } from './open.ts'
import type { Statistics } from './statistics.ts'

/** A prepared statement. Integers are numbers: tokens stay below 2^53. */
export class Query<Row> {
  readonly #statement: StatementSync
  readonly #order: readonly number[]
  readonly #statistics: Statistics

  /** Parameters are numbered, so that one value can stand in several places. Not every release of Node binds those. */
  constructor(connection: DatabaseSync, sql: string, statistics: Statistics) {
    const order: number[] = []
    const plain = sql.replace(/\?(\d+)/g, (_, number: string) => {
      order.push(Number(number) - 1)
      return '?'
    })
    this.#statement = connection.prepare(plain)
    this.#order = order
    this.#statistics = statistics
  }

  first(...values: SQLInputValue[]): Row | undefined {
    return this.#statement.get(...this.#inOrder(values)) as Row | undefined
  }

  all(...values: SQLInputValue[]): Row[] {
    return this.#statement.all(...this.#inOrder(values)) as Row[]
  }

  /** How many rows it changed. */
  run(...values: SQLInputValue[]): number {
    return Number(this.#statement.run(...this.#inOrder(values)).changes)
  }

  #inOrder(values: readonly SQLInputValue[]): SQLInputValue[] {
    this.#statistics.statements++
    const ordered: SQLInputValue[] = []
    for (const index of this.#order) ordered.push(values[index] as SQLInputValue)
    return ordered
  }
}

export class Database {
  readonly statistics: Statistics
  readonly #connection: DatabaseSync
  readonly #synchronous: Synchronous
  readonly #begin: StatementSync
  readonly #commit: StatementSync

  constructor(connection: DatabaseSync, synchronous: Synchronous, statistics: Statistics) {
    this.#connection = connection
    this.#synchronous = synchronous
    this.statistics = statistics
    this.#begin = connection.prepare('BEGIN IMMEDIATE')
    this.#commit = connection.prepare('COMMIT')
  }

  query<Row = never>(sql: string): Query<Row> {
    return new Query(this.#connection, sql, this.statistics)
  }

  /** False: another connection has the write lock, and nothing has begun. */
  begin(): boolean {
    try {
      this.#begin.run()
      return true
    } catch (error) {
      if (!isBusy(error)) throw error
      this.statistics.busyRetries++
      return false
    }
  }

  commit(): void {
    this.statistics.transactions++
    this.#commit.run()
  }

  /** After some errors SQLite has already rolled back by itself. */
  rollBack(): void {
    try {
      this.#connection.exec('ROLLBACK')
    } catch {}
  }

  /** What is committed within `work` is on the disk when it returns, and not only in the system's memory. */
  durably<T>(work: () => T): T {
    this.#connection.exec('PRAGMA synchronous = FULL')
    try {
      return work()
    } finally {
      this.#connection.exec(`PRAGMA synchronous = ${this.#synchronous}`)
    }
  }

  close(): void {
    this.#connection.close()
  }
}
