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
  const claims = new Set(entries.map(({ key }) => key))
  return entries.filter(({ key }) => {
    const { kind, name, id } = keys.parse(key)
    return kind === 'delay' && !claims.has(keys.of(name, 'c', id))
  })
}

export function consulClaim(keys: Keys, { key, value, session = '', created, modified }: Entry): ConsulClaim {
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
): StoredName<ConsulClaim> {
  const ofKind = (...kinds: readonly string[]) =>
    entries.filter(({ key }) => kinds.includes(keys.parse(key).kind))
  const tombstones = tombstonesIn(keys, entries)
  // While its second session lives, no write would take it away.
  const closing = tombstones.filter(({ session }) => isTried === undefined || session !== undefined)
  const closed = closing.map(({ key, created, value }) => ({
    key,
    order: value === '' ? created : BigInt(value),
  }))
  const [cell] = ofKind('data')
  const compared = [...ofKind('capacity', 'data'), ...(isTried === undefined ? [] : tombstones)]
  return new StoredName({
    version: entries.reduce((latest, { modified }) => (modified > latest ? modified : latest), 0n),
    claims: ofKind('c').map((entry) => consulClaim(keys, entry)),
    closedBy: [...ofKind('kept', 'operator').map(({ key, created: order }) => ({ key, order })), ...closed],
    capacities: ofKind('capacity').map(({ value, modified: order }) => ({ order, capacity: Number(value) })),
    versions: new Map(compared.map(({ key, modified }) => [key, modified])),
    derivesGrants: true,
    ...(cell !== undefined && { data: JSON.parse(cell.value) as DataRecord }),
    ...(closing.length > 0 && lookAgainMs !== undefined && { closedForMs: lookAgainMs }),
  })
}

/** What is told of an attempt: a mark, or nothing while it is only a claim. */
export function markIn(entry: Entry | undefined): MarkRecord | undefined {
  const { reason, detail } = JSON.parse(entry?.value || '{}') as Partial<MarkRecord>
  return reason && (detail === undefined ? { reason } : { reason, detail })
}

/** The claims among a session's attempts. The others are marks. */
export function claimsIn(keys: Keys, attempts: readonly Entry[]): Claim[] {
  return attempts
    .filter((entry) => markIn(entry) === undefined)
    .map(({ key, value }) => ({ name: (JSON.parse(value) as Claim).name, attempt: keys.parse(key).id }))
}
