/**
 * The plan of what goes wrong, as data: made from the seed, shortened when a failure is made small, and printed with
 * it. Each seed chooses which kinds it uses at all, so that some runs have one fault only, and some have many.
 */
import { type Stream, stream } from './random.ts'
import type { Settings, Workload } from './settings.ts'

interface Window {
  /** Names the item in its own dice, so that it decides the same when others are taken out. */
  readonly id: number
  readonly atMs: number
  readonly forMs: number
}

export type Direction = 'both' | 'out' | 'in'

export type Fault =
  | (Window & { readonly kind: 'pause' | 'suspend' | 'block'; readonly client: number })
  | (Window & { readonly kind: 'wall-step'; readonly client: number; readonly byMs: number })
  /** Down for `forMs`, then a new process. */
  | (Window & { readonly kind: 'crash-client'; readonly client: number })
  | (Window & { readonly kind: 'freeze-engine' })
  /** `inTheAct`: not at once, but right after the next grant or visit, when something has not been synced yet. */
  | (Window & { readonly kind: 'crash-engine' | 'crash-resource'; readonly inTheAct: boolean })
  | (Window & { readonly kind: 'partition'; readonly client: number; readonly direction: Direction })
  | (Window & {
      readonly kind: 'loss' | 'delay' | 'duplicate'
      readonly client: number
      readonly direction: Direction
      readonly share: number
      /** How late at most. */
      readonly byMs: number
    })
  /** The client's next write to the resource is late by this much: it was in flight when the holder was overtaken. */
  | (Window & { readonly kind: 'late-write'; readonly client: number })
  | (Window & { readonly kind: 'lost-pushes'; readonly client: number; readonly share: number })
  | (Window & { readonly kind: 'force-release' | 'delete-name'; readonly name: string })
  /** The engine ends a client's sessions although their time is not up: beyond what it assumes. */
  | (Window & { readonly kind: 'early-expiry'; readonly client: number })

export type FaultKind = Fault['kind']

export const withinAssumptions: readonly FaultKind[] = [
  'pause',
  'suspend',
  'block',
  'wall-step',
  'crash-client',
  'crash-engine',
  'freeze-engine',
  'crash-resource',
  'partition',
  'loss',
  'delay',
  'duplicate',
  'lost-pushes',
  'late-write',
  'force-release',
]

export const beyondAssumptions: readonly FaultKind[] = ['delete-name', 'early-expiry']

export const faultKinds: readonly FaultKind[] = [...withinAssumptions, ...beyondAssumptions]

export const NAMES = ['a', 'b', 'c'] as const

/** The names that an operator may act on. */
const namesOf: Readonly<Record<Workload, readonly string[]>> = {
  locks: NAMES,
  election: NAMES,
  schedules: ['nightly'],
  partitions: ['p/member', 'p/partition/0', 'p/partition/1', 'p/partition/2'],
}

/** When faults end, as a share of the whole run. */
export function faultsEndMs(settings: Settings): number {
  return settings.durationMs * (settings.mode === 'liveness' ? 0.5 : 1)
}

/** `only`: these kinds and no others, instead of the seed's own choice. */
export function planFor(settings: Settings, only?: readonly FaultKind[]): readonly Fault[] {
  const dice = stream(settings.seed, 'plan')
  const possible = settings.mode === 'guard' ? faultKinds : withinAssumptions
  const share = dice.pick([0.15, 0.35, 0.6])
  const own = possible.filter(() => dice.chance(share))
  if (settings.mode === 'guard') own.push(...beyondAssumptions)
  const chosen = only ?? own
  if (chosen.length === 0) return []
  const endMs = faultsEndMs(settings)
  const count = Math.round((endMs / 1_000) * dice.pick([0.05, 0.12, 0.3]))
  const storms = Array.from({ length: Math.ceil(count / 5) }, () => stormOf(settings, endMs, dice))
  const isStormy = dice.chance(0.5)
  const faults = Array.from({ length: count }, (_, id) => {
    const storm = isStormy ? dice.pick(storms) : stormOf(settings, endMs, dice)
    return faultOf(dice.pick(chosen), id, settings, endMs, dice, storm)
  })
  return spareOneClock(faults).sort((a, b) => a.atMs - b.atMs)
}

/** Where and when: what goes wrong at once, for one client, is worse than the same spread out. */
interface Storm {
  readonly client: number
  readonly atMs: number
}

function stormOf(settings: Settings, endMs: number, dice: Stream): Storm {
  return { client: dice.integer(0, settings.clients - 1), atMs: dice.between(500, endMs - 500) }
}

/** Belief counts by the larger of two clocks: a machine that is suspended *and* set back has none left (G3). */
function spareOneClock(faults: readonly Fault[]): Fault[] {
  const suspends = faults.some(({ kind }) => kind === 'suspend')
  return faults.map((fault) =>
    suspends && fault.kind === 'wall-step' ? { ...fault, byMs: Math.abs(fault.byMs) } : fault,
  )
}

function faultOf(
  kind: FaultKind,
  id: number,
  settings: Settings,
  endMs: number,
  dice: Stream,
  storm: Storm,
): Fault {
  const { ttlMs } = settings
  const { client } = storm
  const atMs = Math.round(Math.min(endMs - 500, storm.atMs + dice.fraction() * ttlMs))
  const longMs = Math.round(dice.between(0.2, dice.pick([0.8, 1.5, 3])) * ttlMs)
  const forMs = Math.min(longMs, Math.max(1, endMs - atMs))
  const window = { id, atMs, forMs }
  const direction = dice.pick<Direction>(['both', 'out', 'in'])
  const [share, byMs] = [dice.pick([0.1, 0.3, 0.7]), Math.round(dice.between(0.05, 1.2) * ttlMs)]
  const name = dice.pick(namesOf[settings.workload])
  switch (kind) {
    case 'pause':
    case 'suspend':
    case 'block':
    case 'crash-client':
    case 'early-expiry':
      return { ...window, kind, client }
    case 'wall-step':
      return { ...window, kind, client, byMs: dice.pick([3_600_000, -3_600_000, ttlMs / 2, -ttlMs]) }
    case 'late-write':
      return { ...window, kind, client, forMs: Math.round(dice.between(0.5, 2) * ttlMs) }
    case 'freeze-engine':
      return { ...window, kind, forMs: Math.min(forMs, ttlMs) }
    case 'crash-engine':
    case 'crash-resource': {
      const inTheAct = dice.chance(0.6)
      return { ...window, kind, inTheAct, forMs: inTheAct ? dice.integer(5, 400) : Math.min(forMs, ttlMs) }
    }
    case 'partition':
      return { ...window, kind, client, direction }
    case 'loss':
    case 'delay':
    case 'duplicate':
      // Bad stretches of a network last longer than one outage.
      return { ...window, kind, client, direction, share, byMs, forMs: Math.min(forMs * 4, endMs - atMs) }
    case 'lost-pushes':
      return { ...window, kind, client, share: 0.8, forMs: Math.min(forMs * 4, endMs - atMs) }
    case 'force-release':
    case 'delete-name':
      return { ...window, kind, name }
  }
}
