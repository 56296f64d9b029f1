// `npm run sim`: many seeds of the deterministic simulation, or one seed replayed with its trace.

import { parseArgs } from 'node:util'
import { type BatchResult, runBatch } from '../lab/sim/batch.ts'
import { describeTotals, notCovered } from '../lab/sim/coverage.ts'
import { type Fault, planFor } from '../lab/sim/faults.ts'
import { describeFault, explain } from '../lab/sim/report.ts'
import { type Focus, runSeed } from '../lab/sim/run.ts'
import { type Mode, settingsFor } from '../lab/sim/settings.ts'
import { readPlanText } from '../lab/sim/shrink.ts'

const usage = `npm run sim [-- options]

Runs the core over a simulated engine, each seed for 120 simulated seconds, and checks what it does.

  --seeds N      how many seeds (default 2000)
  --from S       the first of them (default 1)
  --workers N    processes to spread them over (default 2)
  --mode M       safety, guard or liveness only; by default each seed chooses
  --seed S       replays one seed
  --keep LIST    with --seed: only these of its faults, as a report prints them
  --trace        with --seed: prints everything that happens
  --help         this text`

const modes: readonly Mode[] = ['safety', 'guard', 'liveness']

const options = readOptions()
if (options.help) console.log(usage)
else if (options.seed !== undefined) await replay(Number(options.seed))
else await runMany(Number(options.seeds), Number(options.from), Number(options.workers))

async function replay(seed: number): Promise<void> {
  const settings = settingsFor(seed, mode())
  const whole = planFor(settings)
  const plan = options.keep === undefined ? whole : readKept(options.keep, whole)
  console.log(`Seed ${seed}: ${JSON.stringify(settings)}`)
  for (const fault of plan) console.log(`  ${describeFault(fault)}`)
  const result = await runSeed(seed, {
    mode: settings.mode,
    plan,
    keepLines: options.trace ?? false,
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
  if (options.keep === undefined) console.log(`\n${await explain(result)}`)
}

function readKept(text: string, whole: readonly Fault[]): readonly Fault[] {
  try {
    return readPlanText(text, whole)
  } catch (error) {
    return complain(error)
  }
}

async function runMany(seeds: number, from: number, workers: number): Promise<void> {
  const startedMs = Date.now()
  let saidAtMs = startedMs
  const result = await runBatch({
    from,
    seeds,
    workers,
    focus: focus(),
    historyEvery: 8,
    onResult: (done, { seed, violation }) => {
      if (violation !== null) console.log(`seed ${seed} breaks ${violation.rule}: ${violation.message}`)
      if (Date.now() - saidAtMs < 5_000) return
      saidAtMs = Date.now()
      console.log(`${done} of ${seeds} seeds, ${seconds(startedMs)} s`)
    },
  })
  printTotals(result, startedMs)
  if (result.failed.length === 0) return
  process.exitCode = 1
  const [first] = result.failed
  if (first !== undefined) console.log(`\n${await explain(first)}`)
}

function printTotals(result: BatchResult, startedMs: number): void {
  console.log(describeTotals(result))
  const missing = notCovered(result)
  if (missing.length > 0) console.log(`Too rare to mean much:\n  ${missing.join('\n  ')}`)
  const { failed } = result
  const verdict = failed.length === 0 ? 'Nothing broke' : `${failed.length} runs broke something`
  console.log(`${verdict}, in ${seconds(startedMs)} s.`)
}

function seconds(sinceMs: number): string {
  return ((Date.now() - sinceMs) / 1_000).toFixed(1)
}

function mode(): Mode | undefined {
  return modes.find((each) => each === options.mode)
}

function focus(): Focus {
  const only = mode()
  return only === undefined ? {} : { mode: only }
}

function readOptions() {
  try {
    const { values } = parseArgs({
      options: {
        seeds: { type: 'string', default: '2000' },
        from: { type: 'string', default: '1' },
        workers: { type: 'string', default: '2' },
        mode: { type: 'string' },
        seed: { type: 'string' },
        keep: { type: 'string' },
        trace: { type: 'boolean' },
        help: { type: 'boolean' },
      },
    })
    for (const [name, number] of Object.entries({
      seeds: values.seeds,
      from: values.from,
      workers: values.workers,
    }))
      if (!/^[1-9]\d*$/.test(number))
        throw new Error(`--${name} must be a whole number of at least 1, not ${number}`)
    if (values.seed !== undefined && !/^\d+$/.test(values.seed))
      throw new Error(`--seed must be a whole number, not ${values.seed}`)
    const lastSeed = Number(values.seed ?? Number(values.from) + Number(values.seeds))
    if (!Number.isSafeInteger(lastSeed)) throw new Error('seeds must stay below 2^53')
    if (values.seed === undefined && (values.keep !== undefined || values.trace !== undefined))
      throw new Error('--keep and --trace need --seed, which says what to replay')
    if (values.mode !== undefined && !modes.includes(values.mode as Mode))
      throw new Error(`no mode ${values.mode}, there are ${modes.join(', ')}`)
    return values
  } catch (error) {
    return complain(error)
  }
}

function complain(error: unknown): never {
  console.error(`${(error as Error).message}\n\n${usage}`)
  process.exit(2)
}
