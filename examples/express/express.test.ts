import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('express: SIGTERM finishes the work, releases and exits with 0, and a second process takes over', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('express')
  expect(said.at(-1)).toBe('All 9 claims hold.')
})
