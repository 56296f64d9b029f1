/** Settings that one seed decides before anything happens: the kind of engine, the clients, their clocks and their timings. */
import type { BackendInfo } from '../../packages/holdfast/src/spi.ts'
import type { MachineClock } from './machine.ts'
import { stream } from './random.ts'

/**
 * safety     all faults that `info.assumptions` allows; nothing bad may happen
 * guard      faults beyond them as well: two may believe, and the guard alone must hold
 * liveness   faults end half-way; then everybody is served and nothing is left behind
 */
export type Mode = 'safety' | 'guard' | 'liveness'

/** The clients' work: operations on locks, or a recipe (see `recipes/`). */
export type Workload = 'locks' | 'election' | 'partitions' | 'schedules'

export const workloads: readonly Workload[] = ['locks', 'election', 'partitions', 'schedules']

export interface Settings {
  readonly seed: number
  readonly mode: Mode
  readonly workload: Workload
  readonly durationMs: number
  readonly clients: number
  readonly tasksPerClient: number
  readonly waiting: BackendInfo['waiting']
  /** `messages` go each for itself; `batches` go through the kit's lane over one connection. */
  readonly transport: 'messages' | 'batches'
  /** Of the batches of a client, how many may be in flight. */
  readonly batchesInFlight: number
  /** A waiter is answered from within the message that brings the news, or by a promise of it. */
  readonly answersDirectly: boolean
  /** A backend that cannot call back a keep-alive hears its answer even when its caller has gone. */
  readonly patientKeepAlive: boolean
  /** An engine that is down refuses connections at once, or nothing is heard of it. */
  readonly refusesWhenDown: boolean
  /** A client that was refused fails its next calls at once for a while. */
  readonly pausesWhenRefused: boolean
  readonly expirySlackMs: number
  readonly latencyMs: number
  readonly syncMs: number
  readonly ttlMs: number
  readonly callTimeoutMs: number
  /** How much of the TTL that is asked for the engine grants. */
  readonly grantedShare: number
  readonly engineRate: number
  /** Short, so that names come back after the guard has forgotten them, and stale holders with them. */
  readonly guardForgetsAfterMs: number
  readonly clocks: readonly MachineClock[]
}

export const DURATION_MS = 120_000
/** Together they stay below the drift that `info.driftMs` allows for (1 % of the TTL). */
const CLIENT_RATE_SPREAD = 0.0055
const ENGINE_RATE_SPREAD = 0.004

export function settingsFor(seed: number, only?: Mode, workload: Workload = 'locks'): Settings {
  const dice = stream(seed, 'settings')
  const mode = dice.pick<Mode>(['safety', 'safety', 'liveness', 'liveness', 'guard'])
  const clients = dice.integer(2, 4)
  return {
    seed,
    mode: only ?? mode,
    workload,
    durationMs: DURATION_MS,
    clients,
    tasksPerClient: dice.integer(1, 2),
    // A schedule with a stand-by needs a queue.
    waiting: dice.pick<BackendInfo['waiting']>(
      workload === 'schedules' ? ['queue'] : ['queue', 'queue', 'queue', 'queue', 'poll'],
    ),
    transport: dice.pick(['messages', 'messages', 'batches'] as const),
    batchesInFlight: stream(seed, 'lane').pick([1, 4]),
    answersDirectly: stream(seed, 'answering').chance(0.5),
    patientKeepAlive: dice.chance(0.3),
    refusesWhenDown: stream(seed, 'refusal').chance(0.5),
    pausesWhenRefused: stream(seed, 'pausing').chance(0.5),
    expirySlackMs: dice.pick([0, 5, 100, 500]),
    latencyMs: dice.pick([0.2, 1, 5, 20]),
    syncMs: dice.pick([0.1, 2, 10, 60]),
    // Between the end of the faults and the end of the run, claims of unknown outcome must have time to run out.
    ttlMs: Math.min(dice.pick([3_000, 5_000, 8_000]), workload === 'partitions' ? 5_000 : 8_000),
    callTimeoutMs: dice.pick([600, 1_000, 2_500]),
    grantedShare: dice.pick([1, 1, 0.75, 1.25]),
    engineRate: 1 + dice.between(-ENGINE_RATE_SPREAD, ENGINE_RATE_SPREAD),
    guardForgetsAfterMs: stream(seed, 'forgetting').pick([1_000, 5_000, 20_000]),
    clocks: Array.from({ length: clients }, () => ({
      monotonicOffsetMs: dice.between(0, 1e9),
      wallOffsetMs: dice.between(-1e7, 1e7),
      rate: 1 + dice.between(-CLIENT_RATE_SPREAD, CLIENT_RATE_SPREAD),
    })),
  }
}
