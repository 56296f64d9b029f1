import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('re-entrant: the inner calls enter the lease of the outer one', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('re-entrant')
  expect(said).toContain('  ✓ control: the withdrawal waits for itself')
  expect(said.at(-1)).toBe('All 5 claims hold.')
})
