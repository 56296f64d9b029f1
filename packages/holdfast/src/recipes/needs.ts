/** What a recipe needs of a backend, checked when the recipe is created and not when the need first arises. */
import { InvalidArgumentError, UnsupportedError } from '../base/errors.ts'
import type { BackendInfo, Locker } from '../base/types.ts'

/** A recipe takes any locker that has what it needs; `Locker<'fenced'>` and `Locker<'unfenced'>` both fit. */
export type RecipeLocker = Pick<Locker, 'fencing' | 'info' | 'holder' | 'clock'>

interface Need {
  readonly isMet: (info: BackendInfo) => boolean
  readonly lacks: string
  /** The refusal names them. `needs.test.ts` compares them with the real backends. */
  readonly backends: readonly string[]
}

const needs = {
  data: {
    isMet: (info) => info.data,
    lacks: 'stores no data with a name',
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'etcd'],
  },
  fencing: {
    isMet: (info) => info.fencing === 'fenced',
    lacks: 'issues no fencing tokens',
    backends: [
      'memory',
      'sqlite',
      'redis with fencing: "clock-backed"',
      'postgres',
      'postgres-advisory',
      'etcd',
    ],
  },
  holdAtLeast: {
    isMet: (info) => info.holdAtLeast !== 'none',
    lacks: 'cannot keep a name closed after a release (holdAtLeastMs)',
    backends: ['memory', 'sqlite', 'redis', 'redlock', 'postgres', 'etcd'],
  },
  shared: {
    isMet: (info) => info.modes.includes('shared'),
    lacks: 'has no shared leases',
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'postgres-advisory', 'etcd'],
  },
  queue: {
    isMet: (info) => info.waiting === 'queue',
    lacks: 'has no queue of waiters (maxWaiters)',
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'etcd'],
  },
} satisfies Record<string, Need>

export type RecipeNeed = keyof typeof needs

/** Throws `UNSUPPORTED`, and names backends that have what is missing. */
export function checkNeeds(recipe: string, locker: RecipeLocker, needed: readonly RecipeNeed[]): void {
  if (typeof locker?.info?.name !== 'string')
    throw new InvalidArgumentError('locker', 'must be a locker, as createLocker and openLocker return it.')
  for (const name of needed) {
    const { isMet, lacks, backends } = needs[name]
    if (!isMet(locker.info))
      throw new UnsupportedError(
        `${recipe} cannot run on ${locker.info.name}, which ${lacks}. Backends that can: ${backends.join(', ')}.`,
      )
  }
}
