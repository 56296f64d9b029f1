import { readdirSync } from 'node:fs'
import { defineConfig } from 'vitest/config'

// `npm test -- --only memory,redis` narrows the run: what is about another backend is left out.
const only = (process.env.HOLDFAST_TEST_ONLY ?? '').split(',').filter((name) => name !== '')
const backends = readdirSync(new URL('packages/holdfast/src/backends', import.meta.url))
const others = only.length === 0 ? [] : backends.filter((name) => !only.includes(name))

export default defineConfig({
  test: {
    include: ['packages', 'scripts', 'examples', 'bench', 'lab'].map((folder) => `${folder}/**/*.test.ts`),
    exclude: ['**/node_modules/**', ...others.flatMap((name) => [`**/${name}/**`, `**/${name}*.test.ts`])],
    pool: 'forks',
    // One more than the cores of a small machine: tests wait for servers and for time about a third of theirs. More only
    // make the processes that they start wait for each other.
    maxWorkers: 3,
    testTimeout: 30_000,
    execArgv: [
      '--disable-warning=ExperimentalWarning',
      // Servers of tests are set up to be fast, and to be broken.
      '--disable-warning=HOLDFAST_REDIS_PERSISTENCE',
      '--disable-warning=HOLDFAST_REDLOCK_NO_VOTE',
      '--expose-gc',
    ],
  },
})
