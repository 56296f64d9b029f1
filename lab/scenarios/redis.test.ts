import { describe, expect, test } from 'vitest'
import { wanted } from '../servers/index.ts'
import { clockJumpScenario } from './clock-jump.ts'
import { redisEngine } from './engines/redis.ts'
import { controlTries, expectPassed, expectTwoBelievers, heldIn, onLinux } from './expectations.ts'
import { failoverScenario } from './failover.ts'
import { freezeScenario } from './freeze.ts'
import { judge } from './judging.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { partitionScenario } from './partition.ts'
import { pauseScenario } from './pause.ts'
import { brokenBy } from './round.ts'
import { conclude, runScenario, type Scenario, violationsOf } from './scenario.ts'

const run = (scenario: Scenario) => runScenario(scenario, redisEngine, { controlTries })

describe.runIf(wanted('redis'))('on redis', () => {
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

    // The exception is for the lease that was held when the clock was set, and for nothing else.
    const { control, guarded } = result
    const info = { fencing: 'fenced', waiting: 'queue' } as const
    const unexcused = {
      ...guarded,
      checks: judge(guarded.history, { protection: 'guard', info, brokenAt: [] }),
    }
    expect(violationsOf(unexcused).map(({ check }) => check)).toEqual(
      expect.arrayContaining(['G1', 'G3', 'G13']),
    )
    expect(conclude(control, unexcused).verdict).toBe('failed')
    expect(conclude({ ...control, timesTwoBelieved: 0 }, guarded).verdict).toBe('void')
  })

  onLinux(
    'failover: a replica without the grant makes two believe; tokens increase, the guard refuses',
    async () => {
      const result = await run(failoverScenario())
      expectTwoBelievers(result)
      expect(heldIn(result.guarded)).toEqual(expect.arrayContaining(['G2', 'G5', 'lost-updates']))
    },
  )

  onLinux(
    'partition: belief ends before the successor gets the name, and late writes are refused',
    async () => {
      const result = await run(partitionScenario({ ttlMs: 600 }))
      expectPassed(result)
      expect(result.guarded.refusals).toMatchObject(
        Array.from({ length: 3 }, () => ({ client: 'first', access: 'write' })),
      )
      expect(heldIn(result.guarded)).toEqual(
        expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G7', 'G10', 'G13', 'linearizability']),
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
})

test('an engine that does not warn of what breaks it has failed', () => {
  const info = { assumptions: ['Nothing ever goes wrong.'] }
  expect(() => brokenBy(redisEngine, 'clock', info)).toThrow(/info\.assumptions/)
  expect(brokenBy(redisEngine, 'partition', info)).toBeNull()
})
