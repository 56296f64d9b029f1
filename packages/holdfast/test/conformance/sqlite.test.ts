import { describe, test } from 'vitest'
import { sleep, systemClock } from '../../src/base/clock.ts'
import { backendCases, describeBackend } from '../../src/testing/describe-backend.ts'
import { sqliteWorld, sqliteWorldOnFakeClock } from './sqlite-world.ts'

const except = [{ rule: 'C239', lacksHook: 'countConnections', why: 'a file has no connections' }] as const

describeBackend({
  name: 'sqlite',
  describe,
  test,
  createWorld: () => sqliteWorldOnFakeClock(),
  except,
})

// Cases that depend on time most also hold by the system's own clock; the whole suite does, for those who have minutes to spare.
const isWhole = process.env.HOLDFAST_WHOLE_SUITE_ON_REAL_CLOCK === '1'
const timely = new Set(['C57', 'C58', 'C61', 'C63', 'C81', 'C85', 'C182', 'C197', 'C198'])

describeBackend({
  name: 'sqlite on the system clock',
  describe,
  test,
  cases: backendCases().filter(({ rule }) => isWhole || timely.has(rule)),
  except: except.filter(({ rule }) => isWhole || timely.has(rule)),
  createWorld: () =>
    sqliteWorld({
      clock: systemClock,
      passTime: (ms) => sleep(systemClock, ms, { keepsProcessAlive: true }),
      ttlMs: 600,
      resolutionMs: 150,
    }),
})
