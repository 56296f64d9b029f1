/** One seed, run from the beginning to its end or to the first violation. */
import { onEvent } from '../../packages/holdfast/src/base/events.ts'
import { checkAll } from '../check/check-all.ts'
import { type Fault, type FaultKind, planFor } from './faults.ts'
import { type Mode, settingsFor, type Workload } from './settings.ts'
import { type Violation, World } from './world.ts'

/** Narrows what a seed would choose by itself. */
export interface Focus {
  readonly mode?: Mode
  /** Default `locks`. */
  readonly workload?: Workload
  readonly faults?: readonly FaultKind[]
}

export interface RunOptions extends Focus {
  /** Instead of the seed's own plan. */
  readonly plan?: readonly Fault[]
  readonly keepLines?: boolean
  /** Also judges the history by the checkers of `lab/check`, which takes several times as long. */
  readonly checkHistory?: boolean
}

export interface RunResult {
  readonly seed: number
  readonly mode: Mode
  readonly workload: Workload
  readonly traceHash: string
  readonly events: number
  readonly counts: Readonly<Record<string, number>>
  readonly plan: readonly Fault[]
  readonly violation: Violation | null
  readonly lines: readonly string[]
}

let current: World | null = null

// Events of the library count for the run that is in flight; nothing is heard between two runs.
onEvent('lost', ({ reason }) => current?.count(`lost ${reason}`))
onEvent('paused', () => current?.count('paused noticed'))
onEvent('renewal-failed', () => current?.count('renewal failed'))
onEvent('release-failed', () => current?.count('release failed'))
onEvent('dual-owner-suspected', () => current?.count('dual owner suspected'))
process.on('unhandledRejection', (reason) => notCaught(reason))
process.on('uncaughtException', (error) => notCaught(error))

function notCaught(error: unknown): void {
  if (current === null) throw error
  current.fail('T30', `unhandled rejection: ${String((error as Error)?.stack ?? error)}`)
}

export async function runSeed(seed: number, options: RunOptions = {}): Promise<RunResult> {
  const settings = settingsFor(seed, options.mode, options.workload)
  const plan = options.plan ?? planFor(settings, options.faults)
  const world = new World(settings, plan, {
    keepLines: options.keepLines ?? false,
    keepHistory: options.checkHistory ?? false,
  })
  current = world
  await world.run()
  // Unhandled rejections are reported when the queue of ticks is empty.
  await new Promise((resolve) => setImmediate(resolve))
  if (options.checkHistory && world.violation === null) judge(world)
  current = null
  const { checks, counts } = world
  counts.set('grants', checks.grants)
  counts.set('hand-overs', checks.handOvers)
  return {
    seed,
    mode: settings.mode,
    workload: settings.workload,
    traceHash: world.trace.hash,
    events: world.scheduler.events,
    counts: Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1))),
    plan,
    violation: world.violation,
    lines: world.trace.lines,
  }
}

/** Rules that the run's own checks do not judge, or judge better, are left out. */
const judged = ['G1', 'G2', 'G5', 'G7', 'G8', 'G13', 'linearizability'] as const

function judge(world: World): void {
  const { checks } = checkAll(world.history.toChecked(), { only: judged })
  for (const { check, judged, violations } of checks) {
    for (let times = 0; times < judged; times++) world.count(`history ${check}`)
    const [first] = violations
    if (first !== undefined) world.fail(`history ${check}`, first.message)
  }
}
