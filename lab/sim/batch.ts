/** Many seeds, spread over a few processes. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Focus, RunResult } from './run.ts'
import type { Share } from './worker.ts'

export interface BatchOptions {
  readonly from: number
  readonly seeds: number
  readonly workers?: number
  readonly focus?: Focus
  /** For processes that are to start differently, as those with a planted bug do. */
  readonly nodeArgs?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** One seed of so many is also judged by the checkers of `lab/check`. Default: none. */
  readonly historyEvery?: number
  /** Ends a worker at its first violation. */
  readonly stopAtFirst?: boolean
  readonly onResult?: (done: number, result: Omit<RunResult, 'lines'>) => void
}

export interface BatchResult {
  readonly runs: number
  readonly events: number
  readonly cpuMs: number
  readonly counts: Readonly<Record<string, number>>
  readonly failed: readonly RunResult[]
  readonly runsByMode: Readonly<Record<string, number>>
}

const compileCache = fileURLToPath(new URL('../../.cache/compile', import.meta.url))
const workerScript = fileURLToPath(new URL('worker.ts', import.meta.url))

export async function runBatch(options: BatchOptions): Promise<BatchResult> {
  const { from, seeds, workers = 2 } = options
  const totals = { runs: 0, events: 0, cpuMs: 0 }
  const counts: Record<string, number> = {}
  const runsByMode: Record<string, number> = {}
  const failed: RunResult[] = []
  const onLine = (line: string) => {
    const said = JSON.parse(line) as Omit<RunResult, 'lines'> | { cpuMs: number }
    if ('cpuMs' in said) {
      totals.cpuMs += said.cpuMs
      return
    }
    totals.runs++
    totals.events += said.events
    runsByMode[said.mode] = (runsByMode[said.mode] ?? 0) + 1
    for (const [what, count] of Object.entries(said.counts)) counts[what] = (counts[what] ?? 0) + count
    if (said.violation !== null) failed.push({ ...said, lines: [] })
    options.onResult?.(totals.runs, said)
  }
  const shares = Array.from({ length: Math.min(workers, seeds) }, (_, index) => from + index)
  await Promise.all(shares.map((first) => runShare(options, first, shares.length, onLine)))
  const mayBeFewer = options.stopAtFirst === true && failed.length > 0
  if (totals.runs !== seeds && !mayBeFewer)
    throw new Error(
      `the simulation was to run ${seeds} seeds and has run ${totals.runs}: nothing is shown by it`,
    )
  return { ...totals, counts, runsByMode, failed: failed.sort((a, b) => a.seed - b.seed) }
}

async function runShare(
  { from, seeds, focus = {}, stopAtFirst = false, historyEvery = 0, nodeArgs = [], env = {} }: BatchOptions,
  first: number,
  step: number,
  onLine: (line: string) => void,
): Promise<void> {
  const share: Share = { from: first, until: from + seeds, step, focus, stopAtFirst, historyEvery }
  const args = ['--disable-warning=ExperimentalWarning', ...nodeArgs, workerScript, JSON.stringify(share)]
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    // Stripping the types of every module again would cost more than a dozen seeds.
    env: { ...process.env, NODE_COMPILE_CACHE: compileCache, ...env },
  })
  let complaint = ''
  child.stderr.on('data', (data) => {
    complaint += data
  })
  const exit = new Promise<number | null>((resolve) => child.on('close', resolve))
  for await (const line of createInterface({ input: child.stdout })) onLine(line)
  const code = await exit
  if (code !== 0) throw new Error(`a worker of the simulation ended with ${code}: ${complaint.slice(-2_000)}`)
}
