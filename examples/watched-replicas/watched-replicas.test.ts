import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('the metrics of three replicas tell what became of the one that was stopped', async () => {
  const lines = await run('watched-replicas')
  expect(lines.at(-1)).toBe('All 3 claims hold.')
})
