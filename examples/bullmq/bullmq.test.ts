import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../support/run.ts'

describe.runIf(wanted('redis'))('bullmq', () => {
  test('a job that two workers do is charged once, under a lease and a fence', async () => {
    // It checks itself and fails when a claim does not hold.
    const said = await run('bullmq')
    expect(said).toContain('  ✓ control: the customer is charged 2 times')
    expect(said.at(-1)).toBe('All 2 claims hold.')
  })
})
