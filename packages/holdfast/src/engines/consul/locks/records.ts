/** Records: the values of keys, and a name as one read has found it. */
import { publicIdOf } from '../../../base/ids.ts'
import type { ClaimRecord, DataRecord, MarkRecord, SessionRecord } from '../../../kit/claim-records.ts'
import { type StoredClaim, StoredName } from '../../../kit/stored-name.ts'
import type { Claim, Mode } from '../../../spi.ts'
import type { Entry } from '../client/index.ts'
import { type Keys, tokens } from './keys.ts'

/** A session as it is stored. `delay`: its second session at Consul, if it has a lock-delay. */
export interface OpenedSession extends SessionRecord {
  readonly delay?: string
}

/**
 * Kept short: three servers write it into their logs. `place`: its position in the transaction that has created it, for the order in the
 * queue. `grantedAt`: in the one that has granted it, for the token; null while it waits, or holds by its creation.
 */
export function claimValue(record: ClaimRecord, mode: Mode, place: number, grantedAt: number | null): string {
  const { session, weight, capacity, sinceMs, note, owner } = record
  const { id, holder, ttlMs } = session
  return JSON.stringify([mode, place, grantedAt, weight, capacity, sinceMs, id, holder, ttlMs, note, owner])
}

function claimIn(value: string) {
  const fields: unknown = JSON.parse(value)
  const [mode, place, grantedAt, weight, capacity, sinceMs, id, holder, ttlMs, note, owner] =
    fields as readonly [
      ...[
        mode: Mode,
        place: number,
        grantedAt: number | null,
        weight: number,
        capacity: number,
        sinceMs: number,
      ],
      ...[id: string, holder: string, ttlMs: number, note?: string | null, owner?: string | null],
    ]
  const session: SessionRecord = { id, holder, ttlMs }
  const also = { ...(note != null && { note }), ...(owner != null && { owner }) }
  return {
    mode,
    place,
    grantedAt,
    record: { session, weight, capacity, sinceMs, ...also } satisfies ClaimRecord,
  }
}

/** A claim that was found. `revision`: the index of its last write. */
export interface ConsulClaim extends StoredClaim {
  readonly session: string
  readonly revision: bigint
}

export interface NameView {
  /** `try`: a granting write takes tombstones away, which Consul refuses while their lock-delay lasts. By default they close the name. */
  readonly tombstones?: 'try' | undefined
  readonly lookAgainMs?: number
}

/** A `delay` key without its claim is a tombstone: the session of its holder has ended by itself. */
export function tombstonesIn(keys: Keys, entries: readonly Entry[]): Entry[] {
  const delays = entries.filter(({ key, isForeign }) => !isForeign && keys.parse(key).kind === 'delay')
  if (delays.length === 0) return delays
  const found = new Set(entries.map(({ key }) => key))
  return delays.filter(({ key }) => !found.has(`${keys.groupOf(key)}c/${keys.parse(key).id}`))
}

export function consulClaim(keys: Keys, { key, value, session = '', created, modified }: Entry): ConsulClaim {
  const { id: attempt } = keys.parse(key)
  const { mode, place, grantedAt, record } = claimIn(value)
  const { weight, capacity } = record
  const [id, name] = [publicIdOf(attempt), keys.nameOf(key)]
  const [granted, token] = [grantedAt !== null, tokens.token(modified, grantedAt ?? place)]
  const facts = { key, name, attempt, id, mode, session, granted, token, weight, capacity, record }
  return { ...facts, order: tokens.token(created, place), revision: modified }
}

/** The name, from everything below its key. A key that is not ours closes it, as an operator's does: it may have replaced a claim. */
export function nameIn(
  keys: Keys,
  entries: readonly Entry[],
  { tombstones: isTried, lookAgainMs }: NameView = {},
): StoredName<ConsulClaim> {
  const kinds = Map.groupBy(entries, ({ key, isForeign }) => (isForeign ? 'operator' : keys.parse(key).kind))
  const { c = [], kept = [], operator = [], capacity = [], data = [] } = Object.fromEntries(kinds)
  const tombstones = tombstonesIn(keys, entries)
  // While its second session lives, no write would take it away.
  const closing = tombstones.filter(({ session }) => isTried === undefined || session !== undefined)
  const closed = closing.map(({ key, created, value }) => ({
    key,
    order: value === '' ? orderOf(created) : BigInt(value),
  }))
  const compared = [...capacity, ...data, ...(isTried === undefined ? [] : tombstones)]
  const [cell] = data
  return new StoredName({
    version: entries.reduce((latest, { modified }) => (modified > latest ? modified : latest), 0n),
    // One without a value was checked and deleted by another request of the same transaction.
    claims: c.filter(({ value }) => value !== '').map((entry) => consulClaim(keys, entry)),
    closedBy: [
      ...[...kept, ...operator].map(({ key, created }) => ({ key, order: orderOf(created) })),
      ...closed,
    ],
    capacities: capacity.map(({ value, modified }) => ({
      order: orderOf(modified),
      capacity: Number(value),
    })),
    versions: new Map(compared.map(({ key, modified }) => [key, modified])),
    derivesGrants: true,
    ...(cell !== undefined && { data: JSON.parse(cell.value) as DataRecord }),
    ...(closing.length > 0 && lookAgainMs !== undefined && { closedForMs: lookAgainMs }),
  })
}

/** Before all claims of the transaction with this index. */
function orderOf(index: bigint): bigint {
  return tokens.token(index, 0)
}

/** The mark of an attempt; nothing while it is only a claim. */
export function markIn(entry: Entry | undefined): MarkRecord | undefined {
  const { reason, detail } = JSON.parse(entry?.value || '{}') as Partial<MarkRecord>
  return reason && (detail === undefined ? { reason } : { reason, detail })
}

/** The claims among the attempts of this session. The others are marks. */
export function claimsIn(keys: Keys, own: string, attempts: readonly Entry[]): Claim[] {
  return attempts
    .filter((entry) => entry.session === own && markIn(entry) === undefined)
    .map(({ key, value }) => ({ name: (JSON.parse(value) as Claim).name, attempt: keys.parse(key).id }))
}
