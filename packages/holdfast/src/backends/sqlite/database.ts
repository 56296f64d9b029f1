/** A thin layer over `node:sqlite`: typed rows, counted statements, and transactions that say when they are busy. */
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import { isBusy } from './failures.ts'
import type { Synchronous } from './open.ts'
import type { Statistics } from './statistics.ts'

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

  first(...parameters: SQLInputValue[]): Row | undefined {
    this.#statistics.statements++
    return this.#statement.get(...this.#spellOut(parameters)) as Row | undefined
  }

  all(...parameters: SQLInputValue[]): Row[] {
    this.#statistics.statements++
    return this.#statement.all(...this.#spellOut(parameters)) as Row[]
  }

  /** How many rows it changed. */
  run(...parameters: SQLInputValue[]): number {
    this.#statistics.statements++
    return Number(this.#statement.run(...this.#spellOut(parameters)).changes)
  }

  #spellOut(parameters: SQLInputValue[]): SQLInputValue[] {
    return this.#order === null ? parameters : this.#order.map((index) => parameters[index] as SQLInputValue)
  }
}

/**
 * The statements number their parameters, so that one value can stand in several places. Older releases of Node take
 * those for named ones and give them no value.
 */
function bindsNumberedParameters(connection: DatabaseSync): boolean {
  try {
    return connection.prepare('SELECT ?1 AS value').get('given')?.value === 'given'
  } catch {
    return false
  }
}

/** For those, the numbers are taken out, and say in which order the values are to be given. */
function withPlainParameters(sql: string): { sql: string; order: number[] } {
  const order: number[] = []
  const plain = sql.replace(/\?(\d+)/g, (_, number: string) => {
    order.push(Number(number) - 1)
    return '?'
  })
  return { sql: plain, order }
}

export class Database {
  readonly statistics: Statistics
  readonly #connection: DatabaseSync
  readonly #synchronous: Synchronous
  readonly #bindsNumbered: boolean
  readonly #begin: StatementSync
  readonly #commit: StatementSync
  readonly #rollback: StatementSync

  constructor(connection: DatabaseSync, synchronous: Synchronous, statistics: Statistics) {
    this.#connection = connection
    this.#synchronous = synchronous
    this.statistics = statistics
    this.#bindsNumbered = bindsNumberedParameters(connection)
    this.#begin = connection.prepare('BEGIN IMMEDIATE')
    this.#commit = connection.prepare('COMMIT')
    this.#rollback = connection.prepare('ROLLBACK')
  }

  query<Row>(sql: string): Query<Row> {
    return this.#prepare(sql, false)
  }

  /** For rows with tokens, which a JavaScript number cannot carry: all their integers are `bigint`. */
  bigQuery<Row>(sql: string): Query<Row> {
    return this.#prepare(sql, true)
  }

  #prepare<Row>(numbered: string, readBigInts: boolean): Query<Row> {
    const asItIs = { sql: numbered, order: null }
    const { sql, order } = this.#bindsNumbered ? asItIs : withPlainParameters(numbered)
    const statement = this.#connection.prepare(sql)
    statement.setReadBigInts(readBigInts)
    return new Query(statement, order, this.statistics)
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
      this.#rollback.run()
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
