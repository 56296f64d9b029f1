import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('single-flight: one of four processes computes, also when the first one is killed', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('single-flight')
  expect(said).toContain('  ✓ control: it is computed 4 times')
  expect(said.at(-1)).toBe('All 3 claims hold.')
})
