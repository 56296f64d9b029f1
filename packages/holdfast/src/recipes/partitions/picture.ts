/** The picture that one list call gives of the members and their partitions. */
import type { HolderState, NameState } from '../../base/types.ts'
import type { Member } from './quotas.ts'

/** The names of one set of partitions at the engine. Members share the first, and have the others alone. */
export interface Names {
  readonly prefix: string
  readonly member: string
  partition(number: number): string
  /** The number in a name; null if it is not the name of a partition. */
  partitionOf(name: string): number | null
}

export function namesOf(name: string): Names {
  const prefix = `${name}/`
  const start = `${prefix}partition/`
  return {
    prefix,
    member: `${prefix}member`,
    partition: (number) => `${start}${number}`,
    partitionOf: (text) => {
      const number = text.startsWith(start) ? text.slice(start.length) : ''
      return /^(0|[1-9]\d*)$/.test(number) ? Number(number) : null
    },
  }
}

/** A lease's note, for the others. */
export interface Note {
  readonly count: number
  readonly weight: number
}

export function noteText({ count, weight }: Note): string {
  return JSON.stringify({ count, weight })
}

/** Every look lists all partitions, so there is a limit to them. */
export const partitionLimits = { count: 4_096, weight: 1_000 } as const

function isCount(value: unknown, max: number): value is number {
  return Number.isInteger(value) && Number(value) >= 1 && Number(value) <= max
}

/** Null if another program's lease stands here. */
function readNote(text: string | undefined): Note | null {
  try {
    const { count, weight } = JSON.parse(text ?? '') as Partial<Note>
    return isCount(count, partitionLimits.count) && isCount(weight, partitionLimits.weight)
      ? { count, weight }
      : null
  } catch {
    return null
  }
}

export interface Listed {
  readonly members: readonly Member[]
  readonly holdings: ReadonlyMap<string, readonly number[]>
  readonly free: readonly number[]
  /** A member, or a partition, that was taken with another count. */
  readonly disagreeing: { readonly holder: string; readonly count: number } | undefined
  /** When the first of the other members has to be renewed. A dead one is not. */
  readonly firstExpiryMs: number
  /** The TTL that the engine granted to member `id`, if it is there. */
  readonly ttlMs: number | undefined
}

export function readList(states: readonly NameState[], names: Names, count: number, id: string): Listed {
  const members: Member[] = []
  const holdings = new Map<string, number[]>()
  const free = new Set(Array.from({ length: count }, (_, partition) => partition))
  let disagreeing: Listed['disagreeing']
  let firstExpiryMs = Number.POSITIVE_INFINITY
  let ttlMs: number | undefined
  const noteOf = ({ note, holder }: HolderState) => {
    const read = readNote(note)
    if (read !== null && read.count !== count) disagreeing ??= { holder, count: read.count }
    return read?.count === count ? read : null
  }
  for (const { name, holders, closedForMs = 0 } of states) {
    if (name === names.member)
      for (const holder of holders) {
        const note = noteOf(holder)
        if (note !== null) members.push({ id: holder.id, label: holder.holder, weight: note.weight })
        if (holder.id === id) ttlMs = holder.ttlMs
        else firstExpiryMs = Math.min(firstExpiryMs, holder.expiresInMs ?? holder.ttlMs)
      }
    const partition = names.partitionOf(name)
    const [holder] = holders
    if (partition === null) continue
    if (holder !== undefined || closedForMs > 0) free.delete(partition)
    if (holder === undefined || noteOf(holder) === null) continue
    const { owner = '' } = holder
    const held = holdings.get(owner)
    if (held === undefined) holdings.set(owner, [partition])
    else held.push(partition)
  }
  members.sort((a, b) => (a.id < b.id ? -1 : 1))
  return { members, holdings, free: [...free], disagreeing, firstExpiryMs, ttlMs }
}
