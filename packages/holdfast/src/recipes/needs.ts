/** Needs of a recipe, checked against the backend when the recipe is created and not when the need first arises. */
import { InvalidArgumentError, UnsupportedError } from '../base/errors.ts'
import { checkLocker, checkNumber } from '../base/options.ts'
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
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'etcd', 'zookeeper', 'consul'],
  },
  fencing: {
    isMet: (info) => info.fencing === 'fenced',
    lacks: 'issues no fencing tokens',
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'postgres-advisory', 'etcd', 'zookeeper', 'consul'],
  },
  holdAtLeast: {
    isMet: (info) => info.holdAtLeast !== 'none',
    lacks: 'cannot keep a name closed after a release (holdAtLeastMs)',
    backends: ['memory', 'sqlite', 'redis', 'redlock', 'postgres', 'etcd', 'zookeeper', 'consul'],
  },
  shared: {
    isMet: (info) => info.modes.includes('shared'),
    lacks: 'has no shared leases',
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'postgres-advisory', 'etcd', 'zookeeper', 'consul'],
  },
  queue: {
    isMet: (info) => info.waiting === 'queue',
    lacks: 'has no queue of waiters (maxWaiters)',
    backends: ['memory', 'sqlite', 'redis', 'postgres', 'etcd', 'zookeeper', 'consul'],
  },
} satisfies Record<string, Need>

export type RecipeNeed = keyof typeof needs

/** Throws `UNSUPPORTED`, and names backends that have what is missing. */
export function checkNeeds(recipe: string, locker: RecipeLocker, needed: readonly RecipeNeed[]): void {
  checkLocker(locker)
  for (const name of needed) {
    const { isMet, lacks } = needs[name]
    if (!isMet(locker.info))
      throw new UnsupportedError(
        `${recipe} cannot run on ${locker.info.name}, which ${lacks}. Backends that can: ${backendsWith(needed)}.` +
          (name === 'fencing' ? ' Or pass allowUnfenced: true, if a paused process may write late.' : ''),
      )
  }
}

/** A recipe needs fencing, unless its caller allows an unfenced locker. */
export function fencingUnless(allowUnfenced: unknown = false): readonly RecipeNeed[] {
  if (typeof allowUnfenced !== 'boolean')
    throw new InvalidArgumentError('allowUnfenced', 'must be true or false.')
  return allowUnfenced ? [] : ['fencing']
}

/** Backends that meet all needs: the advice must not lead to the next refusal. */
function backendsWith(needed: readonly RecipeNeed[]): string {
  const able = needs.shared.backends.filter((backend) =>
    needed.every((name) => (needs[name].backends as readonly string[]).includes(backend)),
  )
  const shown = (backend: string) =>
    backend === 'redis' && needed.includes('fencing') ? 'redis with ?fencing=clock-backed' : backend
  return able.map(shown).join(', ')
}

/** The TTL is used at the first lease, which may be at night. */
export function checkTtl({ info }: RecipeLocker, ttlMs: number | undefined): void {
  if (ttlMs !== undefined) checkNumber('ttlMs', ttlMs, info.ttlMs)
}
