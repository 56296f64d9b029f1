import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('nestjs: a method with @Once() runs in one of three processes', async () => {
  // It compiles the application, checks itself, and fails when a claim does not hold.
  const said = await run('nestjs')
  expect(said.at(-1)).toBe('All 6 claims hold.')
})
