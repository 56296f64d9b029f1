/** A namespace of its own for every case, on a real server that many cases share, and with it their time. */
import { setTimeout as sleep } from 'node:timers/promises'
import { createClock } from 'holdfast-lab/faults'
import { type Server, startPgBouncer, startPostgres } from 'holdfast-lab/servers'
import pg from 'pg'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { defaults } from '../../src/base/defaults.ts'
import { openPostgres } from '../../src/engines/postgres/locks/assemble.ts'
import type { PostgresBackend } from '../../src/engines/postgres/locks/backend.ts'
import { Clients } from '../../src/testing/conformance/clients.ts'
import { SharedTime } from '../../src/testing/conformance/shared-time.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import type { ClientLibrary, OpenedClient } from '../postgres/clients.ts'

interface Time {
  readonly clock: Clock
  readonly ttlMs: number
  readonly resolutionMs: number
}

const TTL_MS = 10_000

const realTime: Time = {
  clock: systemClock,
  ttlMs: 3_000,
  resolutionMs: 750,
}

let worlds = 0

export interface StageOptions {
  readonly library: ClientLibrary
  readonly through: 'directly' | 'pooler'
  readonly time: 'shared' | 'real'
}

interface Parts {
  readonly server: Server
  readonly bouncer: Server | undefined
  readonly library: ClientLibrary
  readonly moveServer: ((ms: number) => void) | undefined
}

/** One server, perhaps a pooler before it, and a client. */
export class PostgresStage {
  readonly #server: Server
  readonly #bouncer: Server | undefined
  readonly #operator: pg.Pool
  readonly #opened: OpenedClient
  readonly #backends = new Set<PostgresBackend>()
  readonly #time: Time
  readonly #shared: SharedTime | undefined
  #sentByOthers = 0

  private constructor(parts: Parts) {
    const { server, bouncer, library, moveServer } = parts
    this.#server = server
    this.#bouncer = bouncer
    // A pooler in transaction mode does not know prepared statements by their names.
    this.#opened = library.open((bouncer ?? server).url, { max: 12, prepare: bouncer === undefined })
    this.#operator = new pg.Pool({ connectionString: server.url, max: 2 })
    this.#operator.on('error', () => {})
    if (moveServer === undefined) {
      this.#time = realTime
      return
    }
    this.#shared = new SharedTime({ moveServer, traffic: () => this.#traffic() })
    this.#time = { clock: this.#shared.clock, ttlMs: TTL_MS, resolutionMs: TTL_MS / 100 }
  }

  static async start(options: StageOptions): Promise<PostgresStage> {
    const { library, through, time } = options
    const clock = time === 'shared' ? createClock() : undefined
    const server = await startPostgres(clock === undefined ? {} : { clock })
    const bouncer = through === 'pooler' ? await startPgBouncer({ postgres: server }) : undefined
    clock?.freeze()
    const moveServer = clock === undefined ? undefined : (ms: number) => clock.step(ms)
    const stage = new PostgresStage({ server, bouncer, library, moveServer })
    // So that the schema is there before many come at once; that many may come first is a test of its own.
    await (await openPostgres({ client: stage.#opened.client }))[Symbol.asyncDispose]()
    return stage
  }

  async world(): Promise<World<'fenced'>> {
    const space = `w${++worlds}`
    const spaceOf = (namespace: string = defaults.namespace) => `${space}/${namespace}`
    const own: PostgresBackend[] = []
    const { clock } = this.#time
    const clients = new Clients(clock, async ({ namespace, ...options }, clock) => {
      const { client } = this.#opened
      const backend = await openPostgres({
        ...options,
        client,
        clock,
        namespace: spaceOf(namespace),
        pollMs: 400,
      })
      own.push(backend)
      this.#backends.add(backend)
      return backend
    })
    const player = this.#shared?.enter()
    return {
      ...this.#time,
      passTime: (ms) => player?.passTime(ms) ?? sleep(ms),
      client: (options) => clients.add(options),
      delayAnswers: (ms) => clients.delayAnswers(ms),
      deleteName: (name) => this.#delete(spaceOf(), name),
      async countCommands() {
        return own.reduce(
          (sum, { statistics }) => sum + statistics.statements + statistics.notificationsReceived,
          0,
        )
      },
      countConnections: () => this.#countConnections(),
      ...(this.#shared === undefined && { restart: () => this.#server.restart() }),
      close: async () => {
        await clients.close()
        for (const backend of own) {
          this.#backends.delete(backend)
          this.#sentByOthers += backend.statistics.statements
        }
        player?.leave()
      },
    }
  }

  async #countConnections(): Promise<number> {
    const { rows } = await this.#operator.query<{ count: string }>(
      "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
    )
    return Number(rows[0]?.count)
  }

  async stop(): Promise<void> {
    await this.#opened[Symbol.asyncDispose]()
    await this.#operator.end()
    await this.#bouncer?.stop()
    await this.#server.stop()
  }

  async #delete(namespace: string, name: string): Promise<void> {
    for (const table of ['holders', 'waiters', 'names'])
      await this.#operator.query(`DELETE FROM holdfast.${table} WHERE namespace = $1 AND name = $2`, [
        namespace,
        name,
      ])
  }

  #traffic(): { inFlight: number; sent: number } {
    let [inFlight, sent] = [0, this.#sentByOthers]
    for (const { statistics } of this.#backends) {
      inFlight += statistics.inFlight
      sent += statistics.statements + statistics.notificationsReceived
    }
    return { inFlight, sent }
  }
}
