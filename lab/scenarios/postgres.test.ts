import { describe, expect, test } from 'vitest'
import { wanted } from '../servers/index.ts'
import { clockJumpScenario } from './clock-jump.ts'
import { postgresEngine } from './engines/postgres.ts'
import { controlTries, expectPassed, expectTwoBelievers, heldIn, onLinux } from './expectations.ts'
import { freezeScenario } from './freeze.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { partitionScenario } from './partition.ts'
import { pauseScenario } from './pause.ts'
import { poolerScenario } from './pooler.ts'
import { runScenario, type Scenario } from './scenario.ts'

const run = (scenario: Scenario) => runScenario(scenario, postgresEngine, { controlTries })

describe.runIf(wanted('postgres'))('on postgres', () => {
  onLinux('pause: the guard refuses who was overtaken', async () => {
    const result = await run(pauseScenario({ ttlMs: 500 }))
    expectPassed(result)
    expect(result.control).toMatchObject({ lost: ['second 1'], found: ['first 1'] })
    expect(result.guarded).toMatchObject({ found: ['second 1'], refusals: [{ client: 'first' }] })
  })

  onLinux(
    'lost-update: clients that are stopped lose updates without the guard and none with it',
    async () => {
      const scaled = { seconds: 4, clients: 4, ttlMs: 400, mostThinkMs: 400, stopEveryMs: 1_000 }
      const result = await run(lostUpdateScenario(scaled))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(
        expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13', 'lost-updates', 'linearizability']),
      )
    },
  )

  onLinux('T9 clock-jump: two believe at once, tokens increase, the guard refuses the older', async () => {
    const result = await run(clockJumpScenario())
    expectTwoBelievers(result)
    expect(heldIn(result.guarded)).toEqual(expect.arrayContaining(['G2', 'G5', 'lost-updates']))
  })

  onLinux(
    'partition: belief ends before the successor gets the name, and late writes are refused',
    async () => {
      const result = await run(partitionScenario({ ttlMs: 600 }))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(
        expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G10', 'G13', 'linearizability']),
      )
    },
  )

  onLinux(
    'T16 freeze: belief ends by its own clock, and what was sent meanwhile brings nothing back',
    async () => {
      const result = await run(freezeScenario({ ttlMs: 600 }))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13']))
    },
  )

  test.runIf(process.platform === 'linux' && wanted('pgbouncer'))(
    'pooler: leases hold where two clients are given one and the same session lock',
    async () => {
      const result = await run(poolerScenario({ ttlMs: 500 }))
      expectPassed(result)
      expect(result.guarded).toMatchObject({ found: ['second 1'], refusals: [{ client: 'first' }] })
    },
  )
})
