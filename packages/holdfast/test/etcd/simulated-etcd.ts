/**
 * etcd in this process, as far as the backend uses it: keys with revisions, transactions in transactions, leases, one stream of watches.
 * For tests of the protocol that need no server. What the real one does is shown by the suite on a real cluster.
 */

import { systemRandom } from '../../src/base/ids.ts'
import { asUnavailable, EtcdError } from '../../src/engines/etcd/client/failures.ts'
import {
  type Compare,
  type EtcdAnswer,
  type EtcdClient,
  type Event,
  type KeyValue,
  type Method,
  methods,
  type Operation,
  type OperationResponse,
  putsNothing,
  type RangeRequest,
  type TxnRequest,
  type TxnResponse,
  type WatchRequest,
  type WatchResponse,
} from '../../src/engines/etcd/client/index.ts'
import { openEtcd } from '../../src/engines/etcd/locks/assemble.ts'
import type { Call } from '../../src/spi.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'

/** A backend on it, with a session. */
export async function openSimulated() {
  const engine = new SimulatedEtcd()
  const backend = await openEtcd({ hosts: engine.hosts, clock: createFakeClock() }, { client: engine.client })
  const id = systemRandom.id() + systemRandom.id()
  const session = await backend.openSession({ id, ttlMs: 15_000, holder: 'ada' }, call())
  return { engine, backend, session }
}

/** Whatever has been set off has happened after it. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 30; turn++) await new Promise((resolve) => setImmediate(resolve))
}

interface Watcher {
  readonly id: number
  readonly key: string
  readonly range_end: string | undefined
  readonly isWanted: (event: Event) => boolean
}

const RESOURCE_EXHAUSTED = 8
const UNAVAILABLE = 14

export class SimulatedEtcd {
  readonly #kvs = new Map<string, KeyValue>()
  readonly #leases = new Map<number, number>()
  readonly #history: Event[] = []
  #streams = new Set<{ watchers: Map<number, Watcher>; onMessage: (response: WatchResponse) => void }>()
  #revision = 1
  term = 2
  /** The term that answers to keep-alives tell, if it is not the lease's. */
  keepAliveTerm: number | undefined
  /**
   * Requests that may be asked again are asked twice. `both`: both copies are applied, and the second one is answered. `second`: the first copy is on
   * its way.
   */
  asksTwice: 'no' | 'both' | 'second' = 'no'
  /** Its quota is reached. */
  isFull = false
  sent = 0
  /** The transactions that were sent, so that one can arrive a second time. */
  readonly transactions: TxnRequest[] = []
  /** All keys that there have been. */
  readonly everCreated = new Set<string>()

  get client(): EtcdClient {
    return this as unknown as EtcdClient
  }

  readonly hosts = ['http://simulated:2379']

  close(): void {
    this.#streams.clear()
  }

  keys(): string[] {
    return [...this.#kvs.keys()]
  }

  delete(key: string): void {
    this.#revision++
    this.#delete(key)
  }

  revoke(ID: number): void {
    this.#leases.delete(ID)
    this.#revision++
    for (const { key, lease } of [...this.#kvs.values()]) if (lease === ID) this.#delete(key)
  }

  async ask<Q, R extends EtcdAnswer>(
    method: Method<Q, R>,
    message: Q,
    call: Call,
    onAgain?: () => void,
  ): Promise<R> {
    this.sent++
    if (method.path === methods.txn.path) this.transactions.push(message as TxnRequest)
    await new Promise((resolve) => setImmediate(resolve))
    if (call.cancelled) throw call.signal.reason
    const answer = () => this.#answer(method as Method<unknown, EtcdAnswer>, message as never) as R
    try {
      if (onAgain === undefined || this.asksTwice === 'no') return answer()
      if (this.asksTwice === 'both') answer()
      onAgain()
      if (method.path === methods.txn.path) this.transactions.push(message as TxnRequest)
      return answer()
    } catch (error) {
      throw asUnavailable('etcd', error)
    }
  }

  async connect() {
    const stream = (
      _method: unknown,
      _metadata: unknown,
      onMessage: (response: WatchResponse) => void,
      _onEnd: (error: Error) => void,
    ) => {
      const opened = { watchers: new Map<number, Watcher>(), onMessage }
      this.#streams.add(opened)
      return {
        send: (request: WatchRequest) => this.#watch(opened, request),
        close: () => this.#streams.delete(opened),
      }
    }
    return { channel: { stream }, metadata: {} }
  }

  leave(): void {}

  #answer({ path }: Method<unknown, EtcdAnswer>, message: never): unknown {
    const { ID = 0, TTL = 0 } = message as { ID?: number; TTL?: number }
    const isPutting = path === methods.txn.path && !putsNothing(message)
    if (this.isFull && (isPutting || path === methods.leaseGrant.path))
      throw new EtcdError(RESOURCE_EXHAUSTED, 'etcdserver: mvcc: database space exceeded')
    switch (path) {
      case methods.txn.path:
        return this.#transact(message)
      case methods.range.path:
        return { ...this.#range(message), header: this.#header() }
      case methods.leaseGrant.path:
        if (this.#leases.has(ID)) throw new EtcdError(9, 'etcdserver: lease already exists')
        this.#leases.set(ID, Math.max(2, TTL))
        return { ID, TTL: Math.max(2, TTL), header: this.#header() }
      case methods.leaseRevoke.path:
        if (!this.#leases.has(ID)) throw new EtcdError(5, 'etcdserver: requested lease not found')
        this.revoke(ID)
        return { header: this.#header() }
      case methods.leaseKeepAlive.path:
        return { ID, TTL: this.#leases.get(ID) ?? 0, header: this.#header(this.keepAliveTerm) }
      case methods.leaseTimeToLive.path: {
        const keys = [...this.#kvs.values()].filter(({ lease }) => lease === ID).map(({ key }) => key)
        const grantedTTL = this.#leases.get(ID) ?? 0
        return { TTL: grantedTTL, grantedTTL, keys, header: this.#header() }
      }
      default:
        throw new EtcdError(UNAVAILABLE, `${path} is not simulated`)
    }
  }

  #header(term = this.term) {
    return { cluster_id: 'c1', revision: this.#revision, raft_term: term }
  }

  #transact(request: TxnRequest): TxnResponse {
    // All comparisons, also those of nested transactions, see what was before the writes.
    const taken = this.#choose(request)
    if (writes(taken)) this.#revision++
    // Without a write or a read in it, a member answers a transaction by itself, even if it was replaced as a leader.
    const isLocal = [...request.success, ...request.failure].length === 0
    return { ...this.#apply(taken), header: this.#header(isLocal ? this.keepAliveTerm : undefined) }
  }

  #choose({ compare, success, failure }: TxnRequest): Chosen {
    const succeeded = compare.every((each) => this.#holds(each))
    const operations = (succeeded ? success : failure).map(({ txn, ...operation }) =>
      txn === undefined ? operation : { chosen: this.#choose(txn) },
    )
    return { succeeded, operations }
  }

  #apply({ succeeded, operations }: Chosen): TxnResponse {
    const responses = operations.map((operation): OperationResponse => {
      if (operation.chosen !== undefined) return { txn: this.#apply(operation.chosen) }
      if (operation.range !== undefined) return { range: this.#range(operation.range) }
      if (operation.put !== undefined) this.#put(operation.put)
      if (operation.delete !== undefined) this.#delete(operation.delete.key)
      return {}
    })
    return { succeeded, responses }
  }

  #holds({ key = '', range_end, target, result = 0, ...wanted }: Compare): boolean {
    const found = this.#within(key, range_end)
    const absent = { create_revision: 0, mod_revision: 0, value: '' }
    if (found.length === 0 && target === 3) return false
    return (found.length === 0 ? [absent] : found).every((kv) => {
      const order =
        target === 3
          ? Buffer.compare(Buffer.from(kv.value), Buffer.from(wanted.value ?? ''))
          : target === 1
            ? kv.create_revision - (wanted.create_revision ?? 0)
            : kv.mod_revision - (wanted.mod_revision ?? 0)
      return [order === 0, order > 0, order < 0, order !== 0][result]
    })
  }

  #within(key: string, range_end = ''): KeyValue[] {
    const kv = this.#kvs.get(key)
    if (range_end === '') return kv === undefined ? [] : [kv]
    return [...this.#kvs.values()]
      .filter((each) => isWithin(each.key, key, range_end))
      .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))
  }

  #range(request: RangeRequest) {
    const { key = '', range_end, limit = 0, sort_order, keys_only, max_create_revision = 0 } = request
    let kvs = this.#within(key, range_end)
    if (max_create_revision > 0) kvs = kvs.filter((kv) => kv.create_revision <= max_create_revision)
    if (sort_order === 2) kvs.sort((a, b) => b.create_revision - a.create_revision)
    const shown = limit > 0 ? kvs.slice(0, limit) : kvs
    const values = keys_only ? shown.map((kv) => ({ ...kv, value: '' })) : shown
    return { kvs: values, more: shown.length < kvs.length, count: kvs.length }
  }

  #put({ key = '', value = '', lease = 0 }: NonNullable<Operation['put']>): void {
    if (lease !== 0 && !this.#leases.has(lease))
      throw new EtcdError(5, 'etcdserver: requested lease not found')
    const before = this.#kvs.get(key)
    const create_revision = before?.create_revision ?? this.#revision
    const kv = { key, value, lease, create_revision, mod_revision: this.#revision }
    this.#kvs.set(key, kv)
    this.everCreated.add(key)
    this.#happened({ type: 0, kv, ...(before !== undefined && { prev_kv: before }) })
  }

  #delete(key: string): void {
    const prev_kv = this.#kvs.get(key)
    if (prev_kv === undefined) return
    this.#kvs.delete(key)
    const kv = { key, value: '', lease: 0, create_revision: 0, mod_revision: this.#revision }
    this.#happened({ type: 1, kv, prev_kv })
  }

  #happened(event: Event): void {
    this.#history.push(event)
    for (const { watchers, onMessage } of this.#streams)
      for (const { id, isWanted } of watchers.values())
        if (isWanted(event)) setImmediate(() => watchers.has(id) && onMessage(responseOf(id, [event])))
  }

  #watch(
    stream: { watchers: Map<number, Watcher>; onMessage: (response: WatchResponse) => void },
    { create, cancel }: WatchRequest,
  ): void {
    if (cancel !== undefined) stream.watchers.delete(cancel.watch_id ?? 0)
    if (create === undefined) return
    const { watch_id: id = 0, key = '', range_end, start_revision = 0, filters = [] } = create
    const isWanted = ({ type, kv }: Event) =>
      isWithin(kv.key, key, range_end ?? '') && !filters.includes(type) && kv.mod_revision >= start_revision
    stream.watchers.set(id, { id, key, range_end, isWanted })
    setImmediate(() => stream.watchers.has(id) && stream.onMessage(responseOf(id, [])))
    const past = start_revision === 0 ? [] : this.#history.filter(isWanted)
    if (past.length > 0) setImmediate(() => stream.watchers.has(id) && stream.onMessage(responseOf(id, past)))
  }
}

interface Chosen {
  readonly succeeded: boolean
  readonly operations: readonly (Omit<Operation, 'txn'> & { readonly chosen?: Chosen })[]
}

function writes({ operations }: Chosen): boolean {
  return operations.some(
    ({ chosen, put, delete: removed }) =>
      put !== undefined || removed !== undefined || (chosen !== undefined && writes(chosen)),
  )
}

function isWithin(key: string, from: string, range_end: string): boolean {
  if (range_end === '') return key === from
  const bytes = Buffer.from(key)
  return Buffer.compare(bytes, Buffer.from(from)) >= 0 && Buffer.compare(bytes, Buffer.from(range_end)) < 0
}

function responseOf(watch_id: number, events: readonly Event[]): WatchResponse {
  return { watch_id, created: false, canceled: false, cancel_reason: '', fragment: false, events }
}
