/** Clients of one server, and an operator who looks at it and interferes. */
import type { FaultyProxy } from 'holdfast-lab/faults'
import type { Server } from 'holdfast-lab/servers'
import pg from 'pg'
import type { Locker } from '../../src/base/types.ts'
import {
  openPostgresAdvisory,
  type PostgresAdvisoryOptions,
} from '../../src/engines/postgres/advisory/assemble.ts'
import type { PostgresAdvisoryBackend } from '../../src/engines/postgres/advisory/backend.ts'
import { createLocker, type LockerOptions } from '../../src/locker/locker.ts'
import { type ClientLibrary, type ClientOptions, withPg } from '../postgres/clients.ts'

export class Rig implements AsyncDisposable {
  readonly #server: Server
  readonly operator: pg.Pool
  readonly #closers: (() => Promise<unknown>)[] = []

  constructor(server: Server) {
    this.#server = server
    this.operator = new pg.Pool({ connectionString: server.url, max: 4 })
    this.operator.on('error', () => {})
  }

  /** A backend with a client of its own, as in a process of its own. */
  async backend(
    options: Partial<PostgresAdvisoryOptions> & {
      readonly library?: ClientLibrary<PostgresAdvisoryOptions['client']>
      readonly clients?: ClientOptions
      readonly through?: FaultyProxy
    } = {},
  ): Promise<PostgresAdvisoryBackend> {
    const { library = withPg, clients = {}, through, ...rest } = options
    const url = new URL(this.#server.url)
    if (through !== undefined) url.port = String(through.port)
    const opened = library.open(url.href, { max: 20, ...clients })
    const backend = await openPostgresAdvisory({ client: opened.client, ...rest }).catch(async (error) => {
      await opened[Symbol.asyncDispose]()
      throw error
    })
    this.#closers.push(async () => {
      await backend[Symbol.asyncDispose]()
      await opened[Symbol.asyncDispose]()
    })
    return backend
  }

  async locker(
    options: Parameters<Rig['backend']>[0] = {},
    lockerOptions: LockerOptions = {},
  ): Promise<Locker<'fenced'>> {
    const locker = createLocker(await this.backend(options), lockerOptions)
    this.#closers.push(() => locker.close({ graceMs: 0 }))
    return locker
  }

  /** The answer's rows, as the operator sees them. */
  async sql<Row extends object = Record<string, unknown>>(
    text: string,
    values: unknown[] = [],
  ): Promise<Row[]> {
    return (await this.operator.query(text, values)).rows as Row[]
  }

  /** A client who locks by hand. */
  async byHand(): Promise<pg.Client> {
    const client = new pg.Client(this.#server.url)
    client.on('error', () => {})
    await client.connect()
    this.#closers.push(() => client.end().catch(() => {}))
    return client
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close().catch(() => {})
    await this.operator.end()
  }
}
