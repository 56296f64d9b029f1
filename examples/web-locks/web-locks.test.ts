import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('web-locks: a program for the locks of one process runs unchanged over several', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('web-locks')
  expect(said).toContainEqual(
    expect.stringMatching(/ {2}✓ control: \d+ of 60 sales are missing from the stock/),
  )
  expect(said.at(-1)).toBe('All 6 claims hold.')
})
