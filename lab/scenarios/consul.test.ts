import { describe, expect } from 'vitest'
import { wanted } from '../servers/index.ts'
import { consulEngine } from './engines/consul.ts'
import { controlTries, expectPassed, heldIn, onLinux } from './expectations.ts'
import { failoverScenario } from './failover.ts'
import { freezeScenario } from './freeze.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { partitionScenario } from './partition.ts'
import { pauseScenario } from './pause.ts'
import { runScenario, type Scenario } from './scenario.ts'

const run = (scenario: Scenario) => runScenario(scenario, consulEngine, { controlTries })
const ttlMs = 1_500

// At the same time: they mostly wait.
describe.runIf(wanted('consul'))('on Consul', { timeout: 180_000, concurrent: true }, () => {
  onLinux('pause: the guard refuses who was overtaken', async () => {
    const result = await run(pauseScenario({ ttlMs }))
    expectPassed(result)
    expect(result.control).toMatchObject({ lost: ['second 1'], found: ['first 1'] })
    expect(result.guarded).toMatchObject({ found: ['second 1'], refusals: [{ client: 'first' }] })
  })

  onLinux(
    'lost-update: clients that are stopped lose updates without the guard and none with it',
    async () => {
      const scaled = { seconds: 8, clients: 4, ttlMs, mostThinkMs: 600, stopEveryMs: 2_000 }
      const result = await run(lostUpdateScenario(scaled))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(
        expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13', 'lost-updates', 'linearizability']),
      )
    },
  )

  onLinux(
    'partition: belief ends before the successor gets the name, and late writes are refused',
    async () => {
      const result = await run(partitionScenario({ ttlMs }))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(
        expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13', 'linearizability']),
      )
    },
  )

  onLinux(
    'T16 freeze: belief ends by its own clock, and what was sent meanwhile brings nothing back',
    async () => {
      const result = await run(freezeScenario({ ttlMs }))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13']))
    },
  )

  onLinux(
    'failover: no grant is lost with the leader, and a client that knew it alone is refused',
    async () => {
      const result = await run(failoverScenario({ ttlMs }))
      expectPassed(result)
      expect(heldIn(result.guarded)).toEqual(expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13']))
    },
  )
})
