/** What the values of keys say, and a name as it was found at one revision. */
import { publicIdOf } from '../../base/ids.ts'
import type { KeyValue } from '../../clients/etcd/index.ts'
import type { QueueEntry } from '../../kit/ordered-store.ts'
import { type AcquireRequest, LOCK_CAPACITY } from '../../spi.ts'
import { type Keys, type Kind, type ParsedKey, tokenOf } from './keys.ts'

export interface SessionRecord {
  /** The public half of its id. */
  readonly id: string
  readonly holder: string
  readonly ttlMs: number
}

/** What is stored of a claim. `sinceMs`: when it was granted or began to wait, by the clock of its own client. */
export interface ClaimRecord {
  readonly session: SessionRecord
  readonly weight: number
  readonly capacity: number
  readonly sinceMs: number
  readonly note?: string
  readonly owner?: string
  /** Its position in the transaction that granted it. */
  readonly index?: number
}

export interface MarkRecord {
  readonly reason: 'abandoned' | 'force-released'
  readonly detail?: string
}

/** Watchers are told which holder has stored the data. */
export interface DataRecord {
  readonly data: string
  readonly id: string
  readonly holder: string
  readonly owner?: string
  readonly token: string
}

// The first letter says whether a claim waits, and comparisons of values are by bytes: a claim waits if its value is greater than `w`.
const GRANTED = 'g'
export const WAITING = 'w'

export function claimValue(
  { weight, capacity, note, owner }: AcquireRequest,
  session: SessionRecord,
  sinceMs: number,
  index?: number,
): string {
  const record: ClaimRecord = {
    session,
    weight,
    capacity,
    sinceMs,
    ...(note !== undefined && { note }),
    ...(owner !== undefined && { owner }),
    ...(index !== undefined && { index }),
  }
  return `${index === undefined ? WAITING : GRANTED}${JSON.stringify(record)}`
}

/** A claim that was found. */
export class FoundClaim implements QueueEntry {
  readonly key: string
  readonly kind: Kind
  readonly name: string
  readonly lease: number
  readonly attempt: string
  readonly id: string
  /** The revision at which it was last written: of its grant, if it is granted. */
  readonly revision: number
  readonly granted: boolean
  readonly #kv: KeyValue
  #record: ClaimRecord | undefined

  constructor(kv: KeyValue, kind: Kind, { name, lease, attempt }: ParsedKey) {
    this.key = kv.key
    this.kind = kind
    this.name = name
    this.lease = lease
    this.attempt = attempt
    this.id = publicIdOf(attempt)
    this.revision = kv.mod_revision
    this.granted = kv.value.startsWith(GRANTED)
    this.#kv = kv
  }

  get order(): bigint {
    return BigInt(this.#kv.create_revision)
  }

  /** Read only when it is needed: of a long queue, most are only counted. */
  get record(): ClaimRecord {
    this.#record ??= JSON.parse(this.#kv.value.slice(1)) as ClaimRecord
    return this.#record
  }

  get weight(): number {
    if (this.kind === 'p') return this.record.weight
    return this.kind === 'w' ? LOCK_CAPACITY : 1
  }

  get capacity(): number {
    return this.kind === 'p' ? this.record.capacity : LOCK_CAPACITY
  }

  get token(): bigint {
    return tokenOf(this.revision, this.record.index ?? 0, this.kind)
  }
}

/** What one transaction has read, whatever of it was asked for. */
export class Found {
  readonly revision: number
  session: KeyValue | undefined
  mark: MarkRecord | undefined
  data: DataRecord | undefined
  dataRevision = 0
  /** In the order of the queue. */
  readonly claims: FoundClaim[] = []
  /** Keys that keep the name closed. */
  readonly closed: string[] = []
  readonly #capacities: KeyValue[] = []

  constructor(keys: Keys, kvs: readonly KeyValue[], revision: number) {
    this.revision = revision
    // A transaction may read a key twice.
    for (const kv of new Map(kvs.map((kv) => [kv.key, kv])).values()) this.#add(kv, keys.parse(kv.key))
    this.claims.sort((a, b) => Number(a.order - b.order))
  }

  #add(kv: KeyValue, parsed: ParsedKey | null): void {
    switch (parsed?.kind) {
      case 's':
        this.session = kv
        break
      case 'm':
        this.mark = JSON.parse(kv.value) as MarkRecord
        break
      case 'd':
        this.data = JSON.parse(kv.value) as DataRecord
        this.dataRevision = kv.mod_revision
        break
      case 'k':
        this.closed.push(kv.key)
        break
      case 'c':
        this.#capacities.push(kv)
        break
      case 'p':
      case 'r':
      case 'w':
        this.claims.push(new FoundClaim(kv, parsed.kind, parsed))
    }
  }

  /** That of the oldest claim, unless it was changed since. A name without claims has none. */
  get capacity(): number | null {
    const [oldest] = this.claims
    return oldest === undefined ? null : this.capacitySince(oldest.order, oldest.capacity)
  }

  /** What became of the capacity with which a claim was created. */
  capacitySince(order: bigint, capacity: number): number {
    const changes = this.#capacities.filter(({ mod_revision }) => BigInt(mod_revision) > order)
    const latest = changes.toSorted((a, b) => a.mod_revision - b.mod_revision).at(-1)
    return latest === undefined ? capacity : Number(latest.value)
  }

  claim(key: string): FoundClaim | undefined {
    return this.claims.find((claim) => claim.key === key)
  }
}
