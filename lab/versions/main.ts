// `npm run test:versions`: plays the suites with every version that is supported, one version after the other.

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { cache, libraryPath, root, vitest } from '../../scripts/lib/repository.ts'
import { obtain } from './obtain.ts'
import { type Record, remaining, tableOf, updated, withTable } from './record.ts'
import { type Version, versions } from './versions.ts'

const usage = `npm run test:versions [-- options] [versions]

Obtains each version and plays the suites of backends, guards and lock-free helpers with it: packages of several releases
of Debian, from the machine's own mirror, and of npm. What has passed with the committed sources is not run again. A version
lies in .cache/servers: what is removed there is obtained anew.

  --obtain     only obtains them, and says their versions
  --again      runs also what has passed
  --record     records what has passed in lab/versions/record.json and docs/versions.md
  --help       this text

Versions: ${versions.map(({ id }) => id).join(', ')}`

const folder = join(cache, 'versions')
const resultFile = join(folder, 'passed.json')
const recordFile = join(import.meta.dirname, 'record.json')
const document = join(root, 'docs/versions.md')

const options = readOptions()
if (options.help) {
  console.log(usage)
  process.exit(0)
}
mkdirSync(folder, { recursive: true })
const sources = committedSources()
const known = [readRecord(recordFile), readRecord(resultFile)]
const wanted = versions.filter(({ id }) => options.names.length === 0 || options.names.includes(id))
const toRun = options.again || options.obtain ? wanted : remaining(wanted, sources, ...known)

const outcomes = new Map<Version, string>()
for (const [index, version] of toRun.entries()) {
  console.log(`\n▶ ${index + 1} of ${toRun.length}: ${version.title}`)
  outcomes.set(version, await play(version).catch((error: Error) => `✗ ${error.message}`))
  console.log(`  ${outcomes.get(version)}`)
}
console.log(
  `\n${wanted.map((each) => `  ${each.title.padEnd(36)} ${outcomes.get(each) ?? '✓ passed before'}`).join('\n')}`,
)
if (options.record) record()
process.exitCode = [...outcomes.values()].some((outcome) => outcome.startsWith('✗')) ? 1 : 0

async function play(version: Version): Promise<string> {
  const { number, node, environment } = await obtain(version)
  if (options.obtain) return `✓ ${number}`
  const report = join(folder, `${version.id}.json`)
  rmSync(report, { force: true })
  const started = performance.now()
  const { status } = spawnSync(
    node,
    [
      ...[vitest, 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`],
      ...version.paths,
    ],
    {
      cwd: root,
      stdio: 'inherit',
      // A server that is lent to other runs would take the place of this version.
      env: { ...withoutOurs(process.env), HOLDFAST_TEST_ONLY: version.only, ...environment },
    },
  )
  const seconds = `${Math.round((performance.now() - started) / 1000)} s`
  if (!existsSync(report)) return `✗ ${number}: the tests did not run`
  const { numPassedTests, numFailedTests } = JSON.parse(readFileSync(report, 'utf8'))
  if (status !== 0) return `✗ ${number}: ${numFailedTests} failed, ${numPassedTests} passed, ${seconds}`
  const passed = { version: number, suites: version.suites, passed: numPassedTests, date: today() }
  // What was run with changes that are in no commit cannot be told from what comes after them.
  if (sources !== null) write(resultFile, { ...readRecord(resultFile), [version.id]: { ...passed, sources } })
  return `✓ ${number}: ${numPassedTests} passed, ${seconds}`
}

function record(): void {
  if (sources === null) throw new Error('commit the sources first: a record is of a commit')
  const all = updated(versions, sources, readRecord(recordFile), readRecord(resultFile))
  write(recordFile, all)
  writeFileSync(document, withTable(readFileSync(document, 'utf8'), tableOf(versions, all)))
}

/** Says which sources of the library, its build and the harness are committed; null if some are not. */
function committedSources(): string | null {
  const paths = [
    `${libraryPath}/src`,
    `${libraryPath}/test`,
    // The build is made of these too, and the Node rows load it.
    'packages/cli/src',
    'scripts/build.ts',
    'lab/servers',
    'lab/faults',
    'package-lock.json',
  ]
  const git = (...command: string[]) => spawnSync('git', command, { cwd: root, encoding: 'utf8' }).stdout
  if (git('status', '--porcelain', '--', ...paths) !== '') return null
  const trees = git('rev-parse', ...paths.map((path) => `HEAD:${path}`))
  return createHash('sha256').update(trees).digest('hex').slice(0, 12)
}

function withoutOurs(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(environment).filter(([name]) => !name.startsWith('HOLDFAST_TEST_')),
  )
}

function today(): string {
  return new Date().toISOString().slice(0, 10)
}

function readRecord(file: string): Record {
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
}

function write(file: string, content: Record): void {
  writeFileSync(file, `${JSON.stringify(content, null, 2)}\n`)
}

function readOptions() {
  try {
    const flag = { type: 'boolean' } as const
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: { obtain: flag, again: flag, record: flag, help: flag },
    })
    const unknown = positionals.filter((name) => !versions.some(({ id }) => id === name))
    if (unknown.length > 0) throw new Error(`no version ${unknown.join(', ')}`)
    return { ...values, names: positionals }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
