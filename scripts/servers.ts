// `npm run servers`: real servers for a person to play with, gone when they are done.

import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { find } from '../lab/obtain/find.ts'
import { engineOf, type LotName, lotNames, type Server, startLot } from '../lab/servers/index.ts'

const usage = `npm run servers [-- names] [-- options]

Starts servers on free ports of this machine, prints their addresses, and ends them on Ctrl-C.
Their data is private to this run and ends with it.

  names      any of ${lotNames.join(', ')},
             or the name of an engine for all of its kinds; all of them by default
  --json     print one JSON object when all are ready, and nothing else
  --help     this text`

const { json, help, names } = readOptions()
if (help) {
  console.log(usage)
  process.exit(0)
}

const missing = [...new Set(names.map(engineOf))].filter((engine) => find(engine) === null)
if (missing.length > 0) {
  const script = join(import.meta.dirname, 'install-servers.ts')
  // Messages of the script are news and not the answer, which may be meant for a program.
  const { status } = spawnSync(process.execPath, [script, ...missing], { stdio: ['ignore', 2, 2] })
  if (status !== 0) process.exit(1)
}

const interrupted = new Promise<void>((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve())
})
const started = performance.now()
const lot = await Promise.race([startAll(), interrupted])
// An interrupted start leaves the rest to the watchdog, which ends what there is by then.
if (lot === undefined) process.exit(130)

if (json) console.log(JSON.stringify(describe(lot), null, 2))
else {
  const rows = Object.entries(describe(lot)).map(([name, { url }]) => `  ${name.padEnd(18)} ${url}`)
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  console.log(`${rows.join('\n')}\n\nReady after ${seconds} s. Ctrl-C ends them.`)
}
// A promise alone does not keep a process alive.
const alive = setInterval(() => {}, 60_000)
await interrupted
clearInterval(alive)
await Promise.all(Object.values(lot).map((each) => each.stop()))
if (!json) console.log('All of them have ended.')

async function startAll() {
  return startLot(names, (name) => {
    if (!json && process.stderr.isTTY) console.error(`  ${name} is ready`)
  })
}

function describe(lot: Awaited<ReturnType<typeof startAll>>) {
  const entries = Object.entries(lot).map(([name, each]) => {
    const members: readonly Server[] = 'members' in each ? each.members : [each]
    return [
      name,
      { url: each.url, members: members.map(({ name, url, pid }) => ({ name, url, pid })) },
    ] as const
  })
  return Object.fromEntries(entries)
}

function readOptions(): { json: boolean; help: boolean; names: LotName[] } {
  try {
    const flags = { json: { type: 'boolean' }, help: { type: 'boolean' } } as const
    const { values, positionals } = parseArgs({ allowPositionals: true, options: flags })
    const chosen = positionals.map((given) => ({
      given,
      names: lotNames.filter(
        (name) => name === given || (name.startsWith(`${given}-`) && engineOf(name) === given),
      ),
    }))
    const unknown = chosen.filter(({ names }) => names.length === 0).map(({ given }) => given)
    if (unknown.length > 0) throw new Error(`no server ${unknown.join(', ')}`)
    const names = positionals.length === 0 ? lotNames : [...new Set(chosen.flatMap(({ names }) => names))]
    return { json: values.json ?? false, help: values.help ?? false, names }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
