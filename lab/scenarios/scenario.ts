/** A scenario, and what counts as having passed it. */
import type { Violation } from '../check/index.ts'
import type { Crew } from './crew.ts'
import type { Engine, FaultName, RunningEngine } from './engines/engine.ts'
import { type Round, runRound } from './round.ts'

/** Everything that a scenario plays with. */
export interface Stage {
  readonly crew: Crew
  readonly engine: RunningEngine
  readonly ttlMs: number
  say(line: string): void
}

export interface Scenario {
  readonly name: string
  readonly clients: readonly string[]
  readonly ttlMs: number
  /** The fault that it causes at the engine; null if clients are all that it disturbs. */
  readonly fault: FaultName | null
  /** Resolves when no client is stopped or cut off any more; clients in the middle of a round are then made to finish it. */
  play(stage: Stage): Promise<void>
}

export function runsOn({ fault }: Pick<Scenario, 'fault'>, engine: Engine): boolean {
  return fault === null || engine.faults.includes(fault)
}

/** `void`: the run has shown nothing, because nothing went wrong in the control, or no client had to be refused. */
export type Verdict = 'passed' | 'failed' | 'void'

export interface Result {
  readonly scenario: Scenario
  readonly engine: Engine
  readonly verdict: Verdict
  readonly reasons: readonly string[]
  /** Trusts the lock alone. The last of those that were needed. */
  readonly control: Round
  readonly controls: number
  /** With the engine's protection. */
  readonly guarded: Round
}

export interface RunOptions {
  /** How often a control that showed nothing is tried in all. Default 1. */
  readonly controlTries?: number
  readonly say?: (line: string) => void
}

export async function runScenario(
  scenario: Scenario,
  engine: Engine,
  options: RunOptions = {},
): Promise<Result> {
  const { controlTries = 1, say = () => {} } = options
  const run = (protection: Round['protection'], when: string) =>
    runRound({ scenario, engine, protection, say: (line) => say(`${when}: ${line}`) })
  let control = await run('none', 'control')
  let controls = 1
  for (; blanksOf(control).length > 0 && controls < controlTries; controls++)
    control = await run('none', 'control, once more')
  const guarded = await run(engine.protection, `with ${engine.protection}`)
  return { scenario, engine, control, controls, guarded, ...conclude(control, guarded) }
}

export function conclude(
  control: Round,
  guarded: Round,
): { readonly verdict: Verdict; readonly reasons: readonly string[] } {
  const failures = [
    ...(guarded.lost.length > 0
      ? [`${guarded.lost.length} acknowledged updates were lost with ${guarded.protection}`]
      : []),
    ...[control, guarded].flatMap((round) =>
      violationsOf(round).map(({ check }) => `${check} was violated in the ${nameOf(round)}`),
    ),
  ]
  if (failures.length > 0) return { verdict: 'failed', reasons: [...new Set(failures)] }
  const blanks = [
    ...blanksOf(control),
    ...(guarded.refusals.length === 0 ? [`no client had to be refused with ${guarded.protection}`] : []),
  ]
  return { verdict: blanks.length > 0 ? 'void' : 'passed', reasons: blanks }
}

/** Evidence that a control has to show and did not. */
function blanksOf({ lost, broken, timesTwoBelieved }: Round): string[] {
  return [
    ...(lost.length === 0 ? ['the control lost nothing'] : []),
    ...(broken !== null && timesTwoBelieved === 0
      ? ['no two believed at once in the control, although the assumption was broken']
      : []),
  ]
}

function nameOf({ protection }: Round): string {
  return protection === 'none' ? 'control' : `run with ${protection}`
}

/** All that were not declared to be expected. */
export function violationsOf({ checks }: Round): Violation[] {
  return checks.checks.flatMap(({ violations, exception }) => (exception === null ? violations : []))
}
