/** What the values of keys say, and a name as it was found at one revision. */
import { publicIdOf } from '../../base/ids.ts'
import type { KeyValue } from '../../clients/etcd/index.ts'
import { type ClaimRecord, nameState, type SessionRecord, type StoredClaim } from '../../kit/claim-records.ts'
import type { QueueEntry } from '../../kit/ordered-store.ts'
import type { NameState } from '../../spi.ts'
import { type Keys, type ParsedKey, tokenOf } from './keys.ts'

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

// The first letter says whether a claim waits. Values are compared by bytes: a claim waits if its value is greater than `w`.
const GRANTED = 'g'
export const WAITING = 'w'

/** `index`: its position in the transaction that grants it. */
export function claimValue(record: ClaimRecord, index?: number): string {
  return `${index === undefined ? WAITING : GRANTED}${JSON.stringify({ ...record, index })}`
}

/** A claim that was found. `revision`: of its last write, which is its grant if it is granted. */
export interface FoundClaim extends QueueEntry, StoredClaim, Pick<ParsedKey, 'lease' | 'attempt'> {
  readonly capacity: number
  readonly revision: number
}

/** Null: it is the key of something else. */
export function foundClaim(kv: KeyValue, parsed: ParsedKey | null): FoundClaim | null {
  if (parsed?.mode === undefined) return null
  const { mode, name, lease, attempt } = parsed
  const granted = kv.value.startsWith(GRANTED)
  const { index = 0, ...record } = JSON.parse(kv.value.slice(1)) as ClaimRecord & { readonly index?: number }
  const { weight, capacity } = record
  const token = granted ? tokenOf(kv.mod_revision, index, mode) : null
  const [order, revision, id] = [BigInt(kv.create_revision), kv.mod_revision, publicIdOf(attempt)]
  return {
    key: kv.key,
    name,
    lease,
    attempt,
    id,
    mode,
    order,
    revision,
    granted,
    token,
    weight,
    capacity,
    record,
  }
}

/** What one transaction has read, whatever of it was asked for. */
export class Found {
  readonly revision: number
  session: (SessionRecord & { readonly revision: number }) | undefined
  mark: MarkRecord | undefined
  data: (DataRecord & { readonly revision: number }) | undefined
  /** In the order of the queue. */
  readonly claims: FoundClaim[] = []
  /** Keys that keep the name closed. */
  readonly kept: string[] = []
  readonly #capacities: KeyValue[] = []

  constructor(keys: Keys, kvs: readonly KeyValue[], revision: number) {
    this.revision = revision
    // A transaction may read a key twice.
    for (const kv of new Map(kvs.map((kv) => [kv.key, kv])).values()) this.#add(kv, keys.parse(kv.key))
    this.claims.sort((a, b) => Number(a.order - b.order))
  }

  #add(kv: KeyValue, parsed: ParsedKey | null): void {
    const claim = foundClaim(kv, parsed)
    if (claim !== null) this.claims.push(claim)
    else if (parsed?.kind === 's') this.session = { ...JSON.parse(kv.value), revision: kv.create_revision }
    else if (parsed?.kind === 'm') this.mark = JSON.parse(kv.value)
    else if (parsed?.kind === 'data') this.data = { ...JSON.parse(kv.value), revision: kv.mod_revision }
    else if (parsed?.kind === 'kept') this.kept.push(kv.key)
    else if (parsed?.kind === 'capacity') this.#capacities.push(kv)
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

  state(name: string, wallMs: number): NameState | null {
    const { claims, capacity, data, kept } = this
    return nameState({ name, claims, capacity, data: data?.data, isClosed: kept.length > 0 }, wallMs)
  }
}
