import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('a runner that is killed between effect and record: the tick starts again, the effect is there once', async () => {
  // It exits with 1 if a claim does not hold.
  const lines = await run('nightly-report')
  expect(lines).toHaveLength(4)
  expect(lines.every((line) => line.startsWith('✓'))).toBe(true)
})
