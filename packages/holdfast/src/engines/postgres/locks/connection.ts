/** State that the backend and its sessions share: the way to the database, waiters and watchers. */

import type { Clock } from '../../../base/clock.ts'
import { outcomeOf } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import type { Lane } from '../../../kit/lane.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import type { Call, Finding } from '../../../spi.ts'
import {
  type Parameter,
  type PostgresDatabase,
  type Row,
  readServerFacts,
  serverFindings,
  sqlStateOf,
} from '../client/index.ts'
import { type AnswerRow, openBatches, type Request } from './batches.ts'
import { Notifications } from './notifications.ts'
import { wrongIsolation } from './schema.ts'
import { namesOf, type Statements, statementsFor } from './statements.ts'
import { PostgresWaitingRoom } from './waiting-room.ts'
import { Watchers } from './watch.ts'

export interface ConnectionOptions {
  readonly database: PostgresDatabase
  readonly schema: string
  readonly namespace: string
  readonly clock: Clock
  readonly random: Random
  readonly pollMs: number
  /** Ends the client, if it is ours. */
  readonly end?: () => Promise<void>
}

/** Statements that answer with rows as in `sql/claims.ts`. Their first two parameters are the namespace and the channel. */
export type RowStatement =
  | 'apply'
  | 'applyAcquire'
  | 'applyRelease'
  | 'endSession'
  | 'look'
  | 'forceRelease'
  | 'resize'
  | 'forget'

const MOST_SWEEPS_AT_ONCE = 20
/** Each leaves a row behind, which is of no use a minute after the name has opened. */
const CLOSED_NAMES_PER_SWEEP = 256

export class Connection {
  readonly namespace: string
  readonly clock: Clock
  /** For tests and measurements: each statement is a round trip; items leave in batches. */
  readonly statistics = {
    statements: 0,
    inFlight: 0,
    items: 0,
    batches: 0,
    notificationsReceived: 0,
    looks: 0,
    listens: 0,
  }
  readonly room: PostgresWaitingRoom
  readonly watchers: Watchers
  readonly sql: Statements
  readonly #names: ReadonlyMap<string, string>
  /** Where this process listens. */
  readonly #channel: string
  readonly #options: ConnectionOptions
  readonly #batches: Lane<Request, AnswerRow>
  readonly #notifications: Notifications
  readonly #lifetime: Lifetime
  #sweeping: Promise<void> | undefined
  #closedNames = 0

  constructor(options: ConnectionOptions) {
    const { database, namespace, clock, random, pollMs } = options
    const { statistics } = this
    const channel = `holdfast_${random.id()}`
    const isTold = () => this.hears
    this.#options = options
    this.#channel = channel
    this.namespace = namespace
    this.clock = clock
    this.#lifetime = new Lifetime('postgres', clock)
    this.sql = statementsFor(options.schema)
    this.#names = namesOf(this.sql)
    this.room = new PostgresWaitingRoom({
      clock,
      random,
      pollMs,
      isTold,
      look: (parameters) => {
        statistics.looks++
        return this.#lifetime.inBackground((call) => this.rows(call, 'look', parameters))
      },
    })
    this.#batches = openBatches({
      clock,
      send: (statement, parameters, call) => {
        statistics.batches++
        return this.rows(call, statement, parameters)
      },
    })
    this.watchers = new Watchers({
      clock,
      random,
      namespace,
      channel,
      pollMs,
      isTold,
      query: (statement, parameters) => this.#inBackground(this.sql[statement], parameters),
      sweep: () => this.sweep(),
      expectNews: () => this.expectNews(),
    })
    this.#notifications = new Notifications({
      database,
      channel,
      clock,
      send: (message) => this.#inBackground(this.sql.notify, [channel, message]),
      isNeeded: () => this.room.size + this.watchers.size > 0,
      onMessage: (message) => this.#told(message),
      onChange: () => {
        this.room.lookAtAll()
        this.watchers.lookAtAll()
      },
      onListen: () => {
        statistics.listens++
      },
    })
  }

  /** Whether waiters are told of their grants; otherwise they poll. */
  get hears(): boolean {
    return this.#notifications.hears
  }

  get shortage(): string | undefined {
    return this.#options.database.shortage
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    const facts = await readServerFacts((text, parameters) => this.query(call, text, parameters))
    const findings = serverFindings(facts, this.#options.database)
    return this.#notifications.isDeaf ? [...findings, polling] : findings
  }

  async apply(request: Request, call: Call): Promise<AnswerRow> {
    this.#lifetime.begin(call)
    this.statistics.items++
    return this.#batches.ask(request, call)
  }

  async query(call: Call, text: string, parameters: readonly Parameter[]): Promise<readonly Row[]> {
    this.#lifetime.begin(call)
    this.statistics.statements++
    this.statistics.inFlight++
    try {
      return await this.#options.database.query(text, parameters, { call, name: this.#names.get(text) })
    } catch (error) {
      // A grant to a waiter of this process may be in the answer that got lost.
      if (outcomeOf(error) === 'unknown') this.room.lookAtAll()
      const cause = error instanceof Error ? error.cause : undefined
      if (sqlStateOf(cause) === 'HF001') throw wrongIsolation('other than READ COMMITTED', { cause })
      throw error
    } finally {
      this.statistics.inFlight--
    }
  }

  /** The rows of an answer, but for those for waiters of this process: these are told. */
  async rows(
    call: Call,
    statement: RowStatement,
    parameters: readonly Parameter[],
  ): Promise<readonly AnswerRow[]> {
    const all = [this.namespace, this.#channel, ...parameters]
    const [answer] = await this.query(call, this.sql[statement], all)
    const rows: AnswerRow[] = []
    for (const row of JSON.parse(`[${String(answer?.[0]).slice(1)}]`) as AnswerRow[]) {
      if (row[0] === 'handed') this.#granted(Number(row[6]), row[1], row[3], row[4] ?? null)
      else rows.push(row)
    }
    return rows
  }

  /** From now on there is a waiter or a watcher. */
  expectNews(): void {
    this.#notifications.start()
  }

  /** Removes what is over, a little at a time. */
  async sweep(): Promise<void> {
    if (this.#lifetime.isOver) return
    const run = async () => {
      for (let count = 0; count < MOST_SWEEPS_AT_ONCE && !this.#lifetime.isOver; count++) {
        const [row] = await this.#inBackground(this.sql.sweep, [this.namespace])
        if (row?.[0] !== true) return
      }
    }
    // A failed sweep does not count: the rows are swept another time.
    this.#sweeping ??= run()
      .catch(ignore)
      .finally(() => {
        this.#sweeping = undefined
      })
    await this.#sweeping
  }

  /** A name was left closed: from time to time those that have opened since are removed. */
  noteClosedName(): void {
    if (++this.#closedNames % CLOSED_NAMES_PER_SWEEP === 0) void this.sweep()
  }

  async close(): Promise<void> {
    if (this.#lifetime.isOver) return
    const closed = this.#lifetime.end()
    this.room.close(closed)
    this.watchers.close(closed)
    this.#batches.close()
    await this.#notifications.close()
    await this.#options.database.close()
    await this.#options.end?.()
  }

  #inBackground(text: string, parameters: readonly Parameter[]): Promise<readonly Row[]> {
    return this.#lifetime.inBackground((call) => this.query(call, text, parameters))
  }

  /** Without a token the waiter should look. */
  #granted(session: number, id: string, token: string | null | undefined, data: string | null): void {
    if (token == null) this.room.lookAtAll()
    else this.room.granted(session, id, { token: BigInt(token), data })
  }

  /**
   * See `tell_waiter` in `sql/grants.ts`. A client that knows the name of the channel is trusted: the name is secret, and stands
   * in a table of ours only. What cannot be read is a reason to look.
   */
  #told(message: string): void {
    this.statistics.notificationsReceived++
    if (message === 'event') {
      this.watchers.told()
      return
    }
    try {
      const [session, id, token, data] = JSON.parse(message)
      this.#granted(Number(session), String(id), token, data ?? null)
    } catch {
      this.room.lookAtAll()
    }
  }
}

/** Known only after something has waited. */
const polling: Finding = {
  code: 'HOLDFAST_POSTGRES_POLLING',
  severity: 'note',
  what: 'Notifications do not arrive, so waiters poll.',
  why: 'A waiter learns of its grant up to twice pollMs later, and each poll is a statement. A pooler in transaction mode does this.',
  fix: 'Connect to the server directly or through a pool in session mode, if hand-overs must be quick.',
}
