/** The backend on a cluster of etcd: what opens a session, and what makes one live. The rest is the kit's (`StoreBackend`). */
import { instantOf } from '../../../base/clock.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { StoreBackend } from '../../../kit/store-backend.ts'
import type { BackendInfo, Call, Finding, SessionHandle, SessionRequest, WatchEvent } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { type Connection, unavailable } from './connection.ts'
import { leaseOf } from './keys.ts'
import { EtcdNames } from './names.ts'
import type { EtcdClaim } from './records.ts'
import { EtcdClaims } from './store.ts'
import { watch } from './watch.ts'

export class EtcdBackend extends StoreBackend<EtcdClaim> {
  readonly #connection: Connection
  readonly #origin: string

  /** `clusterId`: that of etcd. */
  constructor(connection: Connection, info: BackendInfo<'fenced'>, clusterId: string) {
    const { clock, random, lifetime } = connection
    super({ info, names: new EtcdNames(connection), clock, random, lifetime })
    this.#connection = connection
    this.#origin = `${clusterId}-${info.epoch}`
  }

  /** Counts of what it has sent so far, for tests and measurements. */
  get statistics(): { readonly sent: number; readonly watches: number } {
    return { sent: this.#connection.client.sent, watches: this.#connection.watches.count }
  }

  /** The lease first, then the session's key on it. If the second step does not come, the lease ends by itself. */
  async openClaims({ id, ttlMs, holder }: SessionRequest, call: Call) {
    const { client, keys, namespace } = this.#connection
    const lease = leaseOf(namespace, id)
    const since = instantOf(this.clock)
    const granted = await etcd.grantLease(client, lease, ttlMs, call)
    const seconds =
      granted ?? (await client.ask(etcd.methods.leaseTimeToLive, { ID: lease }, call)).grantedTTL
    const record = { id: publicIdOf(id), holder, ttlMs: seconds * 1_000 }
    const key = keys.session(lease)
    const put = etcd.put(key, JSON.stringify(record), lease)
    const opening = etcd.onCondition([etcd.absent(key)], [put], [etcd.get(key)])
    // A second copy finds the key of the first one. After the end of the session, its lease is not there.
    const answer = await this.#connection.transact(opening, call, () => {})
    const { session, revision } = this.#connection.found(answer)
    const found = { revision: session?.revision ?? revision, record: session ?? record }
    const ref = { lease, ...found, isOpenedHere: true }
    const claims = new EtcdClaims(this.#connection, ref)
    const opened = { id, ttlMs: ref.record.ttlMs, holder: ref.record.holder, claims }
    if (granted !== null) return { ...opened, since }
    // The session was opened before. Since when it lives, only a keep-alive can tell.
    const prolonged = await claims.prolong([], call)
    if (prolonged === null)
      throw unavailable('the session has ended while it was opened again', 'not-applied')
    return { ...opened, since: prolonged.since }
  }

  async findClaims(handle: SessionHandle, call: Call) {
    const id = String(handle.id)
    const lease = leaseOf(this.#connection.namespace, id)
    const { session } = await this.#connection.read([etcd.get(this.#connection.keys.session(lease))], call)
    if (session === undefined) return null
    const ref = { lease, revision: session.revision, record: session, isOpenedHere: false }
    const claims = new EtcdClaims(this.#connection, ref)
    return { id, ttlMs: session.ttlMs, holder: session.holder, claims, since: null }
  }

  watch(prefix: string, { cursor }: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return watch(this.#connection, this.#origin, prefix, cursor, call)
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    this.#connection.lifetime.begin(call)
    return etcd.clusterFindings(this.#connection.client, this.clock, this.info.ttlMs.min, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }
}
