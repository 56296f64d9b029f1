// `npm test`: every check of this repository, in order, each with its time. It goes on after a failure, so that
// one run shows all of them; what needs the build is not run when there is none.

import { spawnSync } from 'node:child_process'
import { mkdirSync, rmSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { engines, tools } from '../lab/obtain/engines.ts'
import { backendsOf } from './lib/backends.ts'
import { biome, cache, libraryPath, packages, root, testReport, tsc, vitest } from './lib/repository.ts'

const usage = `npm test [-- options]

Builds the library, sees to it that the servers are there, and runs all checks: types, lint, layers, banned calls,
tests, claims, documents, public surface.

  --only memory,redis    only the tests of these backends and servers, and only the servers that they need
  --quick                what needs no servers and takes two minutes at most: the library's own tests with memory and
                         sqlite, and the checks of the repository. The same as npm run test:quick
  --clients              the conformance suite with every client library, whole: npm test plays it whole with one library of
                         each engine, and with the others what touches the client. The same as npm run test:clients
  --help                 this text`

interface Step {
  readonly name: string
  readonly command: readonly string[]
  readonly needs?: string
  readonly notRun?: string
}

/**
 * Of the tests, what a quick run takes: units, the suites for backends and guards, the models, the checks' own tests, and
 * the planted bugs that need no process of their own.
 */
const quickTests = [
  ...packages.map((path) => `${path}/src/`),
  `${libraryPath}/test/conformance/`,
  `${libraryPath}/test/model/`,
  `${libraryPath}/test/recipes/`,
  'scripts/checks/',
  // It makes the package and installs it.
  '--exclude=scripts/checks/pack.test.ts',
  'lab/bugs/bank.test.ts',
  'lab/bugs/backends.test.ts',
  'lab/bugs/guards.test.ts',
]
const quickBackends = 'memory,sqlite'

const clientTests = [`${libraryPath}/test/conformance/`]

const { only, quick, clients, help } = readOptions()
if (help) {
  console.log(usage)
  process.exit(0)
}
const narrowings = [
  quick ? 'quick' : only === undefined ? '' : `narrowed to ${only}`,
  clients ? 'narrowed to the conformance suite' : '',
].filter((each) => each !== '')
const narrowed = narrowings.length > 0 ? narrowings.join(' and ') : null
const chosen = quick ? quickTests : clients ? clientTests : []

const report = ['--reporter=default', '--reporter=json', `--outputFile.json=${testReport}`]
const claims: Step = { name: 'claims', command: ['scripts/checks/claims.ts'], needs: 'tests' }
const steps: readonly Step[] = [
  { name: 'build', command: ['scripts/build.ts'] },
  { name: 'types', command: [tsc, '-p', 'tsconfig.json'], needs: 'build' },
  { name: 'lint', command: [biome, 'check', '--error-on-warnings'] },
  { name: 'layers', command: ['scripts/checks/layers.ts'] },
  { name: 'banned', command: ['scripts/checks/banned.ts'] },
  { name: 'complete', command: ['scripts/checks/complete.ts'] },
  { name: 'comments', command: ['scripts/checks/comments.ts'] },
  ...(quick ? [] : [{ name: 'servers', command: ['scripts/install-servers.ts'] }]),
  {
    name: 'tests',
    command: [vitest, 'run', ...chosen, ...(narrowed ? [] : report)],
    needs: 'build',
  },
  narrowed ? { ...claims, notRun: `the run is ${narrowed}, claims are about all tests` } : claims,
  { name: 'docs-blocks', command: ['scripts/checks/docs-blocks.ts'], needs: 'build' },
  { name: 'api', command: ['scripts/checks/api.ts'], needs: 'build' },
]

// A report of an earlier run must never speak for this one.
rmSync(testReport, { force: true })
mkdirSync(cache, { recursive: true })

type Outcome = 'passed' | 'failed' | 'not run'
const outcomes = new Map<string, Outcome>()
const summary = steps.map((step) => {
  const { outcome, note } = runStep(step)
  outcomes.set(step.name, outcome)
  return `  ${{ passed: '✓', failed: '✗', 'not run': '–' }[outcome]} ${step.name.padEnd(12)} ${note}`
})
const passed = steps.every(({ name, notRun }) => notRun !== undefined || outcomes.get(name) === 'passed')

console.log(`\n${summary.join('\n')}`)
if (narrowed) console.log(`\nThis run was ${narrowed}. It does not stand for a full one.`)
console.log(passed ? '\nAll checks passed.' : '\nSome checks failed.')
process.exitCode = passed ? 0 : 1

function runStep({ name, command, needs, notRun }: Step): { outcome: Outcome; note: string } {
  const obstacle = notRun ?? missing(needs)
  if (obstacle !== null) {
    console.log(`\n▶ ${name}: not run, ${obstacle}`)
    return { outcome: 'not run', note: `not run: ${obstacle}` }
  }
  console.log(`\n▶ ${name}`)
  const started = performance.now()
  const { status } = spawnSync(process.execPath, command, {
    cwd: root,
    stdio: 'inherit',
    // Also when undefined: a full run must not be narrowed by a variable that was left set.
    env: {
      ...process.env,
      HOLDFAST_TEST_ONLY: only,
      HOLDFAST_TEST_CLIENTS: clients ? 'whole' : undefined,
    },
  })
  const seconds = `${((performance.now() - started) / 1000).toFixed(1)} s`
  const outcome = status === 0 ? 'passed' : 'failed'
  console.log(`  ${name} ${outcome} after ${seconds}`)
  return { outcome, note: seconds }
}

/** The claims can be held against tests of which some failed, but nothing can be done without a build. */
function missing(needs: string | undefined): string | null {
  if (needs === undefined) return null
  const outcome = outcomes.get(needs)
  if (outcome === 'passed' || (outcome === 'failed' && needs === 'tests')) return null
  return outcome === 'failed' ? `the ${needs} failed` : `the ${needs} did not run`
}

function readOptions(): { only?: string; quick?: boolean; clients?: boolean; help?: boolean } {
  try {
    const { values } = parseArgs({
      options: {
        only: { type: 'string' },
        quick: { type: 'boolean' },
        clients: { type: 'boolean' },
        help: { type: 'boolean' },
      },
    })
    if (values.quick) return { ...values, only: quickBackends }
    if (values.only !== undefined) {
      const backends = backendsOf(root).map(({ name }) => name)
      const known = [...new Set([...backends, ...engines, ...tools])]
      const unknown = values.only.split(',').filter((name) => !known.includes(name))
      if (unknown.length > 0)
        throw new Error(`no backend or server ${unknown.join(', ')}, there are ${known.join(', ')}`)
    }
    return values
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
