/** Expectations of a scenario that has passed, for the tests of all engines. */
import { expect, test } from 'vitest'
import type { CheckId } from '../check/index.ts'
import { describe as explain } from './report.ts'
import type { Round } from './round.ts'
import { type Result, violationsOf } from './scenario.ts'

/** Processes are stopped, and looked at in /proc. */
export const onLinux = test.skipIf(process.platform !== 'linux')

/** A control that has shown nothing, because the machine was too busy, is run again. */
export const controlTries = 3

export function expectPassed(result: Result): void {
  const { verdict, control, guarded } = result
  expect(verdict, explain(result)).toBe('passed')
  expect(control.lost.length).toBeGreaterThan(0)
  expect(guarded.lost).toEqual([])
  expect(guarded.refusals.length).toBeGreaterThan(0)
  expect([...violationsOf(control), ...violationsOf(guarded)]).toEqual([])
  for (const { stale } of guarded.refusals)
    if (result.engine.protection === 'guard') expect(stale?.token).toBeLessThan(stale?.highest ?? 0n)
    else expect(stale).toBeNull()
}

/** Exactly what was to be expected: two believed, and nothing but that went wrong. */
export function expectTwoBelievers(result: Result): void {
  expectPassed(result)
  expect(result.control.broken).not.toBeNull()
  expect(result.control.timesTwoBelieved).toBeGreaterThan(0)
  expect(violatedIn(result.control)).toEqual(expect.arrayContaining(['G1', 'G3', 'G13', 'lost-updates']))
  expect(violatedIn(result.guarded)).not.toContain('lost-updates')
}

export function heldIn({ checks }: Round): CheckId[] {
  return checks.checks.flatMap(({ check, status }) => (status === 'held' ? [check] : []))
}

function violatedIn({ checks }: Round): CheckId[] {
  return checks.checks.flatMap(({ check, status }) => (status === 'violated' ? [check] : []))
}
