/** A thin layer over `node:sqlite`: typed rows, counted statements, and transactions that say when they are busy. */
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import { isBusy } from '../client/index.ts'
import type { Synchronous } from './open.ts'
import type { Statistics } from './statistics.ts'

/** A prepared statement. Integers are numbers: tokens stay below 2^53. */
export class Query<Row> {
  readonly #statement: StatementSync
  /** Which value goes where; null if that is the same order. */
  readonly #order: readonly number[] | null
  readonly #statistics: Statistics

  constructor(statement: StatementSync, order: readonly number[] | null, statistics: Statistics) {
    this.#statement = statement
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

  #inOrder(values: SQLInputValue[]): SQLInputValue[] {
    this.#statistics.statements++
    return this.#order === null ? values : this.#order.map((index) => values[index] as SQLInputValue)
  }
}

/** Numbered parameters are not bound by every release of Node; some get no value. */
function bindsNumberedParameters(connection: DatabaseSync): boolean {
  try {
    return connection.prepare('SELECT ?1 AS value').get('given')?.value === 'given'
  } catch {
    return false
  }
}

export class Database {
  readonly statistics: Statistics
  readonly #connection: DatabaseSync
  readonly #synchronous: Synchronous
  readonly #bindsNumbered: boolean
  readonly #begin: StatementSync
  readonly #commit: StatementSync

  constructor(connection: DatabaseSync, synchronous: Synchronous, statistics: Statistics) {
    this.#connection = connection
    this.#synchronous = synchronous
    this.statistics = statistics
    this.#bindsNumbered = bindsNumberedParameters(connection)
    this.#begin = connection.prepare('BEGIN IMMEDIATE')
    this.#commit = connection.prepare('COMMIT')
  }

  /** Parameters are numbered, so that one value can stand in several places. */
  query<Row = never>(sql: string): Query<Row> {
    if (this.#bindsNumbered) return new Query(this.#connection.prepare(sql), null, this.statistics)
    const order: number[] = []
    const plain = sql.replace(/\?(\d+)/g, (_, number: string) => {
      order.push(Number(number) - 1)
      return '?'
    })
    return new Query(this.#connection.prepare(plain), order, this.statistics)
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

  /** SQLite has already rolled back by itself after some errors. */
  rollBack(): void {
    try {
      this.#connection.exec('ROLLBACK')
    } catch {}
  }

  /** Commits within `work` are on the disk when it returns, and not only in the system's memory. */
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
