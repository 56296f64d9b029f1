import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('lock-order: a warning, the deadlock, and the way out', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('lock-order')
  expect(said).toContain('  ✓ control: at least one of them waits until its time is over')
  expect(said.at(-1)).toBe('All 4 claims hold.')
})
