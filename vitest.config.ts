import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['packages', 'scripts', 'examples', 'bench', 'lab'].map((folder) => `${folder}/**/*.test.ts`),
    pool: 'forks',
    // Several tests start processes of their own; more workers than this only make them wait for each other.
    maxWorkers: 2,
    testTimeout: 30_000,
    execArgv: ['--disable-warning=ExperimentalWarning', '--expose-gc'],
  },
})
