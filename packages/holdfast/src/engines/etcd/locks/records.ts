/** Records: the values of keys, and a name as it was found at one revision. */
import { publicIdOf } from '../../../base/ids.ts'
import type { ClaimRecord, DataRecord, MarkRecord, SessionRecord } from '../../../kit/claim-records.ts'
import { type StoredClaim, StoredName } from '../../../kit/stored-name.ts'
import { type Compare, type KeyValue, valueAfter, valueBefore } from '../client/index.ts'
import { type Keys, type ParsedKey, tokenOf } from './keys.ts'

// A line with the attempt, then a letter that says whether it waits, then the record. Values are compared by bytes.
const GRANTED = 'g'
const WAITING = 'w'
const AFTER_ALL = '~'

/** `index`: its position in the transaction that grants it. */
export function claimValue(attempt: string, record: ClaimRecord, index?: number): string {
  return `${attempt}\n${index === undefined ? WAITING : GRANTED}${JSON.stringify({ ...record, index })}`
}

/** The key is the attempt's, and waits or is granted. */
export function isOf(key: string, attempt: string, from = GRANTED): Compare[] {
  return [valueAfter(key, `${attempt}\n${from}`), valueBefore(key, `${attempt}\n${AFTER_ALL}`)]
}

export function waits(key: string, attempt: string): Compare[] {
  return isOf(key, attempt, WAITING)
}

/** A claim that was found. `revision`: of its last write, which is its grant if it is granted. */
export interface EtcdClaim extends StoredClaim {
  readonly lease: number
  readonly slot: string
  readonly revision: number
}

/** Null: it is the key of something else. */
export function etcdClaim(kv: KeyValue, parsed: ParsedKey | null): EtcdClaim | null {
  if (parsed?.mode === undefined) return null
  const { mode, name, lease, id: slot } = parsed
  const [, attempt = '', state, json = ''] = /^(.*)\n(.)(.*)$/s.exec(kv.value) ?? []
  const granted = state === GRANTED
  const { index = 0, ...record } = JSON.parse(json) as ClaimRecord & { readonly index?: number }
  const { weight, capacity } = record
  const token = granted ? tokenOf(kv.mod_revision, index, mode) : null
  const [order, revision, id] = [BigInt(kv.create_revision), kv.mod_revision, publicIdOf(attempt)]
  return {
    key: kv.key,
    name,
    lease,
    slot,
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

/** Reads of one transaction, whatever of them was asked for. */
export class Found {
  readonly revision: number
  session: (SessionRecord & { readonly revision: number }) | undefined
  mark: MarkRecord | undefined
  data: (DataRecord & { readonly revision: number }) | undefined
  readonly name: StoredName<EtcdClaim>

  constructor(keys: Keys, kvs: readonly KeyValue[], revision: number) {
    this.revision = revision
    const claims: EtcdClaim[] = []
    const closedBy: { readonly key: string; readonly order: bigint }[] = []
    const capacities: { readonly order: bigint; readonly capacity: number }[] = []
    // A transaction may read a key twice.
    for (const kv of new Map(kvs.map((kv) => [kv.key, kv])).values()) {
      const parsed = keys.parse(kv.key)
      const claim = etcdClaim(kv, parsed)
      const order = BigInt(kv.mod_revision)
      if (claim !== null) claims.push(claim)
      else if (parsed?.kind === 's') this.session = { ...JSON.parse(kv.value), revision: kv.create_revision }
      else if (parsed?.kind === 'm') this.mark = JSON.parse(kv.value)
      else if (parsed?.kind === 'data') this.data = { ...JSON.parse(kv.value), revision: kv.mod_revision }
      else if (parsed?.kind === 'kept') closedBy.push({ key: kv.key, order })
      else if (parsed?.kind === 'capacity') capacities.push({ order, capacity: Number(kv.value) })
    }
    const facts = { claims, closedBy, capacities, version: BigInt(revision) }
    this.name = new StoredName(this.data === undefined ? facts : { ...facts, data: this.data })
  }
}

/** The names that one read has found, in the order of the keys. */
export function foundByName(keys: Keys, kvs: readonly KeyValue[], revision: number): Map<string, Found> {
  const byName = Map.groupBy(kvs, ({ key }) => keys.parse(key)?.name ?? '')
  return new Map([...byName].map(([name, own]) => [name, new Found(keys, own, revision)]))
}
