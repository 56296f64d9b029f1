/**
 * Runs a share of the seeds in a process of its own, and prints one line of JSON for each: what the parent in
 * `batch.ts` adds up.
 *
 *   node lab/sim/worker.ts '{"from":1,"until":2001,"step":2,"focus":{},"stopAtFirst":false,"historyEvery":8}'
 */
import { type Focus, runSeed } from './run.ts'

export interface Share {
  readonly from: number
  readonly until: number
  readonly step: number
  readonly focus: Focus
  readonly stopAtFirst: boolean
  /** One seed of so many is also judged by the checkers of `lab/check`; 0 for none. */
  readonly historyEvery: number
}

// Capturing stacks costs a tenth of the time, and thousands of the errors are expected.
Error.stackTraceLimit = 0

const { from, until, step, focus, stopAtFirst, historyEvery } = JSON.parse(process.argv[2] ?? '') as Share
for (let seed = from; seed < until; seed += step) {
  const checkHistory = historyEvery > 0 && seed % historyEvery === 0
  const { lines: _, ...result } = await runSeed(seed, { ...focus, checkHistory })
  process.stdout.write(`${JSON.stringify(result.violation === null ? { ...result, plan: [] } : result)}\n`)
  if (result.violation !== null && stopAtFirst) break
}
const { user, system } = process.cpuUsage()
process.stdout.write(`${JSON.stringify({ cpuMs: Math.round((user + system) / 1_000) })}\n`)
