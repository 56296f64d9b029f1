import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('fencing-proxy: a stopped client is refused, and a newer one waits for a slow older request', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('fencing-proxy')
  expect(said.join('\n')).toContain('✓ control: ')
  expect(said.at(-1)).toBe('All 6 claims hold.')
})
