/** Every broken guard is noticed by the cases of the suite for guards that the bank names for it. */
import { expect, test } from 'vitest'
import { guardCases } from '../../packages/holdfast/src/testing/describe-guard.ts'
import { memoryGuardWorld } from '../../packages/holdfast/test/memory-guard-world.ts'
import { guardBugs } from './guards.ts'

test.each(guardBugs)('$foundBy.guardSuite notice: $what', async ({ changeGuard, foundBy }) => {
  const wanted = foundBy.guardSuite?.split(' ') ?? []
  const red: string[] = []
  for (const { rule, run } of guardCases())
    if (wanted.includes(rule)) await run(memoryGuardWorld(changeGuard)).catch(() => red.push(rule))
  expect(red.sort()).toEqual(wanted.sort())
})
