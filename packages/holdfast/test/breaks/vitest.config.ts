import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    // A break may make something hang; what is not done by then is red, which is the purpose.
    testTimeout: 5_000,
    execArgv: ['--disable-warning=ExperimentalWarning', '--expose-gc'],
  },
})
