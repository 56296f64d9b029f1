/** Backends on a server, and what tests do with them. */
import pg from 'pg'
import { callWith } from '../../src/base/aborting.ts'
import { newAttempt, systemRandom } from '../../src/base/ids.ts'
import {
  openPostgres,
  type PostgresOptions,
  type Surroundings,
} from '../../src/engines/postgres/locks/assemble.ts'
import type { PostgresBackend } from '../../src/engines/postgres/locks/backend.ts'
import { type AcquireRequest, type BackendSession, type Call, LOCK_CAPACITY } from '../../src/spi.ts'
import { type NamingSession, namingGrants } from '../naming-grants.ts'
import { type ClientLibrary, type ClientOptions, withPg } from './clients.ts'

export const call = (): Call => callWith()

export function exclusive(name: string, rest: Partial<AcquireRequest> = {}): AcquireRequest {
  const attempt = newAttempt(systemRandom)
  return {
    name,
    attempt,
    mode: 'exclusive',
    weight: LOCK_CAPACITY,
    capacity: LOCK_CAPACITY,
    lockDelayMs: 0,
    ...rest,
  }
}

export async function openSession(
  backend: PostgresBackend,
  ttlMs = 30_000,
): Promise<NamingSession<'fenced'>> {
  const id = systemRandom.id() + systemRandom.id()
  return namingGrants(await backend.openSession({ id, ttlMs, holder: 'somebody' }, call()))
}

export async function take(
  session: Pick<BackendSession<'fenced'>, 'tryAcquire'>,
  request: AcquireRequest,
): Promise<bigint> {
  const result = await session.tryAcquire(request, call())
  if (result.kind !== 'granted') throw new Error(`${request.name} was ${result.kind}`)
  return result.grant.token
}

/** Everything that was opened is closed with it. */
export class Stage implements AsyncDisposable {
  readonly url: string
  readonly #closing: (() => Promise<unknown>)[] = []

  constructor(url: string) {
    this.url = url
  }

  async backend(
    options: Partial<PostgresOptions> & {
      readonly library?: ClientLibrary
      readonly url?: string
      readonly clients?: ClientOptions
    } = {},
    surroundings: Surroundings = {},
  ): Promise<PostgresBackend> {
    const { library = withPg, url = this.url, clients, ...rest } = options
    const opened = library.open(url, clients)
    this.#closing.push(async () => opened[Symbol.asyncDispose]())
    const backend = await openPostgres({ client: opened.client, ...rest }, surroundings)
    this.#closing.push(() => backend[Symbol.asyncDispose]())
    return backend
  }

  /** A connection for looking and for breaking things. */
  async operator(url = this.url): Promise<pg.Client> {
    const client = new pg.Client(url)
    client.on('error', () => {})
    await client.connect()
    this.#closing.push(() => client.end())
    return client
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closing.toReversed()) await close().catch(() => {})
  }
}

/** Waits until it is so; only a thing that is broken takes as long as this allows. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + 120_000
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error(`not within 120 s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
