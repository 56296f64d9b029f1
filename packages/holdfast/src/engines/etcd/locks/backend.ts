/** The backend on a cluster of etcd: what opens a session, and what makes one live. The rest is the kit's (`StoreBackend`). */
import { type Instant, instantOf } from '../../../base/clock.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { StoreBackend } from '../../../kit/store-backend.ts'
import { StoreSession } from '../../../kit/store-session.ts'
import type {
  AttachedSession,
  BackendInfo,
  BackendSession,
  Call,
  Finding,
  SessionHandle,
  SessionRequest,
  WatchEvent,
} from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { type Connection, unavailable } from './connection.ts'
import { leaseOf } from './keys.ts'
import { EtcdNames } from './names.ts'
import type { FoundClaim } from './records.ts'
import type { SessionRef } from './statements.ts'
import { EtcdClaims } from './store.ts'
import { watch } from './watch.ts'

export class EtcdBackend extends StoreBackend<FoundClaim> {
  readonly #connection: Connection
  readonly #origin: string

  /** `clusterId`: that of etcd. */
  constructor(connection: Connection, info: BackendInfo<'fenced'>, clusterId: string) {
    super(info, new EtcdNames(connection), connection.random)
    this.#connection = connection
    this.#origin = `${clusterId}-${info.epoch}`
  }

  /** What it has sent so far, for tests and measurements. */
  get statistics(): { readonly sent: number; readonly watches: number } {
    return { sent: this.#connection.client.sent, watches: this.#connection.watches.count }
  }

  /** The lease first, then the session's key on it. If the second step does not come, the lease ends by itself. */
  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    const { client, keys, lifetime, namespace } = this.#connection
    lifetime.begin(call)
    const { id, holder } = request
    const lease = leaseOf(namespace, id)
    const since = instantOf(this.clock)
    const granted = await etcd.grantLease(client, lease, request.ttlMs, call)
    const seconds =
      granted ?? (await client.ask(etcd.methods.leaseTimeToLive, { ID: lease }, call)).grantedTTL
    const record = { id: publicIdOf(id), holder, ttlMs: seconds * 1_000 }
    const key = keys.session(lease)
    const put = etcd.put(key, JSON.stringify(record), lease)
    const opening = etcd.onCondition([etcd.absent(key)], [put], [etcd.get(key)])
    // A second copy finds the key of the first.
    const found = this.#connection.found(await this.#connection.transact(opening, call, () => {}))
    const ref = {
      lease,
      revision: found.session?.revision ?? found.revision,
      record: found.session ?? record,
      isOpenedHere: true,
    }
    const session = this.#session(ref, { id, since })
    if (granted !== null) return session
    // It was opened before. Since when it lives, only a keep-alive can tell.
    const kept = await session.keepAlive({ held: [], waiting: [] }, call)
    if (kept.kind === 'gone')
      throw unavailable('the session has ended while it was opened again', 'not-applied')
    return this.#session(ref, { id, since: kept.since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<AttachedSession<'fenced'> | null> {
    const id = String(handle.id)
    const lease = leaseOf(this.#connection.namespace, id)
    const { session } = await this.#connection.read([etcd.get(this.#connection.keys.session(lease))], call)
    if (session === undefined) return null
    const ref = { lease, revision: session.revision, record: session, isOpenedHere: false }
    return this.#session(ref, { id, since: null })
  }

  watch(prefix: string, { cursor }: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return watch(this.#connection, this.#origin, prefix, cursor, call)
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    this.#connection.lifetime.begin(call)
    return etcd.clusterFindings(this.#connection.client, call)
  }

  #session<Since extends Instant | null>(
    ref: SessionRef,
    known: { readonly id: string; readonly since: Since },
  ) {
    const store = new EtcdClaims(this.#connection, ref)
    const { holder, ttlMs } = ref.record
    const { lifetime, clock, random } = this.#connection
    return new StoreSession({ store, lifetime, clock, random }, { ...known, ttlMs, holder })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }
}
