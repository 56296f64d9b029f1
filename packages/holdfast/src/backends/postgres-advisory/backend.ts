/** The SPI over the advisory locks of a PostgreSQL database. */

import { type Clock, instantOf } from '../../base/clock.ts'
import { UnsupportedError } from '../../base/errors.ts'
import type { Random } from '../../base/ids.ts'
import {
  pageOfSessions,
  readServerFacts,
  type ServerFacts,
  serverFindings,
} from '../../clients/postgres/index.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  Finding,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  SessionHandle,
  SessionRequest,
  SessionState,
} from '../../spi.ts'
import { forceRelease } from './forcing.ts'
import { unlessCallIsCancelled } from './lane.ts'
import { type Links, NAME, type Statistics } from './links.ts'
import { LockConnection } from './lock-connection.ts'
import { statesOf } from './looking.ts'
import { AdvisorySession } from './session.ts'

export class PostgresAdvisoryBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #links: Links
  readonly #sessions = new Map<string, Promise<AdvisorySession>>()
  #closing: Promise<void> | undefined

  constructor(links: Links, info: BackendInfo<'fenced'>) {
    this.info = info
    this.clock = links.clock
    this.random = links.random
    this.#links = links
  }

  /** What it has done so far, for tests and measurements. */
  get statistics(): Readonly<Statistics> {
    return this.#links.statistics
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    this.#links.check(call)
    const known = this.#sessions.get(request.id)
    if (known !== undefined) return unlessCallIsCancelled(known, call.signal)
    const opening = this.#open(request, call)
    this.#sessions.set(request.id, opening)
    opening.catch(() => this.#sessions.delete(request.id))
    return opening
  }

  async attachSession(_handle: SessionHandle, call: Call): Promise<never> {
    this.#links.check(call)
    throw new UnsupportedError(
      `${NAME}: a session lives in a connection, and no other process can go on with it. Use holdfast/postgres for that.`,
    )
  }

  async inspect(name: string, call: Call): Promise<NameState | null> {
    this.#links.check(call)
    const { sql, namespace } = this.#links
    return statesOf(await this.#links.query(sql.show, [namespace, name], call.signal))[0] ?? null
  }

  async list(prefix: string, { cursor = '', limit }: PageRequest, call: Call): Promise<Page<NameState>> {
    this.#links.check(call)
    const { sql, namespace } = this.#links
    const rows = await this.#links.query(sql.list, [namespace, prefix, cursor, limit + 1], call.signal)
    const states = statesOf(rows)
    const items = states.slice(0, limit)
    return { items, next: states.length > limit ? (items.at(-1)?.name ?? null) : null }
  }

  async sessions({ cursor = '', limit }: PageRequest, call: Call): Promise<Page<SessionState>> {
    this.#links.check(call)
    const { sql, namespace } = this.#links
    return pageOfSessions(
      await this.#links.query(sql.sessions, [namespace, cursor, limit + 1], call.signal),
      limit,
    )
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    this.#links.check(call)
    const facts = await readServerFacts((text, parameters) =>
      this.#links.query({ text }, parameters, call.signal),
    )
    return [...serverFindings(facts, this.#links.database), ...connectionFindings(facts, this.#links)]
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const state = await this.inspect(holder.name, call)
    return state?.holders.some(({ id, token }) => id === holder.id && token === holder.token) ?? false
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    this.#links.check(call)
    return forceRelease(this.#links, name, ids, reason, call)
  }

  async resize(_name: string, _capacity: unknown, call: OperatorCall): Promise<never> {
    this.#links.check(call)
    throw new UnsupportedError(`${NAME} has no semaphores, so there is no capacity to change.`)
  }

  /** There is no data. */
  async forget(name: string, _data: string, call: OperatorCall): Promise<'in-use' | 'changed'> {
    return (await this.inspect(name, call)) === null ? 'changed' : 'in-use'
  }

  /** The locks are in its connections, so what it held is free afterwards. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#links.stop()
    const { signal } = new AbortController()
    const sessions = await Promise.allSettled(this.#sessions.values())
    await Promise.allSettled(
      sessions.map((each) => (each.status === 'fulfilled' ? each.value.end(signal) : undefined)),
    )
    await this.#links.close()
  }

  async #open(request: SessionRequest, { signal }: Call): Promise<AdvisorySession> {
    const { id, holder } = request
    const ttlMs = Math.ceil(request.ttlMs)
    const { ears } = this.#links
    const heard = ears.ready()
    const since = instantOf(this.clock)
    const session = { holder, channel: ears.channel }
    const main = await LockConnection.open(this.#links, { id, ttlMs, session, signal })
    await unlessCallIsCancelled(heard, signal).catch(async (error: unknown) => {
      await main.close()
      throw error
    })
    const onEnd = () => void this.#sessions.delete(id)
    return new AdvisorySession(this.#links, main, { id, ttlMs, holder, since, onEnd })
  }
}

function connectionFindings({ settings }: ServerFacts, { maxConnections }: Links): readonly Finding[] {
  const allowed =
    Number(settings.get('max_connections')) - Number(settings.get('superuser_reserved_connections'))
  if (maxConnections <= allowed) return []
  return [
    {
      code: 'HOLDFAST_POSTGRES_CONNECTIONS',
      severity: 'warning',
      what: `maxConnections is ${maxConnections}, and the server allows ${allowed} connections in all.`,
      why: 'Each session and each wait has a connection of its own. When the server has none left, acquires fail, and so do other programs.',
      fix: 'Raise max_connections of the server to the sum over all processes, or lower maxConnections.',
    },
  ]
}
