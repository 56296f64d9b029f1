/** Tables that are made at the first use, and statements on them. */

import { unlessAborted } from '../../base/aborting.ts'
import type { Clock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError, InvalidArgumentError, quote, UnsupportedError } from '../../base/errors.ts'
import {
  ensureTables,
  type Parameter,
  type PostgresDatabase,
  type QueryOptions,
  type Row,
  type SqlRunner,
  serverStateOf,
  type TablePart,
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
    this.#origin ??= this.#ensure().catch((error: unknown) => {
      this.#origin = undefined
      throw error
    })
    return this.#origin
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
    await typedStep(() => insistOnTransaction(runner))
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

  /** Everybody waits for the first who asks, so that one must not wait for ever: the next has another connection. */
  async #ensure(): Promise<string> {
    const limitMs = defaults.callTimeoutMs
    const tooLong = new AbortController()
    const timer = this.#clock.setTimer(limitMs, () => tooLong.abort(), { keepsProcessAlive: true })
    const { signal } = tooLong
    try {
      const ensuring = typedStep(() =>
        this.#database.transaction(
          (tx) => ensureTables(tx, this.#part, this.#schema, { create: this.#create }),
          { signal },
        ),
      )
      const { origin } = await unlessAborted(
        ensuring,
        signal,
        () => new BackendUnavailableError('postgres', `no answer within ${limitMs} ms`, 'unknown'),
      )
      return origin
    } finally {
      timer.cancel()
    }
  }
}

/**
 * What is stored must be stored with the user's own writes, or not at all; given a pool, or a connection on which nothing
 * was begun, it would be stored by itself. Two statements have the same transaction only if there is one around them.
 */
async function insistOnTransaction(runner: SqlRunner): Promise<void> {
  const ask = async () => (await runner.query('SELECT pg_current_xact_id()::text, $1::text', ['']))[0]?.[0]
  const first = await ask()
  if (typeof first !== 'string' || first !== (await ask()))
    throw new InvalidArgumentError(
      'tx',
      'must be inside a transaction: begin one first, on a connection of its own, so that this and your own writes are one step.',
    )
}
