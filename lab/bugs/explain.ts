/** Prints what `explain` says to one seed: for a process that has a bug planted. */
import { explain } from '../sim/report.ts'
import { type Focus, runSeed } from '../sim/run.ts'

const [seed, focus] = process.argv.slice(2)
const failed = await runSeed(Number(seed), JSON.parse(focus ?? '{}') as Focus)
process.stdout.write(failed.violation === null ? '' : await explain(failed))
