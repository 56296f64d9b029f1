/** A scenario, and what counts as having passed it. */
import type { Violation } from '../check/index.ts'
import type { Crew } from './crew.ts'
import { type Round, runRound } from './round.ts'

export interface Scenario {
  readonly name: string
  readonly clients: readonly string[]
  readonly ttlMs: number
  /** Resolves when no client is stopped any more; whoever still has a turn is then made to finish it. */
  play(crew: Crew, say: (line: string) => void): Promise<void>
}

/** `void`: the run has shown nothing, because nothing went wrong where there was no guard, or nothing met the guard. */
export type Verdict = 'passed' | 'failed' | 'void'

export interface Result {
  readonly scenario: Scenario
  readonly verdict: Verdict
  readonly reasons: readonly string[]
  /** The last of those that were needed. */
  readonly control: Round
  readonly controls: number
  readonly guarded: Round
}

export interface RunOptions {
  /** How often a control that lost nothing is tried in all. Default 1. */
  readonly controlTries?: number
  readonly say?: (line: string) => void
}

export async function runScenario(scenario: Scenario, options: RunOptions = {}): Promise<Result> {
  const { controlTries = 1, say = () => {} } = options
  let control = await runRound(scenario, false, (line) => say(`without the guard: ${line}`))
  let controls = 1
  for (; control.lost.length === 0 && controls < controlTries; controls++)
    control = await runRound(scenario, false, (line) => say(`without the guard, once more: ${line}`))
  const guarded = await runRound(scenario, true, (line) => say(`with the guard: ${line}`))
  return { scenario, control, controls, guarded, ...conclude(control, guarded) }
}

export function conclude(
  control: Round,
  guarded: Round,
): { readonly verdict: Verdict; readonly reasons: readonly string[] } {
  const failures = [
    ...(guarded.lost.length > 0
      ? [`${guarded.lost.length} acknowledged updates were lost with the guard`]
      : []),
    ...[control, guarded].flatMap((round) =>
      violationsOf(round).map(
        ({ check }) => `${check} was violated ${round.guarded ? 'with' : 'without'} the guard`,
      ),
    ),
  ]
  if (failures.length > 0) return { verdict: 'failed', reasons: [...new Set(failures)] }
  const blanks = [
    ...(control.lost.length === 0 ? ['the control lost nothing'] : []),
    ...(guarded.refusals.length === 0 ? ['the guard had nothing to refuse'] : []),
  ]
  return { verdict: blanks.length > 0 ? 'void' : 'passed', reasons: blanks }
}

/** All that were not declared to be expected. */
export function violationsOf({ checks }: Round): Violation[] {
  return checks.checks.flatMap(({ violations, exception }) => (exception === null ? violations : []))
}
