import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('a killed worker’s partitions go to the others, and a new one gets a share', async () => {
  // It checks itself and fails when something that it claims does not hold.
  const lines = await run('partitions')
  expect(lines.filter((line) => line.includes('✓'))).toHaveLength(6)
  expect(lines.at(-1)).toContain('each by one worker after the other')
})
