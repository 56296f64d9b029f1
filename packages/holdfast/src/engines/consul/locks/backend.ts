/** The backend on a cluster of Consul: what opens a session, and what finds one. The rest is the kit's (`StoreBackend`). */
import { instantOf } from '../../../base/clock.ts'
import { UnsupportedError } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { raisedTtlMs } from '../../../kit/backend-kit.ts'
import { StoreBackend } from '../../../kit/store-backend.ts'
import type { BackendInfo, Call, SessionHandle, SessionRequest } from '../../../spi.ts'
import * as consul from '../client/index.ts'
import { type Connection, unavailable } from './connection.ts'
import { clusterFindings } from './diagnosis.ts'
import { ConsulNames } from './names.ts'
import type { ConsulClaim, OpenedSession } from './records.ts'
import { ConsulClaims } from './store.ts'

const MAX_LOCK_DELAY_MS = 60_000

export class ConsulBackend extends StoreBackend<ConsulClaim> {
  readonly #connection: Connection
  readonly #checks: readonly string[]

  constructor(connection: Connection, info: BackendInfo<'fenced'>, checks: readonly string[]) {
    const { clock, random, lifetime } = connection
    super({ info, names: new ConsulNames(connection), clock, random, lifetime })
    this.#connection = connection
    this.#checks = checks
  }

  /** Counts of what it has sent so far, for tests and measurements. */
  get statistics(): { readonly sent: number; readonly polls: number } {
    return { sent: this.#connection.client.sent, polls: this.#connection.watches.count }
  }

  /** The session first, then its record, by which another client finds it. If the second step does not come, it ends by itself. */
  async openClaims({ id, ttlMs: asked, holder, lockDelayMs = 0 }: SessionRequest, call: Call) {
    if (lockDelayMs > MAX_LOCK_DELAY_MS)
      throw new UnsupportedError(`Consul keeps a name closed for ${MAX_LOCK_DELAY_MS} ms at most.`)
    const { client, keys } = this.#connection
    const ttlMs = raisedTtlMs(this.info, asked)
    const since = instantOf(this.clock)
    const terms = { ttlMs, checks: this.#checks }
    const session = await consul.createSession(client, { ...terms, behavior: 'delete' }, call)
    let delay: string | undefined
    try {
      const delayed = { ...terms, behavior: 'release', lockDelayMs } as const
      if (lockDelayMs > 0) delay = await consul.createSession(client, delayed, call)
      const record = { id: publicIdOf(id), holder, ttlMs, ...(delay !== undefined && { delay }) }
      const key = keys.session(id)
      const opening = [consul.absent(key), consul.lock(key, JSON.stringify(record), session)]
      const { refused } = await client.transact(opening, call, { onAgain: () => {} })
      if (refused === undefined) return this.#opened(id, { id: session, key, record, provenAt: since }, since)
      const found = await this.#find(id, call)
      if (found === null) throw unavailable(`the session was not opened: ${refused.what}`, 'not-applied')
      if (found.id !== session) this.#connection.end(session, delay)
      const { claims, ...opened } = this.#opened(
        id,
        { ...found, provenAt: found.id === session ? since : null },
        since,
      )
      const prolonged = found.id === session ? { since } : await claims.prolong([], call)
      if (prolonged === null)
        throw unavailable('the session has ended while it was opened again', 'not-applied')
      return { ...opened, claims, since: prolonged.since }
    } catch (error) {
      this.#connection.end(session, delay)
      throw error
    }
  }

  async findClaims(handle: SessionHandle, call: Call) {
    const id = String(handle.id)
    const found = await this.#find(id, call)
    return found === null ? null : this.#opened(id, { ...found, provenAt: null }, null)
  }

  async diagnose(call: Call) {
    const { client, lifetime, minTtlMs } = this.#connection
    lifetime.begin(call)
    return clusterFindings(client, minTtlMs, this.clock, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }

  async #find(id: string, call: Call) {
    const key = this.#connection.keys.session(id)
    const [entry] = (await this.#connection.read([key], call)).entries
    if (entry === undefined) await this.#connection.requireRights([key], call)
    if (entry?.session === undefined) return null
    return { id: entry.session, key, record: JSON.parse(entry.value) as OpenedSession }
  }

  #opened<Since>(id: string, session: ConstructorParameters<typeof ConsulClaims>[1], since: Since) {
    const { holder, ttlMs } = session.record
    return { id, ttlMs, holder, since, claims: new ConsulClaims(this.#connection, session) }
  }
}
