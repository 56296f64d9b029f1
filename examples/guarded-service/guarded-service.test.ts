import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('guarded-service: a client that was stopped gets 409 from an Express service, and changes nothing', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('guarded-service')
  expect(said.join('\n')).toContain('✓ control: ')
  expect(said.at(-1)).toBe('All 4 claims hold.')
})
