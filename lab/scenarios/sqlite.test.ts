import { expect } from 'vitest'
import { sqliteEngine } from './engines/sqlite.ts'
import { controlTries, expectPassed, heldIn, onLinux } from './expectations.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { pauseScenario } from './pause.ts'
import { conclude, type Result, runScenario } from './scenario.ts'

onLinux('pause: who was overtaken overwrites an update, unless a guard refuses it', async () => {
  const result = await runScenario(pauseScenario({ ttlMs: 400 }), sqliteEngine, { controlTries })
  expectPassed(result)
  expect(result.control).toMatchObject({ lost: ['second 1'], found: ['first 1'] })
  expect(result.guarded).toMatchObject({
    found: ['second 1'],
    refusals: [{ client: 'first', access: 'write' }],
  })
})

onLinux(
  'lost-update: five clients, one stopped at a time, lose updates without the guard and none with it',
  async () => {
    const scaled = { seconds: 7, ttlMs: 400, mostThinkMs: 400, stopEveryMs: 1_000 }
    const result = await runScenario(lostUpdateScenario(scaled), sqliteEngine, { controlTries })
    expectPassed(result)
    expect(heldIn(result.guarded)).toEqual(
      expect.arrayContaining(['G1', 'G2', 'G3', 'G5', 'G13', 'lost-updates', 'linearizability']),
    )

    // The same rounds, had they gone otherwise.
    const { control, guarded } = result
    expect(conclude({ ...control, lost: [] }, guarded).verdict).toBe('void')
    expect(conclude(control, { ...guarded, refusals: [] }).verdict).toBe('void')
    expect(conclude(control, { ...guarded, lost: ['one'] }).verdict).toBe('failed')
    expect(conclude(control, { ...guarded, checks: undeclared(control) }).verdict).toBe('failed')
  },
)

/** The checkers' findings, as if it were not declared that updates may be lost. */
function undeclared({ checks }: Result['control']): Result['control']['checks'] {
  return { ...checks, checks: checks.checks.map((check) => ({ ...check, exception: null })) }
}
