// `npm run lab`: one scenario with real processes, without and with the guard.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { formatHistory } from '../lab/check/index.ts'
import { lostUpdateScenario } from '../lab/scenarios/lost-update.ts'
import { pauseScenario } from '../lab/scenarios/pause.ts'
import { describe, toJson } from '../lab/scenarios/report.ts'
import { type Result, runScenario, type Scenario } from '../lab/scenarios/scenario.ts'

const usage = `npm run lab -- <scenario> sqlite [options]

Runs a scenario twice, without and with the guard, and checks what was recorded against the guarantees.

  pause          a client is stopped between its read and its write; another takes over; the first goes on
  lost-update    5 clients, TTL 2 s: read, sleep up to 2 s, write; one is stopped every 5 s

  --seconds N    lost-update: how long each run takes (default 30, at least 10)
  --save FOLDER  keep both histories, as JSON lines
  --json         print the result as JSON
  --help         this text

Exits with 0 if the guarded run lost nothing, no guarantee was violated and the control lost something; with 2 if the
run is void, because the control lost nothing or nothing met the guard; with 1 if it failed; with 64 if it was not
understood.`

const exitCodes = { passed: 0, failed: 1, void: 2 } as const
const { scenario, json, save } = readOptions()
if (process.platform !== 'linux') {
  console.error('The lab stops processes and looks at them in /proc: it needs Linux.')
  process.exit(1)
}
// What runs is ended, and what was written is removed, when this process exits.
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const)
  process.on(signal, () => process.exit(code))

const result = await runScenario(scenario, { say: (line) => console.error(line) })
console.log(json ? toJson(result) : describe(result))
if (save !== undefined) keep(save, result)
process.exitCode = exitCodes[result.verdict]

function keep(folder: string, { control, guarded }: Result): void {
  mkdirSync(folder, { recursive: true })
  for (const [name, { history }] of Object.entries({ control, guarded }))
    writeFileSync(join(folder, `${name}.jsonl`), formatHistory(history.about, history.events))
}

function readOptions(): { scenario: Scenario; json: boolean; save?: string } {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        seconds: { type: 'string' },
        save: { type: 'string' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean' },
      },
    })
    if (values.help) {
      console.log(usage)
      process.exit(0)
    }
    const { json, save } = values
    return { scenario: choose(positionals, values.seconds), json, ...(save !== undefined && { save }) }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(64)
  }
}

function choose([name, backend, ...rest]: readonly string[], seconds: string | undefined): Scenario {
  if (name === undefined) throw new Error('which scenario?')
  if (backend !== 'sqlite') throw new Error(`no scenario runs on ${backend ?? 'nothing'}, only on sqlite`)
  if (rest.length > 0) throw new Error(`${rest.join(' ')} is too much`)
  if (name === 'lost-update') {
    if (seconds === undefined) return lostUpdateScenario()
    if (!/^\d+$/.test(seconds) || Number(seconds) < 10)
      throw new Error(`--seconds ${seconds} is not a whole number from 10 on`)
    return lostUpdateScenario({ seconds: Number(seconds) })
  }
  if (name !== 'pause') throw new Error(`no scenario ${name}, there are pause and lost-update`)
  if (seconds !== undefined) throw new Error('--seconds is for lost-update')
  return pauseScenario()
}
