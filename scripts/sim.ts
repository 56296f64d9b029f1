// `npm run sim`: many seeds of the deterministic simulation, or one seed replayed with its trace.

import { type BatchResult, runBatch } from '../lab/sim/batch.ts'
import { describeTotals, notCovered } from '../lab/sim/coverage.ts'
import { type Fault, planFor } from '../lab/sim/faults.ts'
import { readSimOptions, type SimOptions, usage } from '../lab/sim/options.ts'
import { describeFault, explain } from '../lab/sim/report.ts'
import { runSeed } from '../lab/sim/run.ts'
import { settingsFor, type Workload } from '../lab/sim/settings.ts'
import { readPlanText } from '../lab/sim/shrink.ts'

type Of<K extends SimOptions['kind']> = Extract<SimOptions, { kind: K }>

const options = orComplain(() => readSimOptions(process.argv.slice(2)))
if (options.kind === 'help') console.log(usage)
else if (options.kind === 'replay') await replay(options)
else await runMany(options)

async function replay({ seed, mode, workload, keep, trace }: Of<'replay'>): Promise<void> {
  const settings = settingsFor(seed, mode, workload)
  const whole = planFor(settings)
  const plan: readonly Fault[] = keep === undefined ? whole : orComplain(() => readPlanText(keep, whole))
  console.log(`Seed ${seed}: ${JSON.stringify(settings)}`)
  for (const fault of plan) console.log(`  ${describeFault(fault)}`)
  const result = await runSeed(seed, {
    mode: settings.mode,
    workload: settings.workload,
    plan,
    keepLines: trace,
    checkHistory: true,
  })
  for (const line of result.lines) console.log(line)
  console.log(`Trace ${result.traceHash}, ${result.events} events.`)
  if (result.violation === null) {
    console.log('Nothing broke.')
    return
  }
  process.exitCode = 1
  console.log(`Breaks ${result.violation.rule}: ${result.violation.message}`)
  if (keep === undefined) console.log(`\n${await explain(result)}`)
}

async function runMany({ seeds, from, workers, mode, workload }: Of<'batch'>): Promise<void> {
  const startedMs = Date.now()
  let saidAtMs = startedMs
  const narrowed = [mode && ` --mode ${mode}`, workload && ` --workload ${workload}`].filter(Boolean).join('')
  console.log(
    `Seeds ${from} to ${from + seeds - 1}: npm run sim -- --from ${from} --seeds ${seeds}${narrowed}`,
  )
  const result = await runBatch({
    from,
    seeds,
    workers,
    focus: { ...(mode && { mode }), ...(workload && { workload }) },
    historyEvery: 1,
    onResult: (done, { seed, violation }) => {
      if (violation !== null) console.log(`seed ${seed} breaks ${violation.rule}: ${violation.message}`)
      if (Date.now() - saidAtMs < 5_000) return
      saidAtMs = Date.now()
      console.log(`${done} of ${seeds} seeds, ${seconds(startedMs)} s`)
    },
  })
  printTotals(result, workload, startedMs)
  if (result.failed.length === 0) return
  process.exitCode = 1
  const [first] = result.failed
  if (first !== undefined) console.log(`\n${await explain(first)}`)
}

function printTotals(result: BatchResult, workload: Workload | undefined, startedMs: number): void {
  console.log(describeTotals(result))
  // The recipes have their own tests, which say what their runs must go through.
  const missing = (workload ?? 'locks') === 'locks' ? notCovered(result) : []
  if (missing.length > 0) console.log(`Too rare to mean much:\n  ${missing.join('\n  ')}`)
  const { failed } = result
  const verdict = failed.length === 0 ? 'Nothing broke' : `${failed.length} runs broke something`
  console.log(`${verdict}, in ${seconds(startedMs)} s.`)
}

function seconds(sinceMs: number): string {
  return ((Date.now() - sinceMs) / 1_000).toFixed(1)
}

function orComplain<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
