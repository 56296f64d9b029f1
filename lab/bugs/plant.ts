/** Runs the simulation or the conformance suite with a bug planted, and says what they notice. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { runBatch } from '../sim/batch.ts'
import type { PlantedBug } from './bug.ts'

const planting = new URL('planting.ts', import.meta.url).href
const conformance = fileURLToPath(new URL('conformance.ts', import.meta.url))
const explaining = fileURLToPath(new URL('explain.ts', import.meta.url))
const TIMEOUT_MS = 60_000

export interface Caught {
  readonly id: string
  /** How many seeds it took; null if it was not caught. 0 where no seeds are involved. */
  readonly seeds: number | null
  /** The rule that was seen to be broken. */
  readonly rule: string
  readonly message: string
  /** The shrunk plan, the trace and the way to replay it, if it was asked for. */
  readonly explanation?: string
}

export async function catchBug(
  bug: PlantedBug,
  options: { readonly explain?: boolean } = {},
): Promise<Caught> {
  if (bug.caughtBy === 'conformance') return byConformance(bug)
  const caught = await bySimulation(bug)
  if (!options.explain || caught.seeds === null) return caught
  const explanation = await run(bug, explaining, String(caught.seeds), JSON.stringify(bug.focus ?? {}))
  return { ...caught, explanation }
}

async function bySimulation(bug: PlantedBug): Promise<Caught> {
  const { failed } = await runBatch({
    from: 1,
    seeds: bug.maxSeeds,
    workers: 1,
    stopAtFirst: true,
    historyEvery: bug.rule?.startsWith('history ') ? 1 : 0,
    focus: bug.focus ?? {},
    nodeArgs: ['--import', planting],
    env: { HOLDFAST_PLANTED_BUG: JSON.stringify(bug.edits) },
  })
  const [first] = failed
  if (!first?.violation) return notCaught(bug)
  return { id: bug.id, seeds: first.seed, rule: first.violation.rule, message: first.violation.message }
}

async function byConformance(bug: PlantedBug): Promise<Caught> {
  const said = await run(bug, conformance)
  const failures = JSON.parse(said) as readonly { rule: string; title: string; message: string }[]
  // The case that is about this trap, if it is among those that noticed.
  const trap = new RegExp(`\\b${bug.id.split('-')[0]}\\b`)
  const first = failures.find(({ title }) => trap.test(title)) ?? failures[0]
  if (first === undefined) return notCaught(bug)
  return { id: bug.id, seeds: 0, rule: first.rule, message: `${first.title}: ${first.message}` }
}

/** What a script prints that runs with the bug planted. */
function run(bug: PlantedBug, script: string, ...parameters: readonly string[]): Promise<string> {
  const args = ['--disable-warning=ExperimentalWarning', '--import', planting, script, ...parameters]
  const env = { ...process.env, HOLDFAST_PLANTED_BUG: JSON.stringify(bug.edits) }
  return new Promise((resolve, reject) =>
    execFile(process.execPath, args, { env, timeout: TIMEOUT_MS }, (error, stdout) =>
      error ? reject(error) : resolve(stdout),
    ),
  )
}

function notCaught({ id }: PlantedBug): Caught {
  return { id, seeds: null, rule: '–', message: 'not caught' }
}
