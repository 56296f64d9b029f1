import { describe, expect } from 'vitest'
import { wanted } from '../servers/index.ts'
import { clockJumpOneScenario, clockJumpScenario } from './clock-jump.ts'
import { redlockEngine } from './engines/redlock.ts'
import { controlTries, expectPassed, expectTwoBelievers, heldIn, onLinux } from './expectations.ts'
import { freezeScenario } from './freeze.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { partitionScenario } from './partition.ts'
import { pauseScenario } from './pause.ts'
import { describe as explain } from './report.ts'
import { runScenario, type Scenario } from './scenario.ts'

const run = (scenario: Scenario) => runScenario(scenario, redlockEngine, { controlTries })

describe.runIf(wanted('redlock'))('on redlock', () => {
  onLinux('pause: no lock can prevent the loss; a compare-and-set in the resource does', async () => {
    const result = await run(pauseScenario({ ttlMs: 800 }))
    expectPassed(result)
    expect(result.control).toMatchObject({ lost: ['second 1'], found: ['first 1'] })
    expect(result.guarded).toMatchObject({
      found: ['second 1'],
      refusals: [{ client: 'first', stale: null }],
    })
    expect(explain(result)).toContain('there can be no guard')
  })

  onLinux('lost-update: the resource loses nothing only because it compares', async () => {
    const scaled = { seconds: 6, clients: 4, ttlMs: 800, mostThinkMs: 400, stopEveryMs: 2_000 }
    const result = await run(lostUpdateScenario(scaled))
    expectPassed(result)
    expect(heldIn(result.guarded)).toEqual(
      expect.arrayContaining(['G1', 'G3', 'G13', 'lost-updates', 'linearizability']),
    )
  })

  onLinux('T9 clock-jump: with the clocks of 3 of 5 nodes set ahead, two believe at once', async () => {
    expectTwoBelievers(await run(clockJumpScenario()))
  })

  onLinux('T77 clock-jump-one: with the clock of 1 of 5 nodes set ahead, two believe at once', async () => {
    expectTwoBelievers(await run(clockJumpOneScenario()))
  })

  onLinux('partition: belief ends before the successor gets the name', async () => {
    const result = await run(partitionScenario({ ttlMs: 800 }))
    expectPassed(result)
    expect(heldIn(result.guarded)).toEqual(
      expect.arrayContaining(['G1', 'G3', 'G7', 'G10', 'G13', 'linearizability']),
    )
  })

  onLinux('T16 freeze: with 3 of 5 nodes standing still, belief ends by its own clock', async () => {
    const result = await run(freezeScenario({ ttlMs: 800 }))
    expectPassed(result)
    expect(heldIn(result.guarded)).toEqual(expect.arrayContaining(['G1', 'G3', 'G13']))
  })
})
