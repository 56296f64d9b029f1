/** What the backend and its sessions share: the ways to the database, and how many of them may be open. */

import type { Clock } from '../../base/clock.ts'
import { BackendUnavailableError, ClosedError } from '../../base/errors.ts'
import type { Random } from '../../base/ids.ts'
import type { Parameter, PostgresDatabase, Row } from '../../clients/postgres/index.ts'
import { throwIfCancelled } from '../../kit/backend-kit.ts'
import type { Call } from '../../spi.ts'
import type { Ears } from './ears.ts'
import { type KeyChoice, Keys } from './keys.ts'
import { type Statement, type Statements, statementsFor } from './statements.ts'

export const NAME = 'postgres-advisory'

export interface LinksOptions {
  readonly database: PostgresDatabase
  readonly schema: string
  readonly namespace: string
  readonly clock: Clock
  readonly random: Random
  readonly key: KeyChoice | undefined
  readonly maxConnections: number
  readonly ears: Ears
  /** Ends the client, if it is ours. */
  readonly end?: () => Promise<void>
}

/** What it has done so far, for tests and measurements. */
export interface Statistics {
  /** Statements that were sent, of any kind: each is a round trip. */
  statements: number
  /** Connections that were opened. */
  connections: number
}

export class Links {
  readonly database: PostgresDatabase
  readonly namespace: string
  readonly clock: Clock
  readonly random: Random
  readonly keys: Keys
  readonly sql: Statements
  readonly ears: Ears
  readonly statistics: Statistics = { statements: 0, connections: 0 }
  /** Up to which token the server's log is known to be on its disk. */
  loggedUpTo = 0n
  readonly #options: LinksOptions
  #open = 0
  #closed = false

  constructor(options: LinksOptions) {
    this.#options = options
    this.database = options.database
    this.namespace = options.namespace
    this.clock = options.clock
    this.random = options.random
    this.ears = options.ears
    this.sql = statementsFor(options.schema)
    this.keys = new Keys(options.namespace, options.key, async (name) => {
      const [row] = await this.query(this.sql.hashtext, [name])
      return String(row?.[0])
    })
  }

  get maxConnections(): number {
    return this.#options.maxConnections
  }

  get closed(): boolean {
    return this.#closed
  }

  check(call: Call): void {
    if (this.#closed) throw new ClosedError(`The ${NAME} backend`)
    throwIfCancelled(NAME, call)
  }

  /** On any connection: for what depends on no session. */
  query(
    statement: Statement,
    parameters: readonly Parameter[],
    signal?: AbortSignal,
  ): Promise<readonly Row[]> {
    this.statistics.statements++
    return this.database.query(statement.text, parameters, signal === undefined ? {} : { signal })
  }

  /** Counts a connection that is about to be opened; a client without a limit of its own would take all of the server's. */
  countConnection(): void {
    const { maxConnections } = this.#options
    if (this.#open >= maxConnections)
      throw new BackendUnavailableError(
        NAME,
        `all ${maxConnections} connections that it may open are in use: each session and each wait has one of its own ` +
          '(maxConnections; with postgres.js also the max of the client)',
        'not-applied',
      )
    this.#open++
    this.statistics.connections++
  }

  returnSlot(): void {
    this.#open--
  }

  noteLogged(upTo: string): void {
    const logged = BigInt(upTo)
    if (logged > this.loggedUpTo) this.loggedUpTo = logged
  }

  /** From now on everything is refused. */
  stop(): void {
    this.#closed = true
  }

  async close(): Promise<void> {
    await this.#options.ears.leave()
    await this.database.close()
    await this.#options.end?.()
  }
}
