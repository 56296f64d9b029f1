/** What an engine inside the test's own process cannot show, and why. */
import type { DeclaredException } from '../../src/testing/describe-backend.ts'

const noWire = 'engine and clients are in one process: there are no commands between them to count'
const noDisk = 'the engine ends with the process, and its default issuer with it'

export const memoryExceptions: readonly DeclaredException[] = [
  { rule: 'C50', lacksHook: 'restart', why: noDisk },
  { rule: 'C71', lacksHook: 'countCommands', why: noWire },
]
