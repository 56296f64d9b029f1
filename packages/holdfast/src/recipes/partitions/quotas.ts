/**
 * Who should have how many partitions. Pure functions of one picture: members that see the same picture compute the same
 * quotas, so no coordinator is needed.
 *
 * A member's exact share is `count × weight ÷ all weights`. Every member gets its floor, and some get one more. Members
 * that hold more than their floor come first, so nothing moves that need not move. How much more a member holds must not
 * matter: while it gives its surplus away the order would change, and others would move partitions for nothing.
 */

export interface Member {
  readonly id: string
  /** `locker.holder`, which pins name. Several members may have the same. */
  readonly label: string
  readonly weight: number
}

export interface Picture {
  readonly count: number
  /** The living members, in the order of their ids. */
  readonly members: readonly Member[]
  /** Partitions that each member holds, by its id. */
  readonly holdings: ReadonlyMap<string, readonly number[]>
  /** Partition to label. */
  readonly pins: ReadonlyMap<number, string>
}

export interface Plan {
  /** To be given away. */
  readonly revoke: readonly number[]
  /** To be tried, in this order. */
  readonly take: readonly number[]
  /** How many partitions the member lacks, whether or not they are free now. */
  readonly lacks: number
}

/** The member of each pinned partition whose label lives. Of several with one label, the first. */
export function livingPins({ members, pins }: Picture): ReadonlyMap<number, string> {
  const living = new Map<number, string>()
  for (const [partition, label] of pins) {
    const member = members.find((each) => each.label === label)
    if (member !== undefined) living.set(partition, member.id)
  }
  return living
}

/**
 * The quota of each member, by its id. A member with more pinned partitions than its floor gets exactly those, and the
 * others share the rest.
 */
export function quotas(picture: Picture): ReadonlyMap<string, number> {
  const pinned = livingPins(picture)
  const result = new Map<string, number>()
  let members = picture.members.map((member) => ({ ...member, ...countsOf(picture, pinned, member.id) }))
  let count = picture.count
  for (;;) {
    const weights = members.reduce((sum, { weight }) => sum + weight, 0)
    const shares = members.map((member) => {
      const floor = Math.floor((count * member.weight) / weights)
      return { ...member, floor, remainder: (count * member.weight) % weights }
    })
    const crowded = shares.filter(({ pinned, floor }) => pinned > floor)
    if (crowded.length === 0) {
      shareOut(shares, count, result)
      return result
    }
    for (const { id, pinned } of crowded) {
      result.set(id, pinned)
      count -= pinned
    }
    members = shares.filter(({ pinned, floor }) => pinned <= floor)
  }
}

interface Share {
  readonly id: string
  readonly keeps: number
  readonly floor: number
  readonly remainder: number
}

function shareOut(shares: readonly Share[], count: number, result: Map<string, number>): void {
  let left = count
  for (const { id, floor } of shares) {
    result.set(id, floor)
    left -= floor
  }
  const isAbove = ({ keeps, floor }: Share) => Number(keeps > floor)
  const order = shares
    .filter(({ remainder }) => remainder > 0)
    .sort((a, b) => isAbove(b) - isAbove(a) || b.remainder - a.remainder || (a.id < b.id ? -1 : 1))
  for (const { id, floor } of order.slice(0, left)) result.set(id, floor + 1)
}

/** `keeps`: what it would have if it gave away only what is pinned elsewhere, and had all that is pinned to it. */
function countsOf({ holdings }: Picture, pins: ReadonlyMap<number, string>, id: string) {
  let pinned = 0
  for (const owner of pins.values()) if (owner === id) pinned++
  const unpinned = (holdings.get(id) ?? []).filter((partition) => !pins.has(partition)).length
  return { pinned, keeps: unpinned + pinned }
}

/**
 * The moves of member `id`. `mine`: what it works on, oldest first; the newest go first. `free`: what no member holds.
 * Members that lack partitions start at different ones, so that they do not race for the same.
 */
export function planFor(
  picture: Picture,
  id: string,
  mine: readonly number[],
  free: readonly number[],
): Plan {
  const pins = livingPins(picture)
  const quotaOf = quotas(picture)
  const { pinned } = countsOf(picture, pins, id)
  const movable = mine.filter((partition) => !pins.has(partition))
  const wanted = (quotaOf.get(id) ?? 0) - pinned
  const lacks = Math.max(0, wanted - movable.length)
  const pinnedHere = (partition: number) => pins.get(partition) === id
  const open = free.filter((partition) => !pins.has(partition))
  let offset = 0
  for (const member of picture.members) {
    if (member.id === id) break
    const has = countsOf(picture, pins, member.id).keeps
    offset += Math.max(0, (quotaOf.get(member.id) ?? 0) - has)
  }
  const start = open.length === 0 ? 0 : offset % open.length
  return {
    revoke: [
      ...mine.filter((partition) => pins.has(partition) && !pinnedHere(partition)),
      ...movable.slice(Math.max(0, wanted)),
    ],
    take: [...free.filter(pinnedHere), ...open.slice(start), ...open.slice(0, start)].slice(
      0,
      free.filter(pinnedHere).length + lacks,
    ),
    lacks: lacks + pinned - mine.filter(pinnedHere).length,
  }
}
