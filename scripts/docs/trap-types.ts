// The shape of docs/traps.data.ts: every known way in which a lock went wrong, and for each part of this release either
// the test that shows that it survives, or why it cannot happen there.

export type Cell =
  /** Text that a passed test's full name contains, together with the trap's number. */
  | { readonly test: string }
  /** Why it cannot happen there. */
  | { readonly reason: string }
  /** Engines and parts of a later release, which will have to survive the trap. */
  | { readonly later: readonly Upcoming[] }

/** When one is added, take it out here; the compiler then finds the cells that name it. */
export const upcoming = ['remote'] as const
export type Upcoming = (typeof upcoming)[number]

export const backends = [
  'memory',
  'sqlite',
  'redis',
  'redlock',
  'postgres',
  'postgres-advisory',
  'etcd',
  'zookeeper',
  'consul',
] as const
export type BackendName = (typeof backends)[number]

/** Below `core` and `backends`, a backend has a cell only where its answer is another one. */
export interface Trap extends Readonly<Partial<Record<BackendName, Cell>>> {
  readonly id: `T${number}`
  readonly title: string
  /** Libraries and services that it happened in. */
  readonly seenIn?: string
  readonly core: Cell
  /**
   * The answer of every backend that has none of its own. A test must have passed for each of them: a rule that a backend
   * skips does not count for it. A reason must be true of any engine, also of one that is added later; where it is not,
   * write `each its own`.
   */
  readonly backends: Cell | 'as core' | 'each its own'
  /** If this is left out: all that is not part of this release will have to survive it. */
  readonly later?: Cell
}

export interface TrapSection {
  readonly title: string
  readonly traps: readonly Trap[]
}

/** For traps of an engine. */
export const engineDecides: Cell = { reason: 'the engine decides this; core only passes its answer on' }

/** The numbers of the traps that the table answers. */
export const trapNumbers: readonly number[] = Array.from({ length: 110 }, (_, index) => index + 1)
export const lastGuarantee = 13
