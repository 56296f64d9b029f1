/** Plants bugs in the sources, runs the checks that must notice them, and says what they noticed. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { runBatch } from '../sim/batch.ts'
import type { SourceBug } from './bug.ts'
import { sourceBugs } from './sources/index.ts'
import type { UnitRun } from './units.config.ts'

const planting = new URL('planting.ts', import.meta.url).href
const pathOf = (file: string) => fileURLToPath(new URL(file, import.meta.url))
const TIMEOUT_MS = 60_000
const AT_ONCE = 2

export interface Caught {
  /** How many seeds it took; null if it was not caught. 0 where no seeds are involved. */
  readonly seeds: number | null
  /** The rule that was seen to be broken. */
  readonly rule: string
  readonly message: string
  /** The shrunk plan, the trace and the way to replay it, if it was asked for. */
  readonly explanation?: string
}

/** Bugs that the simulation or the conformance suite must notice. */
export const caughtBugs = sourceBugs.filter(({ foundBy }) => foundBy.simulation ?? foundBy.suite)

/** All of them, two at a time. */
export async function catchAll(
  onCaught: (bug: SourceBug, caught: Caught) => void = () => {},
): Promise<ReadonlyMap<string, Caught>> {
  const results = new Map<string, Caught>()
  const left = [...caughtBugs]
  const work = async () => {
    for (let bug = left.shift(); bug !== undefined; bug = left.shift()) {
      // An edit that no longer fits is that bug's failure, and not the others'.
      const caught = await catchBug(bug).catch((error) => notCaught(String(error)))
      results.set(bug.id, caught)
      onCaught(bug, caught)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return results
}

export async function catchBug(
  bug: SourceBug,
  options: { readonly explain?: boolean } = {},
): Promise<Caught> {
  const { simulation, suite = '' } = bug.foundBy
  if (simulation === undefined) return bySuite(bug, suite.split(' '))
  const caught = await bySimulation(bug, simulation)
  if (!options.explain || caught.seeds === null) return caught
  const focus = JSON.stringify(simulation.focus ?? {})
  return { ...caught, explanation: await run(bug, 'explain.ts', String(caught.seeds), focus) }
}

async function bySimulation(
  { edits }: SourceBug,
  { seeds, rule, focus = {} }: NonNullable<SourceBug['foundBy']['simulation']>,
): Promise<Caught> {
  const { failed } = await runBatch({
    from: 1,
    seeds,
    workers: 1,
    stopAtFirst: true,
    historyEvery: rule?.startsWith('history ') ? 1 : 0,
    focus,
    nodeArgs: ['--import', planting],
    env: { HOLDFAST_PLANTED_BUG: JSON.stringify(edits) },
  })
  const [first] = failed
  if (!first?.violation) return notCaught('not caught')
  return { seeds: first.seed, rule: first.violation.rule, message: first.violation.message }
}

async function bySuite(bug: SourceBug, wanted: readonly string[]): Promise<Caught> {
  const failures = await failedCases(bug)
  const [first, ...others] = wanted.map((word) => {
    const about = new RegExp(`\\b${word}\\b`)
    return failures.find(({ rule, title }) => about.test(`${rule} ${title}`)) ?? word
  })
  const missing = [first, ...others].filter((each) => typeof each === 'string')
  if (first === undefined || typeof first === 'string' || missing.length > 0)
    return notCaught(`not noticed by ${missing.join(' ')}`)
  return { seeds: 0, rule: first.rule, message: `${first.title}: ${first.message}` }
}

export interface FailedCase {
  readonly rule: string
  readonly title: string
  readonly message: string
}

/** The cases of the conformance suite that the memory backend fails with these edits. */
export async function failedCases(bug: Pick<SourceBug, 'edits'>): Promise<readonly FailedCase[]> {
  return JSON.parse(await run(bug, 'suite.ts')) as FailedCase[]
}

/** Runs a script with the bug planted, and returns what it prints. */
function run(
  { edits }: Pick<SourceBug, 'edits'>,
  script: string,
  ...parameters: readonly string[]
): Promise<string> {
  const args = ['--disable-warning=ExperimentalWarning', '--import', planting, pathOf(script), ...parameters]
  const env = { ...process.env, HOLDFAST_PLANTED_BUG: JSON.stringify(edits) }
  return new Promise((resolve, reject) =>
    execFile(process.execPath, args, { env, timeout: TIMEOUT_MS }, (error, stdout) =>
      error ? reject(error) : resolve(stdout),
    ),
  )
}

/** Runs every unit test that must notice a bug with that bug, and once without any. */
export async function runUnits(): Promise<readonly UnitRun[]> {
  const vitest = pathOf('../../node_modules/vitest/vitest.mjs')
  const args = [vitest, 'run', '--config', pathOf('units.config.ts')]
  // It is expected to fail; what counts is what it prints.
  const printed = await new Promise<string>((resolve) =>
    execFile(process.execPath, args, (_error, stdout) => resolve(stdout)),
  )
  return JSON.parse(printed) as UnitRun[]
}

function notCaught(message: string): Caught {
  return { seeds: null, rule: '–', message }
}
