/** Records: the values of keys, and a name as one read has found it. */
import { publicIdOf } from '../../../base/ids.ts'
import type { ClaimRecord, DataRecord, MarkRecord, SessionRecord } from '../../../kit/claim-records.ts'
import { type StoredClaim, StoredName } from '../../../kit/stored-name.ts'
import type { Mode } from '../../../spi.ts'
import type { Entry } from '../client/index.ts'
import { type Keys, tokens } from './keys.ts'

/** A session as it is stored. `delay`: its second session at Consul, if it has a lock-delay. */
export interface OpenedSession extends SessionRecord {
  readonly delay?: string
}

interface ClaimValue extends ClaimRecord {
  readonly mode: Mode
  /** Its position in the transaction that has written it, which is part of the token. */
  readonly at: number
  readonly granted: boolean
}

export function claimValue(record: ClaimRecord, mode: Mode, at: number, granted: boolean): string {
  return JSON.stringify({ ...record, mode, at, granted } satisfies ClaimValue)
}

/** A claim that was found. `revision`: the index of its last write. */
export interface FoundClaim extends StoredClaim {
  readonly session: string
  readonly revision: bigint
}

/** With `delay`, the order of the holder, where younger claims cannot have been beside it. */
export interface NameView {
  /** `try`: a granting write takes tombstones away, which Consul refuses while their lock-delay lasts. By default they close the name. */
  readonly tombstones?: 'try'
  readonly lookAgainMs?: number
}

/**
 * A `delay` key without its claim is a tombstone: its holder's session has ended by itself. Until its second session has ended as well,
 * no write would take it away.
 */
export function tombstonesIn(keys: Keys, entries: readonly Entry[]): Entry[] {
  const claims = new Set(entries.map(({ key }) => key))
  return entries.filter(({ key }) => {
    const { kind, name, id } = keys.parse(key)
    return kind === 'delay' && !claims.has(keys.of(name, 'c', id))
  })
}

export function foundClaim(keys: Keys, { key, value, session = '', created, modified }: Entry): FoundClaim {
  const { name, id: attempt } = keys.parse(key)
  const { mode, at, granted, ...record } = JSON.parse(value) as ClaimValue
  const { weight, capacity } = record
  const id = publicIdOf(attempt)
  const token = tokens.token(modified, at)
  const facts = { key, name, attempt, id, mode, session, granted, token, weight, capacity, record }
  return { ...facts, order: created, revision: modified }
}

/** The name, from everything below its key. */
export function nameIn(
  keys: Keys,
  entries: readonly Entry[],
  { tombstones: isTried, lookAgainMs }: NameView = {},
): StoredName<FoundClaim> {
  const claims: FoundClaim[] = []
  const closedBy: { readonly key: string; readonly order: bigint }[] = []
  const capacities: { readonly order: bigint; readonly capacity: number }[] = []
  const versions = new Map<string, bigint>()
  let data: DataRecord | undefined
  for (const entry of entries) {
    const { key, value, created, modified } = entry
    const { kind } = keys.parse(key)
    if (kind === 'c') claims.push(foundClaim(keys, entry))
    else if (kind === 'data') data = JSON.parse(value)
    else if (kind === 'kept' || kind === 'operator') closedBy.push({ key, order: created })
    else if (kind === 'capacity') capacities.push({ order: modified, capacity: Number(value) })
    if (kind === 'capacity' || kind === 'data') versions.set(key, modified)
  }
  const tombstones = tombstonesIn(keys, entries)
  const isClosing = ({ session }: Entry) => isTried === undefined || session !== undefined
  for (const { key, created, value } of tombstones.filter(isClosing))
    closedBy.push({ key, order: value === '' ? created : BigInt(value) })
  for (const { key, modified } of tombstones) if (isTried !== undefined) versions.set(key, modified)
  const isLookedAt = tombstones.some(isClosing) && lookAgainMs !== undefined
  return new StoredName({
    version: entries.reduce((latest, { modified }) => (modified > latest ? modified : latest), 0n),
    claims,
    closedBy,
    capacities,
    versions,
    derivesGrants: true,
    ...(data !== undefined && { data }),
    ...(isLookedAt && { closedForMs: lookAgainMs }),
  })
}

/** What is told of an attempt: a mark, or nothing while it is only a claim. */
export function markIn(entry: Entry | undefined): MarkRecord | undefined {
  const { reason, detail } = JSON.parse(entry?.value || '{}') as Partial<MarkRecord>
  return reason && (detail === undefined ? { reason } : { reason, detail })
}
