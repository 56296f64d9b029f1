// The unit tests that mutants of core, guards and lockfree are run against: those that need no servers.

import { defineConfig } from 'vitest/config'
import { libraryPath } from '../lib/repository.ts'

const source = `${libraryPath}/src`

/** Each waits for a second or more in real time, and would do so for hundreds of mutants. */
const slow = [
  'transaction stays open',
  'a process that',
  'however often that was prolonged',
  'forgetting keeps one row for each issuer',
  '200 read-modify-writes',
  'timers that share one come in order',
  'although the timer was another’s',
  'a sleeper wakes up in its own',
  'a timer comes although another of its length',
  '1009 ms: it sees neither',
]

export default defineConfig({
  test: {
    include: ['base', 'locker', 'kit', 'guards', 'lockfree'].map(
      (folder) => `${source}/${folder}/**/*.test.ts`,
    ),
    exclude: [
      `${source}/*/redis*`,
      `${source}/*/redis/**`,
      `${source}/*/postgres*`,
      `${source}/*/postgres/**`,
    ],
    testNamePattern: new RegExp(`^(?!.*(${slow.join('|')}))`),
    testTimeout: 10_000,
    // The modules of one run serve all test files, which halves the time for a mutant.
    isolate: false,
  },
})
