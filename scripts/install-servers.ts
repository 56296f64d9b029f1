// Sees to it that the servers and tools of the lab are there: finds them, or installs them where it may.
//
// Two runs at the same time take turns: the second finds everything done. The lock is the kernel's (flock), so
// a run that is killed does not leave it behind.

import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { isNeeded, type Needed, neededFor } from '../lab/obtain/engines.ts'
import { isMissing, obtain, reportOn } from '../lab/obtain/install.ts'

const usage = `node scripts/install-servers.ts [names]

Finds the servers and tools that the tests need and installs what is missing, where it may (as root, with apt).
Without names: those of HOLDFAST_TEST_ONLY, or all of them.

  --check   only look, install nothing
  --help    this text`

const { values, positionals } = readOptions()
if (values.help) {
  console.log(usage)
  process.exit(0)
}
const names =
  positionals.length > 0 ? positionals.filter(isNeeded) : neededFor(process.env.HOLDFAST_TEST_ONLY)
const missing = names.filter(isMissing)

if (missing.length > 0 && !values.check && !values.locked) {
  console.log(`${missing.join(', ')}: not there yet`)
  const lock = join(tmpdir(), `holdfast-install-${process.getuid?.()}.lock`)
  const again = [process.execPath, import.meta.filename, '--locked', ...names]
  const { status, error } = spawnSync('flock', [lock, ...again], { stdio: 'inherit' })
  if (error === undefined) process.exit(status ?? 1)
}

const problems = values.check ? new Map<Needed, string>() : obtain(missing)
const reports = await Promise.all(
  names.map((name) => reportOn(name, missing.includes(name), problems.get(name))),
)
for (const { name, ok, text } of reports) console.log(`${ok ? '✓' : '✗'} ${name.padEnd(10)} ${text}`)
const lacking = reports.filter(({ ok }) => !ok).map(({ name }) => name)
if (lacking.length > 0) {
  console.error(
    `\nMissing: ${lacking.join(', ')}. A narrower run can do without: npm test -- --only memory,…`,
  )
  process.exitCode = 1
}

function readOptions() {
  try {
    const flags = {
      help: { type: 'boolean' },
      check: { type: 'boolean' },
      locked: { type: 'boolean' },
    } as const
    const options = parseArgs({ allowPositionals: true, options: flags })
    const unknown = options.positionals.filter((name) => !isNeeded(name))
    if (unknown.length > 0) throw new Error(`no server or tool ${unknown.join(', ')}`)
    return options
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
