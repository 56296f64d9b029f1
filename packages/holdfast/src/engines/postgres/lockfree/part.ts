/** Tables that are made at the first use, and statements on them. */

import type { Clock } from '../../../base/clock.ts'
import { quote, UnsupportedError } from '../../../base/errors.ts'
import {
  insistOnTransaction,
  type Parameter,
  type PostgresDatabase,
  type QueryOptions,
  type Row,
  type SqlRunner,
  serverStateOf,
  TRANSACTION_ID,
  typedStep,
} from '../client/index.ts'
import { prepareTables, type TablePart } from '../tables/tables.ts'

/** No such table, or no such schema. */
const MISSING = ['42P01', '3F000']

/** Where the tables are. */
export interface Home {
  readonly database: PostgresDatabase
  readonly schema: string
  /** Whether they may be created. */
  readonly create: boolean
  readonly clock: Clock
}

export class Part {
  readonly #part: TablePart
  readonly #home: Home
  #origin: Promise<string> | undefined

  constructor(part: TablePart, home: Home) {
    this.#part = part
    this.#home = home
  }

  /** Made once with the tables; copies and backups carry it along. */
  origin(): Promise<string> {
    const { database, schema } = this.#home
    this.#origin ??= prepareTables(database, this.#part, schema, this.#home).catch((error: unknown) => {
      this.#origin = undefined
      throw error
    })
    return this.#origin
  }

  /** Runs in a transaction of the user's, if there is one; the tables must be there then. */
  async query(
    text: string,
    parameters: readonly Parameter[],
    runner?: SqlRunner,
    options: QueryOptions = {},
  ): Promise<readonly Row[]> {
    if (runner === undefined) {
      await this.origin()
      return typedStep(() => this.#home.database.query(text, parameters, options))
    }
    await typedStep(() => insistOnOne(runner))
    try {
      return await typedStep(() => runner.query(text, parameters))
    } catch (error) {
      if (!MISSING.includes(serverStateOf(error) ?? '')) throw error
      throw new UnsupportedError(
        `postgres: the schema ${quote(this.#home.schema)} has no tables for ${this.#part.part}, and they are not made in a ` +
          'transaction of yours. Roll it back, and call ready() before you begin another.',
        { cause: error },
      )
    }
  }
}

/**
 * Results must be stored with the user's own writes, or not at all; given a pool, or a connection on which nothing
 * was begun, it would be stored by itself.
 */
async function insistOnOne(runner: SqlRunner): Promise<void> {
  const [row] = await runner.query(`SELECT ${TRANSACTION_ID}, $1::text`, [''])
  const otherwise =
    'must be inside a transaction: begin one first, on a connection of its own, so that this and your own writes are one step.'
  await insistOnTransaction(runner, row?.[0], otherwise)
}
