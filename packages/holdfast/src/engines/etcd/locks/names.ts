/** The names of a namespace at etcd, as operators see them. Each read is at one revision, each write on condition of what was read. */
import { UnsupportedError } from '../../../base/errors.ts'
import type { MarkRecord, SessionRecord } from '../../../kit/claim-records.ts'
import type { NameStore } from '../../../kit/conditional-store.ts'
import type { StoredName } from '../../../kit/stored-name.ts'
import type { Call, Page, PageRequest, SessionState } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import type { Connection } from './connection.ts'
import { modes } from './keys.ts'
import { type EtcdClaim, Found, foundByName } from './records.ts'

/** One read has at most so many keys, with up to 4 KiB of data in every second one. The waiters of one name may be more. */
const KEYS_AT_ONCE = 2_000
/** A name that is held has two: the claim, and its data. */
const KEYS_OF_NAME = 2
/** Leases whose time is asked for at once. A page of sessions has no more. */
const LEASES_AT_ONCE = 100
/** Sessions whose writes and comparisons fit into one transaction of etcd. */
const MAX_SESSIONS = 100

export class EtcdNames implements NameStore<EtcdClaim> {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async read(name: string, call: Call): Promise<StoredName<EtcdClaim>> {
    return (await this.#connection.read([etcd.getAll(this.#connection.keys.name(name))], call)).name
  }

  /**
   * In the order of the names' bytes, which is that of the keys. It reads as many keys as the page may need, so a page of names with
   * many waiters has fewer names than it may.
   */
  async list(prefix: string, { cursor, limit }: PageRequest, call: Call) {
    const { client, keys, lifetime } = this.#connection
    lifetime.begin(call)
    // And the first key of the next name, which shows that the last one is complete.
    const needed = Math.min(KEYS_OF_NAME * limit + 1, KEYS_AT_ONCE)
    const range = { ...keys.names(prefix, cursor), limit: needed }
    const { kvs, more, header } = await client.ask(etcd.methods.range, range, call)
    const found = [...foundByName(keys, kvs, header?.revision ?? 0)].map(([name, { name: stored }]) => ({
      name,
      stored,
    }))
    // The last name may go on after what was read.
    const cut = more ? found.pop()?.name : undefined
    if (found.length === 0 && cut !== undefined)
      return { items: [{ name: cut, stored: await this.read(cut, call) }], next: cut }
    const items = found.slice(0, limit)
    const isLast = !more && items.length === found.length
    return { items, next: isLast ? null : (items.at(-1)?.name ?? null) }
  }

  async sessions({ cursor, limit }: PageRequest, call: Call): Promise<Page<SessionState>> {
    const { client, keys, lifetime } = this.#connection
    lifetime.begin(call)
    const { key, range_end } = keys.sessions
    const from = cursor === undefined ? key : `${key}${cursor}\0`
    const range = { key: from, range_end, limit: Math.min(limit, LEASES_AT_ONCE) }
    const { kvs, more } = await client.ask(etcd.methods.range, range, call)
    const read = async ({ value, lease }: etcd.KeyValue) => {
      const { id, holder, ttlMs } = JSON.parse(value) as SessionRecord
      return { id, holder, ttlMs, expiresInMs: await this.#leftMs(lease, ttlMs, call) }
    }
    const items = await Promise.all(kvs.map(read))
    return { items, next: more ? (kvs.at(-1)?.key.slice(key.length) ?? null) : null }
  }

  /** Of the first holders, if there are very many. */
  async timeLeft(claims: readonly EtcdClaim[], call: Call): Promise<ReadonlyMap<string, number>> {
    const sessions = new Map(claims.map((claim) => [claim.record.session.id, claim]))
    const asked = [...sessions].slice(0, LEASES_AT_ONCE).map(async ([id, { lease, record }]) => {
      return [id, await this.#leftMs(lease, record.session.ttlMs, call)] as const
    })
    return new Map(await Promise.all(asked))
  }

  /** A new leader gives every lease more time than its TTL. */
  async #leftMs(lease: number, ttlMs: number, call: Call): Promise<number> {
    return Math.min(ttlMs, await etcd.leaseLeftMs(this.#connection.client, lease, call))
  }

  async endClaim({ key, revision, lease, attempt }: EtcdClaim, mark: MarkRecord, call: Call) {
    const put = etcd.put(this.#connection.keys.mark(lease, attempt), JSON.stringify(mark), lease)
    return this.#writeIf([etcd.written(key, revision)], [etcd.remove(key), put], call)
  }

  /** The new capacity is written on the lease of every session that has claims, so it lasts as long as the last of them. */
  async changeCapacity(
    name: string,
    { claims, version }: StoredName<EtcdClaim>,
    capacity: number,
    call: Call,
  ) {
    const { keys } = this.#connection
    // While one claim of a session is there, its lease is.
    const witnesses = [...new Map(claims.map((claim) => [claim.lease, claim])).values()]
    if (witnesses.length > MAX_SESSIONS)
      throw new UnsupportedError(
        `etcd cannot resize a semaphore while more than ${MAX_SESSIONS} sessions hold or wait for it.`,
      )
    const unchanged = [keys.part(name, 'capacity'), keys.part(name, 'permits')]
    const compare = [
      ...unchanged.map((range) => etcd.unchangedSince(range, Number(version))),
      ...witnesses.map(({ key, order }) => etcd.created(key, Number(order))),
    ]
    const puts = witnesses.map(({ lease }) =>
      etcd.put(keys.of(name, 'capacity', lease), String(capacity), lease),
    )
    return this.#writeIf(compare, puts, call)
  }

  async deleteData(name: string, { version }: StoredName<EtcdClaim>, call: Call) {
    const { keys } = this.#connection
    const cell = keys.data(name)
    const unused = modes.map((mode) => etcd.none(keys.part(name, mode)))
    const range = { key: cell, range_end: `${cell}\0` }
    const isSame = [etcd.exists(cell), etcd.unchangedSince(range, Number(version))]
    return this.#writeIf([...unused, ...isSame], [etcd.remove(cell)], call)
  }

  async #writeIf(compare: readonly etcd.Compare[], writes: readonly etcd.Operation[], call: Call) {
    return (await this.#connection.transact(etcd.onCondition(compare, writes), call)).succeeded
  }
}

/** All claims below a prefix as they were at a revision, in several reads. */
export async function* claimsAt(
  { client, keys }: Connection,
  prefix: string,
  revision: number,
  call: Call,
): AsyncGenerator<EtcdClaim> {
  let range: etcd.Range | null = keys.names(prefix)
  while (range !== null) {
    const asked: etcd.RangeRequest = { ...range, revision, limit: KEYS_AT_ONCE }
    const { kvs, more } = await client.ask(etcd.methods.range, asked, call)
    yield* new Found(keys, kvs, revision).name.claims
    range = more ? { ...range, key: `${kvs.at(-1)?.key}\0` } : null
  }
}
