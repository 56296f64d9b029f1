// `npm run bugs`: plants every bug of the bank and says what notices it; `--write` records it.

import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { bugs } from './bank.ts'
import { catchAll } from './catch-all.ts'
import { found } from './found.ts'
import { trackRecord } from './record.ts'

const usage = `npm run bugs [-- options]

Plants the historical bugs one by one, and says after how many seeds each was noticed, and by what. About a minute.

  --write    records it in lab/TRACK_RECORD.md
  --help     this text`

const { write, help } = readOptions()
if (help) {
  console.log(usage)
  process.exit(0)
}
const results = await catchAll(({ id, maxSeeds }, { seeds, rule, message }) => {
  const needed = seeds === null ? 'NOT CAUGHT' : `${seeds} of ${maxSeeds}`
  console.log(`${id.padEnd(24)} ${needed.padEnd(12)} ${rule.padEnd(5)} ${message.slice(0, 140)}`)
})
if (write) writeFileSync(new URL('../TRACK_RECORD.md', import.meta.url), trackRecord(bugs, results, found))
const missed = bugs.filter(({ id, caughtBy }) => caughtBy !== 'nothing' && results.get(id)?.seeds == null)
process.exitCode = missed.length === 0 ? 0 : 1

function readOptions() {
  try {
    return parseArgs({ options: { write: { type: 'boolean' }, help: { type: 'boolean' } } }).values
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
