import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { backendsOf } from './scripts/lib/backends.ts'
import { cache } from './scripts/lib/repository.ts'

// Many tests start programs from the sources. What one of them has compiled, the others find here: that is most of a start.
process.env.NODE_COMPILE_CACHE ??= join(cache, 'compiled')

// `npm test -- --only memory,redis` narrows the run: what is about another backend is left out.
const only = (process.env.HOLDFAST_TEST_ONLY ?? '').split(',').filter((name) => name !== '')
const backends = backendsOf(import.meta.dirname)
const engineOf = (folder: string) => folder.split('/')[1]
const isWanted = ({ name }: { readonly name: string }) => only.length === 0 || only.includes(name)
const wantedEngines = new Set(backends.filter(isWanted).map(({ folder }) => engineOf(folder)))
const leftOut = backends
  .filter((backend) => !isWanted(backend))
  .flatMap(({ name, folder }) => [
    `**/${name}*.test.ts`,
    `**/test/${name}/**`,
    // The client, the guard and the helpers without a lock belong to the engine.
    wantedEngines.has(engineOf(folder)) ? `**/src/${folder}/**` : `**/src/engines/${engineOf(folder)}/**`,
  ])

/** Each takes half a minute or more. They begin first, so that none of them runs alone at the end. */
const long = [
  'test/conformance/postgres',
  'test/conformance/redis-cluster',
  'test/conformance/consul.test',
  'test/conformance/redlock',
  'lab/bugs/bugs',
  'lab/scenarios/',
  'lab/sim/sim',
  'test/sqlite/crashes',
  'test/model/',
]

/** A fresh checkout knows no durations of earlier runs, and would take the size of a file for its duration. */
class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification) => long.some((path) => moduleId.includes(path))
    const sorted = await super.sort(files)
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))]
  }
}

export default defineConfig({
  test: {
    sequence: { sequencer: LongFirst },
    include: ['packages', 'scripts', 'examples', 'bench', 'lab'].map((folder) => `${folder}/**/*.test.ts`),
    exclude: ['**/node_modules/**', ...leftOut],
    pool: 'forks',
    // One more than the cores of a small machine: tests wait for servers and for time about a third of theirs. More only
    // make the processes that they start wait for each other.
    maxWorkers: 3,
    // Limits against a hang. A machine that does much else may take a minute for what takes a second.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000 } },
    execArgv: [
      '--disable-warning=ExperimentalWarning',
      // Servers of tests are set up to be fast, and to be broken.
      '--disable-warning=HOLDFAST_REDIS_PERSISTENCE',
      '--disable-warning=HOLDFAST_REDLOCK_NO_VOTE',
      // Tests drop leases, and have short TTLs, on purpose.
      '--disable-warning=HOLDFAST_DROPPED',
      '--disable-warning=HOLDFAST_TTL',
      '--expose-gc',
    ],
  },
})
