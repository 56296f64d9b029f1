/** The backend on an ensemble of ZooKeeper: what opens a session, and what finds one. The rest is the kit's (`StoreBackend`). */
import type { Instant } from '../../../base/clock.ts'
import { outcomeOf } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { type OpenedClaims, StoreBackend } from '../../../kit/store-backend.ts'
import type { QueuedClaim } from '../../../kit/stored-name.ts'
import type { BackendInfo, Call, Finding, SessionHandle, SessionRequest, WatchEvent } from '../../../spi.ts'
import { ensembleFindings, type Session } from '../client/index.ts'
import { type Connection, unavailable } from './connection.ts'
import { ZooKeeperNames } from './names.ts'
import { parse, type StoredSession, sessionData, type ZooKeeperClaim } from './records.ts'
import { ZooKeeperClaims } from './store.ts'
import { NameWatch } from './watch.ts'

export class ZooKeeperBackend extends StoreBackend<ZooKeeperClaim, QueuedClaim> {
  readonly #connection: Connection
  readonly #watch: NameWatch

  constructor(connection: Connection, info: BackendInfo<'fenced'>) {
    const { clock, random, lifetime } = connection
    super({ info, names: new ZooKeeperNames(connection), clock, random, lifetime })
    this.#connection = connection
    this.#watch = new NameWatch(connection)
  }

  /** Counts of what it has sent so far, for tests and measurements. */
  get statistics(): { readonly sent: number } {
    return { sent: this.#connection.client.sent }
  }

  /**
   * A session at ZooKeeper first, then the node that names it. If the node is there, an earlier request for this id has opened a session:
   * then this one is ended, and that one is used.
   */
  async openClaims(
    { id, ttlMs, holder }: SessionRequest,
    call: Call,
  ): Promise<OpenedClaims<QueuedClaim, Instant>> {
    const { client, keys } = this.#connection
    const session = await client.open(ttlMs, call)
    const path = keys.session(id)
    const record = { id: publicIdOf(id), holder, ttlMs: session.timeoutMs }
    const data = sessionData(record, session)
    const { since, timeoutMs: granted } = session
    const creating = session.ask({ op: 'create', path, data, mode: 'ephemeral' }, call)
    const created = await creating.catch((error: unknown) => {
      // If its node may be there, the next request for this id may go on with it.
      void client.discard(session, outcomeOf(error) !== 'unknown')
      throw error
    })
    if (created.ok && since !== null)
      return { id, ttlMs: granted, holder, since, claims: this.#claims(session, path, record) }
    const stored = await session.ask({ op: 'getData', path }, call).finally(() => client.discard(session))
    const found = stored.ok ? this.#attach(path, parse<StoredSession>(stored.data)) : null
    // Since when it lives, only a keep-alive can tell.
    const prolonged = (await found?.claims.prolong([], call)) ?? null
    if (found === null || prolonged === null)
      throw unavailable('the session has ended while it was opened again', 'not-applied')
    return { ...found, id, since: prolonged.since }
  }

  async findClaims(handle: SessionHandle, call: Call): Promise<OpenedClaims<QueuedClaim, null> | null> {
    const id = String(handle.id)
    const path = this.#connection.keys.session(id)
    const { session } = await this.#connection.reading(call)
    const stored = await session.ask({ op: 'getData', path }, call)
    return stored.ok ? { ...this.#attach(path, parse<StoredSession>(stored.data)), id, since: null } : null
  }

  watch(prefix: string, { cursor }: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return this.#watch.watch(prefix, cursor, call)
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    const { client, clock, lifetime } = this.#connection
    lifetime.begin(call)
    return ensembleFindings(client, clock, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#connection.close()
  }

  #attach(path: string, record: StoredSession) {
    const { holder, ttlMs, zooKeeper } = record
    const session = this.#connection.client.attach(BigInt(zooKeeper), ttlMs)
    return { ttlMs, holder, claims: this.#claims(session, path, record) }
  }

  #claims(
    session: Session,
    path: string,
    { id, holder, ttlMs }: StoredSession | Omit<StoredSession, 'zooKeeper'>,
  ) {
    return new ZooKeeperClaims(this.#connection, { session, path, record: { id, holder, ttlMs } })
  }
}
