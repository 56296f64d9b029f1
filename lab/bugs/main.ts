// `npm run bugs`: plants the bugs of the bank that the simulation and the suite must find; `--write` records what they found.

import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { catchAll } from './catching.ts'
import { found } from './found.ts'
import { trackRecord } from './record.ts'
import { sourceBugs } from './sources/index.ts'

const usage = `npm run bugs [-- options]

Plants the bugs that the simulation or the conformance suite must find, one by one, and says after how many seeds each was
noticed, and by what. About a minute.

  --write    records it in lab/TRACK_RECORD.md
  --help     this text`

const { write, help } = readOptions()
if (help) {
  console.log(usage)
  process.exit(0)
}
const results = await catchAll(({ id, foundBy }, { seeds, rule, message }) => {
  const needed =
    seeds === null ? 'NOT CAUGHT' : foundBy.simulation ? `${seeds} of ${foundBy.simulation.seeds}` : ''
  console.log(`${id.padEnd(24)} ${needed.padEnd(12)} ${rule.padEnd(5)} ${message.slice(0, 140)}`)
})
if (write)
  writeFileSync(new URL('../TRACK_RECORD.md', import.meta.url), trackRecord(sourceBugs, results, found))
process.exitCode = [...results.values()].some(({ seeds }) => seeds === null) ? 1 : 0

function readOptions() {
  try {
    return parseArgs({ options: { write: { type: 'boolean' }, help: { type: 'boolean' } } }).values
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
