// `npm run mutants`: plants small changes in base, locker, kit, guards and lockfree, one at a time, and runs the unit tests on each. It
// prints how many were noticed, and those that were not. One takes one or two seconds.

import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import type { MutantResult } from '@stryker-mutator/api/core'
import { Stryker } from '@stryker-mutator/core'
import { libraryPath, root } from './lib/repository.ts'

const source = `${libraryPath}/src`
const folders = ['base', 'locker', 'kit', 'guards', 'lockfree']
const { values } = parseArgs({
  options: {
    sample: { type: 'string', default: '2000' },
    seed: { type: 'string', default: '1' },
    /** How many of the sample to leave out, because an earlier run with a smaller sample had them. */
    skip: { type: 'string', default: '0' },
    /** A part of the path of the files to change, such as `locker/keeper`. */
    only: { type: 'string', default: '' },
  },
})

process.env.HOLDFAST_MUTANTS = [values.sample, values.seed, values.skip].map(Number).join('/')
// Leaves out the tests that need a server, in files that have others too.
process.env.HOLDFAST_TEST_ONLY = 'memory,sqlite'

const results = await new Stryker({
  mutate: [
    values.only === '' ? `${source}/{${folders.join(',')}}/**/*.ts` : `${source}/**/*${values.only}*`,
    ...['*.test.ts', '*.test-d.ts'].map((tests) => `!${source}/**/${tests}`),
    // Without a server no test reaches them.
    ...['redis', 'postgres'].flatMap((engine) => [`!${source}/*/${engine}*`, `!${source}/*/${engine}/**`]),
  ],
  ignorePatterns: ['api', 'bench', 'examples', 'dist'],
  testRunner: 'vitest',
  plugins: ['@stryker-mutator/vitest-runner', join(root, 'scripts/mutants/sample.ts')],
  checkers: ['sample'],
  vitest: { configFile: 'scripts/mutants/vitest.config.ts' },
  testRunnerNodeArgs: ['--expose-gc', '--disable-warning=ExperimentalWarning'],
  coverageAnalysis: 'perTest',
  // Those in code that runs when a module is loaded need all tests, and are mostly texts and constants.
  ignoreStatic: true,
  concurrency: 1,
  timeoutMS: 5_000,
  timeoutFactor: 2,
  reporters: ['progress-append-only'],
  tempDirName: '.cache/mutants',
  // Stryker rewrites the file that it finds here with a part of TypeScript that TypeScript 7 does not have.
  tsconfigFile: 'none',
  disableTypeChecks: false,
}).runMutationTest()

const noticed = (one: MutantResult) => one.status === 'Killed' || one.status === 'Timeout'
const missed = (one: MutantResult) => one.status === 'Survived' || one.status === 'NoCoverage'
const pathOf = ({ fileName }: MutantResult) => relative(join(root, source), fileName)

for (const one of results.filter(missed)) console.log(describe(one))
console.log()
for (const folder of [...folders, '']) {
  const here = results.filter((one) => pathOf(one).startsWith(folder))
  const killed = here.filter(noticed).length
  const total = killed + here.filter(missed).length
  if (total === 0) continue
  const score = ((100 * killed) / total).toFixed(1)
  console.log(`${folder === '' ? 'all' : folder}: ${killed} of ${total} mutants noticed, ${score} %`)
}

function describe(one: MutantResult): string {
  const { start, end } = one.location
  const lines = readFileSync(one.fileName, 'utf8')
    .split('\n')
    .slice(start.line - 1, end.line)
  const last = lines.length - 1
  lines[last] = lines[last]?.slice(0, end.column - 1) ?? ''
  lines[0] = lines[0]?.slice(start.column - 1) ?? ''
  const place = `${pathOf(one)}:${start.line}:${start.column}`
  return `${one.status} ${place} ${one.mutatorName}: ${brief(lines.join('\n'))} → ${brief(one.replacement ?? '')}`
}

function brief(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ')
  return line.length > 100 ? `${line.slice(0, 99)}…` : line
}
