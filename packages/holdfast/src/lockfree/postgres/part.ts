/** Tables that are made at the first use, and statements on them. */

import type { Clock } from '../../base/clock.ts'
import { quote, UnsupportedError } from '../../base/errors.ts'
import {
  insistOnTransaction,
  type Parameter,
  type PostgresDatabase,
  prepareTables,
  type QueryOptions,
  type Row,
  type SqlRunner,
  serverStateOf,
  type TablePart,
  TRANSACTION_ID,
  typedStep,
} from '../../clients/postgres/index.ts'

/** No such table, or no such schema. */
const MISSING = ['42P01', '3F000']

export class Part {
  readonly #database: PostgresDatabase
  readonly #part: TablePart
  readonly #schema: string
  readonly #create: boolean
  readonly #clock: Clock
  #origin: Promise<string> | undefined

  constructor(database: PostgresDatabase, part: TablePart, schema: string, create: boolean, clock: Clock) {
    this.#clock = clock
    this.#database = database
    this.#part = part
    this.#schema = schema
    this.#create = create
  }

  /** Made once with the tables; copies and backups carry it along. */
  origin(): Promise<string> {
    this.#origin ??= this.#prepare().catch((error: unknown) => {
      this.#origin = undefined
      throw error
    })
    return this.#origin
  }

  #prepare(): Promise<string> {
    const [create, clock] = [this.#create, this.#clock]
    return prepareTables(this.#database, this.#part, this.#schema, { create, clock })
  }

  /** In a transaction of the user's, if there is one; the tables must be there then. */
  async query(
    text: string,
    parameters: readonly Parameter[],
    runner?: SqlRunner,
    options: QueryOptions = {},
  ): Promise<readonly Row[]> {
    if (runner === undefined) {
      await this.origin()
      return typedStep(() => this.#database.query(text, parameters, options))
    }
    await typedStep(() => insistOnOne(runner))
    try {
      return await typedStep(() => runner.query(text, parameters))
    } catch (error) {
      if (!MISSING.includes(serverStateOf(error) ?? '')) throw error
      throw new UnsupportedError(
        `postgres: the schema ${quote(this.#schema)} has no tables for ${this.#part.part}, and they are not made in a ` +
          'transaction of yours. Roll it back, and call ready() before you begin another.',
        { cause: error },
      )
    }
  }
}

/**
 * What is stored must be stored with the user's own writes, or not at all; given a pool, or a connection on which nothing
 * was begun, it would be stored by itself.
 */
async function insistOnOne(runner: SqlRunner): Promise<void> {
  const [row] = await runner.query(`SELECT ${TRANSACTION_ID}, $1::text`, [''])
  const otherwise =
    'must be inside a transaction: begin one first, on a connection of its own, so that this and your own writes are one step.'
  await insistOnTransaction(runner, row?.[0], otherwise)
}
