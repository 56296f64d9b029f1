/** The report for a person who has to understand a violation: what broke, the least that breaks it, and how to replay it. */
import type { Fault } from './faults.ts'
import { type RunResult, runSeed } from './run.ts'
import { planText, shrink } from './shrink.ts'

const LINES_SHOWN = 60

export async function explain(failed: RunResult, maxRuns?: number): Promise<string> {
  const plan = await shrink(failed, maxRuns === undefined ? {} : { maxRuns })
  const { seed, mode, workload } = failed
  const options = { mode, workload, plan, keepLines: true, checkHistory: isOfHistory(failed) }
  const again = await runSeed(seed, options)
  const { violation } = again
  if (violation === null)
    return `Seed ${seed} (${mode}) failed once and not again: it does not replay, which is a bug of the simulation.`
  return [
    `Seed ${seed} (${mode}) breaks ${violation.rule} at ${(violation.atMs / 1_000).toFixed(3)} s: ${violation.message}`,
    '',
    `The least of its ${failed.plan.length} faults that breaks it${plan.length === 0 ? ': none at all' : ''}`,
    ...plan.map((fault) => `  ${describeFault(fault)}`),
    '',
    `The last of ${again.lines.length} lines of the trace that matter`,
    ...relevantLines(again).map((line) => `  ${line}`),
    '',
    'Replay',
    `  npm run sim -- --seed ${seed} --mode ${mode}${workload === 'locks' ? '' : ` --workload ${workload}`} --keep "${planText(plan, failed.plan)}" --trace`,
  ].join('\n')
}

/** Whether it was found in the history afterwards, and not while it happened. */
export function isOfHistory({ violation }: RunResult): boolean {
  return violation?.rule.startsWith('history ') ?? false
}

export function describeFault(fault: Fault): string {
  const { id, kind, atMs, forMs, ...details } = fault
  const rest = Object.entries(details).map(([key, value]) => `${key} ${value}`)
  return `${`#${id}`.padEnd(4)} ${(atMs / 1_000).toFixed(3)} s for ${forMs} ms  ${[kind, ...rest].join(', ')}`
}

/** The lines about the clients that the message names; all if it names none. */
function relevantLines({ lines, violation }: RunResult): readonly string[] {
  const named = violation?.message.match(/c\d+x\d+(-\d+)?/g) ?? []
  const processes = new Set(named.map((id) => id.split('-')[0] ?? id))
  if (processes.size === 0) return lines.slice(-LINES_SHOWN)
  const isRelevant = (line: string) =>
    / (fault|check) /.test(line) || [...processes].some((id) => line.includes(id))
  return lines.filter(isRelevant).slice(-LINES_SHOWN)
}
