/** Faults of one call to an engine, as data. */
import { seededRandom } from './seeded-random.ts'

export const callKinds = [
  'openSession',
  'attachSession',
  'keepAlive',
  'tryAcquire',
  'enqueue',
  'abandon',
  'setData',
  'release',
  'close',
  'inspect',
  'list',
  'sessions',
  'diagnose',
  'check',
  'forceRelease',
  'resize',
  'forget',
] as const

export type CallKind = (typeof callKinds)[number]

export type Fault =
  /** Nothing happens at the engine, and the caller is told: by default as `not-applied`, or with your own error. */
  | { readonly kind: 'error-before'; readonly error?: unknown }
  /** The call happens, but its caller is told that it failed: by default as `unknown`, or with your own error. */
  | { readonly kind: 'error-after'; readonly error?: unknown }
  /** The request gets lost: nothing happens, and no answer comes. */
  | { readonly kind: 'lost-request' }
  /** The call happens, and no answer comes. */
  | { readonly kind: 'lost-reply' }
  /** The call happens now, and the answer comes `ms` later. */
  | { readonly kind: 'late-reply'; readonly ms: number }
  /** The caller is told now that the outcome is unknown; it happens `ms` later (T15, late acquires; T73, late originals). */
  | { readonly kind: 'late-landing'; readonly ms: number }
  /** Nothing happens until `unfreeze()`, whether or not the caller still waits (T16, answers that never come). */
  | { readonly kind: 'frozen' }
  /** The request arrives twice, at once or `ms` apart; the caller gets the answer to the first. */
  | { readonly kind: 'duplicate'; readonly ms?: number }

export type FaultKind = Fault['kind']

/** A call, as a plan sees it before deciding what goes wrong with it. */
export interface PlannedCall {
  /** Counts all calls of the backend, from 1. */
  readonly number: number
  readonly kind: CallKind
  /** The name that it is about, or null. */
  readonly name: string | null
}

export type FaultPlan = (call: PlannedCall) => Fault | null

export interface RandomFaultOptions {
  /** The same seed makes the same decisions for the same calls. */
  readonly seed: number
  /** The share of calls that go wrong, from 0 to 1. */
  readonly rate: number
  /** Default: all but `frozen`, which needs a call of `unfreeze`. */
  readonly kinds?: readonly FaultKind[]
  /** Default: all. */
  readonly calls?: readonly CallKind[]
  /** How late the late ones are at most. Default 500. */
  readonly maxLateMs?: number
}

const unattended: readonly FaultKind[] = [
  'error-before',
  'error-after',
  'lost-request',
  'lost-reply',
  'late-reply',
  'late-landing',
  'duplicate',
]

/** A plan that decides by a seeded source: `faultyBackend(backend, { plan: randomFaults({ seed: 7, rate: 0.1 }) })`. */
export function randomFaults(options: RandomFaultOptions): FaultPlan {
  const { seed, rate, kinds = unattended, calls = callKinds, maxLateMs = 500 } = options
  const random = seededRandom(seed)
  return (call) => {
    // Drawn for every call, so that a decision depends on nothing but the seed and the number of calls before.
    const [hit, which, howLate] = [random.fraction(), random.fraction(), random.fraction()]
    if (hit >= rate || !calls.includes(call.kind)) return null
    const kind = kinds[Math.floor(which * kinds.length)]
    return kind === undefined ? null : faultOf(kind, Math.ceil(howLate * maxLateMs))
  }
}

function faultOf(kind: FaultKind, ms: number): Fault {
  switch (kind) {
    case 'late-reply':
    case 'late-landing':
      return { kind, ms }
    default:
      return { kind }
  }
}
