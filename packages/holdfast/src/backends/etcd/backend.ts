/** The SPI over a cluster of etcd. */
import { type Clock, instantOf } from '../../base/clock.ts'
import { publicIdOf, type Random } from '../../base/ids.ts'
import {
  absent,
  clusterFindings,
  get,
  getAll,
  isLeaseTaken,
  methods,
  onCondition,
  put,
} from '../../clients/etcd/index.ts'
import type {
  AttachedSession,
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  Finding,
  InspectCall,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  SessionHandle,
  SessionRequest,
  SessionState,
  WatchEvent,
} from '../../spi.ts'
import { type Connection, unavailable } from './connection.ts'
import { prolong } from './keeping.ts'
import { leaseOf } from './keys.ts'
import { inspect, list, sessions } from './looking.ts'
import { forceRelease, forget, resize } from './operators.ts'
import type { SessionRecord } from './records.ts'
import { EtcdSession } from './session.ts'
import { watch } from './watch.ts'

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
    const lease = leaseOf(namespace, request.id)
    const since = instantOf(this.clock)
    const seconds = await this.#grant(lease, Math.ceil(request.ttlMs / 1_000), call)
    const granted = seconds ?? (await client.ask(methods.leaseTimeToLive, { ID: lease }, call)).grantedTTL
    const record = { id: publicIdOf(request.id), holder: request.holder, ttlMs: granted * 1_000 }
    const key = keys.session(lease)
    const opening = onCondition([absent(key)], [put(key, JSON.stringify(record), lease)], [get(key)])
    const response = await this.#connection.transact(opening, call)
    const found = this.#connection.found(response)
    const revision = found.session?.create_revision ?? found.revision
    const ref = { lease, revision, record: recordOf(found.session) ?? record }
    if (seconds !== null) return new EtcdSession(this.#connection, ref, { id: request.id, since })
    // It was opened before. Since when it lives, only a keep-alive can tell.
    const prolongedAt = await prolong(this.#connection, ref, call)
    if (prolongedAt === null)
      throw unavailable('the session has ended while it was opened again', 'not-applied')
    return new EtcdSession(this.#connection, ref, { id: request.id, since: prolongedAt })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<AttachedSession<'fenced'> | null> {
    const id = String(handle.id)
    const lease = leaseOf(this.#connection.namespace, id)
    const { session } = await this.#connection.read([get(this.#connection.keys.session(lease))], call)
    const record = recordOf(session)
    if (session === undefined || record === null) return null
    const ref = { lease, revision: session.create_revision, record }
    return new EtcdSession(this.#connection, ref, { id, since: null })
  }

  inspect(name: string, call: InspectCall): Promise<NameState | null> {
    return inspect(this.#connection, name, call)
  }

  list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    return list(this.#connection, prefix, page, call)
  }

  sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    return sessions(this.#connection, page, call)
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    this.#connection.lifetime.begin(call)
    return clusterFindings(this.#connection.client, call)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const claims = getAll(this.#connection.keys.part(holder.name, 'p', 'w'))
    const found = await this.#connection.read([claims], call)
    return found.claims.some(
      ({ granted, id, token }) => granted && id === holder.id && token === holder.token,
    )
  }

  forceRelease(name: string, ids: readonly string[], reason: string, call: OperatorCall): Promise<number> {
    return forceRelease(this.#connection, name, ids, reason, call)
  }

  resize(
    name: string,
    capacity: CapacityChange,
    call: OperatorCall,
  ): Promise<'resized' | 'in-use' | 'changed'> {
    return resize(this.#connection, name, capacity, call)
  }

  forget(name: string, data: string, call: OperatorCall): Promise<'forgotten' | 'in-use' | 'changed'> {
    return forget(this.#connection, name, data, call)
  }

  watch(prefix: string, options: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return watch(this.#connection, this.#origin, prefix, options.cursor, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }

  /** The TTL that was granted. Null: there is such a lease already. */
  async #grant(lease: number, TTL: number, call: Call): Promise<number | null> {
    try {
      return (await this.#connection.client.ask(methods.leaseGrant, { ID: lease, TTL }, call)).TTL
    } catch (error) {
      if (isLeaseTaken(error)) return null
      throw error
    }
  }
}

function recordOf(session: { readonly value: string } | undefined): SessionRecord | null {
  return session === undefined ? null : (JSON.parse(session.value) as SessionRecord)
}
