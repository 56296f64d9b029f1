/** The SPI over the advisory locks of a PostgreSQL database. */
import { type Clock, instantOf } from '../../../base/clock.ts'
import { UnsupportedError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { raisedTtlMs } from '../../../kit/backend-kit.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  Finding,
  HolderKey,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  SessionHandle,
  SessionRequest,
  SessionState,
} from '../../../spi.ts'
import { pageOfSessions, readServerFacts, serverFindings } from '../client/index.ts'
import { type Connection, NAME } from './connection.ts'
import { forceRelease } from './force-release.ts'
import { LockConnection } from './lock-connection.ts'
import { AdvisorySession } from './session.ts'
import { seenHolders, statesOf } from './states.ts'

export class PostgresAdvisoryBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #connection: Connection
  readonly #sessions = new Map<string, Promise<AdvisorySession>>()
  #closing: Promise<void> | undefined

  constructor(connection: Connection, info: BackendInfo<'fenced'>) {
    this.info = info
    this.clock = connection.clock
    this.random = connection.random
    this.#connection = connection
  }

  get statistics(): { readonly statements: number } {
    return this.#connection.statistics
  }

  whyUnanswered(): string | undefined {
    return this.#connection.database.shortage
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    this.#connection.lifetime.begin(call)
    const known = this.#sessions.get(request.id)
    if (known !== undefined) return this.#connection.lifetime.untilCut(known, call)
    const opening = this.#open(request, call)
    this.#sessions.set(request.id, opening)
    opening.catch(() => this.#sessions.delete(request.id))
    return opening
  }

  async attachSession(_handle: SessionHandle, call: Call): Promise<never> {
    this.#connection.lifetime.begin(call)
    throw new UnsupportedError(
      `${NAME}: a session lives in a connection, and no other process can go on with it. Use holdfast/postgres for that.`,
    )
  }

  async inspect(name: string, call: Call): Promise<NameState | null> {
    const { sql, namespace } = this.#connection
    return statesOf(await this.#connection.query(sql.show, [namespace, name], call))[0] ?? null
  }

  async list(prefix: string, { cursor = '', limit }: PageRequest, call: Call): Promise<Page<NameState>> {
    const { sql, namespace } = this.#connection
    const states = statesOf(
      await this.#connection.query(sql.list, [namespace, prefix, cursor, limit + 1], call),
    )
    const items = states.slice(0, limit)
    return { items, next: states.length > limit ? (items.at(-1)?.name ?? null) : null }
  }

  async sessions({ cursor = '', limit }: PageRequest, call: Call): Promise<Page<SessionState>> {
    const { sql, namespace } = this.#connection
    const rows = await this.#connection.query(sql.sessions, [namespace, cursor, limit + 1], call)
    return pageOfSessions(rows, limit)
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    const facts = await readServerFacts((text, parameters) =>
      this.#connection.query({ text }, parameters, call),
    )
    const findings = serverFindings(facts, this.#connection.database)
    return this.#connection.listener.isDeaf ? [...findings, polling] : findings
  }

  async check({ name, id, token }: HolderKey, call: Call): Promise<boolean> {
    const holders = await seenHolders(this.#connection, name, call)
    return holders.some((holder) => holder.id === id && holder.token === String(token))
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    return forceRelease(this.#connection, name, ids, reason, call)
  }

  async resize(_name: string, _capacity: unknown, call: OperatorCall): Promise<never> {
    this.#connection.lifetime.begin(call)
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
    this.#connection.lifetime.end()
    const sessions = await Promise.allSettled(this.#sessions.values())
    await Promise.allSettled(
      sessions.map((each) => (each.status === 'fulfilled' ? each.value.end() : undefined)),
    )
    await this.#connection.close()
  }

  async #open({ id, ttlMs: asked, holder }: SessionRequest, call: Call): Promise<AdvisorySession> {
    const ttlMs = raisedTtlMs(this.info, asked)
    // Operators can reach the session from its first moment on.
    const listening = this.#connection.listener.ready()
    const since = instantOf(this.clock)
    const locks = await LockConnection.open(this.#connection, { id, ttlMs, holder }, call)
    await this.#connection.lifetime.untilCut(listening, call).catch(async (error: unknown) => {
      await locks.close()
      throw error
    })
    const onEnd = () => void this.#sessions.delete(id)
    return new AdvisorySession(this.#connection, locks, { id, ttlMs, holder, since }, onEnd)
  }
}

/** The next keep-alive tries to listen again. */
const polling: Finding = {
  code: 'HOLDFAST_POSTGRES_POLLING',
  severity: 'note',
  what: 'The connection that listens has ended, so waiters poll.',
  why: 'A waiter learns that a name is free up to 400 ms later, and a force release waits for the next keep-alive of its holder.',
  fix: 'Look at the log of the server, and at the limits for connections, for why it refuses or ends a connection that listens.',
}
