// The shape of docs/traps.data.ts: every known way in which a lock went wrong, and for each part of this
// release either the test that shows it survives, or why it cannot happen there.

export type Cell =
  /** Text that a passed test's full name contains, together with the trap's number. */
  | { readonly test: string }
  /** Why it cannot happen there. */
  | { readonly reason: string }
  /** What is not part of this release and will have to survive it. */
  | { readonly later: 'all' | readonly Upcoming[] }

/** Who adds one takes it out here; the compiler then finds the cells that name it. */
export const upcoming = ['etcd', 'zookeeper', 'consul', 'remote', 'command line'] as const
export type Upcoming = (typeof upcoming)[number]

export const columns = [
  'core',
  'memory',
  'sqlite',
  'redis',
  'redlock',
  'postgres',
  'postgres-advisory',
  'later',
] as const
export type Column = (typeof columns)[number]

export interface Trap extends Readonly<Record<Column, Cell>> {
  readonly id: `T${number}`
  readonly title: string
  /** Libraries and services that it happened in. */
  readonly seenIn?: string
}

export interface TrapSection {
  readonly title: string
  readonly traps: readonly Trap[]
}

/** The numbers of the traps that the table answers. */
export const trapNumbers: readonly number[] = Array.from({ length: 90 }, (_, index) => index + 1)
export const lastGuarantee = 13

/** For a cell that nobody has answered yet; the check does not let it pass. */
export const open: Cell = { reason: '' }
