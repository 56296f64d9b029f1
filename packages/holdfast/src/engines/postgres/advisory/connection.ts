/** State that the backend and its sessions share: the way to the database, the keys of names, and the end of the backend. */
import type { Clock } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import type { Call } from '../../../spi.ts'
import type { Parameter, PostgresDatabase, Row } from '../client/index.ts'
import { type KeyChoice, Keys } from './keys.ts'
import { SessionListener } from './listener.ts'
import { type Statement, type Statements, statementsFor } from './statements.ts'

export const NAME = 'postgres-advisory'

export interface ConnectionOptions {
  readonly database: PostgresDatabase
  readonly schema: string
  readonly namespace: string
  readonly clock: Clock
  readonly random: Random
  readonly key: KeyChoice | undefined
  /** Ends the client, if it is ours. */
  readonly end?: () => Promise<void>
}

export class Connection {
  readonly database: PostgresDatabase
  readonly namespace: string
  readonly clock: Clock
  readonly random: Random
  readonly keys: Keys
  readonly sql: Statements
  readonly lifetime: Lifetime
  readonly listener: SessionListener
  /** For tests and measurements: how many statements were sent, each a round trip. */
  readonly statistics = { statements: 0 }
  /** Up to which token the server's log is known to be on its disk. */
  loggedUpTo = 0n
  readonly #end: (() => Promise<void>) | undefined

  constructor({ database, schema, namespace, clock, random, key, end }: ConnectionOptions) {
    this.database = database
    this.namespace = namespace
    this.clock = clock
    this.random = random
    this.sql = statementsFor(schema)
    this.lifetime = new Lifetime(NAME, clock)
    this.listener = new SessionListener(database)
    this.keys = new Keys(namespace, key, async (name) => {
      const [row] = await this.query(this.sql.hashtext, [name], neverCancelled)
      return String(row?.[0])
    })
    this.#end = end
  }

  /** On any connection: for what depends on no session. */
  async query(statement: Statement, parameters: readonly Parameter[], call: Call): Promise<readonly Row[]> {
    this.lifetime.begin(call)
    this.statistics.statements++
    return this.database.query(statement.text, parameters, { signal: call.signal })
  }

  async close(): Promise<void> {
    // Together: a listener that is being opened ends with the database.
    await Promise.all([this.listener.close(), this.database.close()])
    await this.#end?.()
  }
}
