import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('guarded-files: a process that was stopped between read and write does not write over its successor', async () => {
  // It checks itself and fails when a claim does not hold.
  const said = await run('guarded-files')
  expect(said.join('\n')).toContain('✓ control: ')
  expect(said.at(-1)).toBe('All 3 claims hold.')
})
