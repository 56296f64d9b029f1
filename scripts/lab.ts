// `npm run lab`: one scenario with real processes on a real engine, without and with protection.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { formatHistory } from '../lab/check/index.ts'
import { type CatalogueEntry, catalogue } from '../lab/scenarios/catalogue.ts'
import type { EngineName } from '../lab/scenarios/engines/engine.ts'
import { engineNames, isEngineName, loadEngine } from '../lab/scenarios/engines/index.ts'
import { describe, toJson } from '../lab/scenarios/report.ts'
import { type Result, runScenario, runsOn, type Scenario } from '../lab/scenarios/scenario.ts'

const usage = async () => `npm run lab -- <scenario> <engine> [options]

Runs a scenario twice, without protection and with it (a guard, or a compare-and-set in the resource where the engine
issues no fencing tokens), and checks what was recorded against the guarantees.

Scenarios, and the engines on which each can be played
${(await Promise.all(Object.entries(catalogue).map(describeEntry))).join('\n')}

Options
  --seconds N    how long each run takes at least: the scenario is repeated (lost-update: at least 10)
  --seed N       lost-update: who thinks for how long, and who is stopped
  --save FOLDER  keep both histories, as JSON lines
  --json         print the result as JSON
  --help         this text

Exits with 0 if the protected run lost nothing, no guarantee was violated and the control lost something (and, where an
assumption of the engine is broken, two believed at once in it); with 2 if the run is void, because the control showed
nothing or nobody had to be refused; with 1 if it failed; with 64 if it was not understood.`

const exitCodes = { passed: 0, failed: 1, void: 2 } as const
const { scenario, engineName, json, save } = await readOptions()
const engine = await loadEngine(engineName)
if (!runsOn(scenario, engine))
  refuse(`${scenario.name} cannot be played on ${engine.name}: nothing there could break like that`)
if (process.platform !== 'linux') {
  console.error('The lab stops processes and looks at them in /proc: it needs Linux.')
  process.exit(1)
}
// Running processes are ended, and written files are removed, when this process exits.
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const)
  process.on(signal, () => process.exit(code))

const result = await runScenario(scenario, engine, { say: (line) => console.error(line) })
console.log(json ? toJson(result) : describe(result))
if (save !== undefined) keep(save, result)
// Left to itself, Node sometimes waits for ever for a connection that was reset while it was being made.
process.exit(exitCodes[result.verdict])

function keep(folder: string, { control, guarded }: Result): void {
  mkdirSync(folder, { recursive: true })
  for (const [name, { history }] of Object.entries({ control, guarded }))
    writeFileSync(join(folder, `${name}.jsonl`), formatHistory(history.about, history.events))
}

interface Chosen {
  readonly scenario: Scenario
  readonly engineName: EngineName
}

async function readOptions(): Promise<Chosen & { json: boolean; save?: string }> {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        seconds: { type: 'string' },
        seed: { type: 'string' },
        save: { type: 'string' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean' },
      },
    })
    if (values.help) {
      console.log(await usage())
      process.exit(0)
    }
    const { json, save } = values
    return { ...choose(positionals, values), json, ...(save !== undefined && { save }) }
  } catch (error) {
    return refuse((error as Error).message)
  }
}

function refuse(why: string): never {
  console.error(`${why}; npm run lab -- --help says more`)
  process.exit(64)
}

async function describeEntry([name, { about, make }]: [string, CatalogueEntry]): Promise<string> {
  const engines = await Promise.all(engineNames.map(loadEngine))
  const able = engines.filter((each) => runsOn(make({}), each)).map((each) => each.name)
  return `  ${name.padEnd(14)} ${about}\n${' '.repeat(17)}${able.join(', ')}`
}

function choose(
  [name, engineName, ...rest]: readonly string[],
  given: { readonly seconds?: string | undefined; readonly seed?: string | undefined },
): Chosen {
  if (name === undefined) throw new Error('which scenario?')
  const entry = Object.hasOwn(catalogue, name) ? catalogue[name] : undefined
  if (entry === undefined)
    throw new Error(`no scenario ${name}, there are ${Object.keys(catalogue).join(', ')}`)
  if (engineName === undefined || !isEngineName(engineName))
    throw new Error(`no scenario runs on ${engineName ?? 'nothing'}, only on ${engineNames.join(', ')}`)
  if (rest.length > 0) throw new Error(`${rest.join(' ')} is too much`)
  if (given.seed !== undefined && name !== 'lost-update') throw new Error('--seed is for lost-update')
  const seconds = wholeNumber('--seconds', given.seconds, name === 'lost-update' ? 10 : 1)
  const seed = wholeNumber('--seed', given.seed, 0)
  const scenario = entry.make({
    ...(seconds !== undefined && { seconds }),
    ...(seed !== undefined && { seed }),
  })
  return { scenario, engineName }
}

function wholeNumber(option: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined
  const number = Number(text)
  if (!/^\d+$/.test(text) || number < least || !Number.isSafeInteger(number))
    throw new Error(`${option} ${text} is not a whole number from ${least} on`)
  return number
}
