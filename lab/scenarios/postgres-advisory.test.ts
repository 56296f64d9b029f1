import { describe, expect } from 'vitest'
import { wanted } from '../servers/index.ts'
import { postgresAdvisoryEngine } from './engines/postgres-advisory.ts'
import { controlTries, expectPassed, heldIn, onLinux } from './expectations.ts'
import { partitionScenario } from './partition.ts'
import { pauseScenario } from './pause.ts'
import { runScenario, type Scenario } from './scenario.ts'

const run = (scenario: Scenario) => runScenario(scenario, postgresAdvisoryEngine, { controlTries })

describe.runIf(wanted('postgres'))('on postgres-advisory', () => {
  onLinux('pause: the guard refuses who was overtaken', async () => {
    const result = await run(pauseScenario({ ttlMs: 600 }))
    expectPassed(result)
    expect(result.guarded).toMatchObject({ found: ['second 1'], refusals: [{ client: 'first' }] })
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
})
