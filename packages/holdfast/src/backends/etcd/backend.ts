/** The SPI over a cluster of etcd. */
import { type Clock, instantOf } from '../../base/clock.ts'
import { publicIdOf, type Random } from '../../base/ids.ts'
import * as etcd from '../../clients/etcd/index.ts'
import type {
  AttachedSession,
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  Finding,
  SessionHandle,
  SessionRequest,
} from '../../spi.ts'
import { type Connection, unavailable } from './connection.ts'
import { leaseOf } from './keys.ts'
import { inspect, list, sessions } from './looking.ts'
import { forceRelease, forget, resize } from './operators.ts'
import { EtcdSession } from './session.ts'
import { watch } from './watch.ts'

type Method<Name extends keyof Backend> = NonNullable<Backend<'fenced'>[Name]>

export class EtcdBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #connection: Connection
  readonly #origin: string

  /** `clusterId`: that of etcd. */
  constructor(connection: Connection, info: BackendInfo<'fenced'>, clusterId: string) {
    this.info = info
    this.clock = connection.clock
    this.random = connection.random
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
    }
    const session = new EtcdSession(this.#connection, ref, { id, since })
    if (granted !== null) return session
    // It was opened before. Since when it lives, only a keep-alive can tell.
    const kept = await session.keepAlive({ held: [], waiting: [] }, call)
    if (kept.kind === 'gone')
      throw unavailable('the session has ended while it was opened again', 'not-applied')
    return new EtcdSession(this.#connection, ref, { id, since: kept.since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<AttachedSession<'fenced'> | null> {
    const id = String(handle.id)
    const lease = leaseOf(this.#connection.namespace, id)
    const { session } = await this.#connection.read([etcd.get(this.#connection.keys.session(lease))], call)
    if (session === undefined) return null
    const ref = { lease, revision: session.revision, record: session }
    return new EtcdSession(this.#connection, ref, { id, since: null })
  }

  readonly inspect: Method<'inspect'> = (...asked) => inspect(this.#connection, ...asked)
  readonly list: Method<'list'> = (...asked) => list(this.#connection, ...asked)
  readonly sessions: Method<'sessions'> = (...asked) => sessions(this.#connection, ...asked)
  readonly forceRelease: Method<'forceRelease'> = (...asked) => forceRelease(this.#connection, ...asked)
  readonly resize: Method<'resize'> = (...asked) => resize(this.#connection, ...asked)
  readonly forget: Method<'forget'> = (...asked) => forget(this.#connection, ...asked)
  readonly watch: Method<'watch'> = (prefix, { cursor }, call) =>
    watch(this.#connection, this.#origin, prefix, cursor, call)

  async diagnose(call: Call): Promise<readonly Finding[]> {
    this.#connection.lifetime.begin(call)
    return etcd.clusterFindings(this.#connection.client, call)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const claims = etcd.getAll(this.#connection.keys.part(holder.name, 'exclusive', 'shared'))
    const found = await this.#connection.read([claims], call)
    return found.claims.some(({ id, token }) => id === holder.id && token === holder.token)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }
}
