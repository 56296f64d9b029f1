import { expect } from 'vitest'
import type { Finding } from '../findings.ts'

/** It judged something, found nothing wrong, and left nothing open but what is said here. */
export function expectHeld({ violations, judged, notJudged }: Finding, ...open: readonly string[]): void {
  expect(violations.map(({ message }) => message)).toEqual([])
  expect(judged).toBeGreaterThan(0)
  expect(notJudged.map(({ why }) => why)).toEqual(open.map((words) => expect.stringContaining(words)))
}

/** It found exactly one thing wrong, and says so in words that contain all of these. */
export function expectViolated({ violations }: Finding, ...words: readonly string[]): void {
  expect(violations).toHaveLength(1)
  for (const word of words) expect(violations[0]?.message).toContain(word)
}

/** It judged nothing, and says why. */
export function expectNotJudged(
  { violations, judged, notJudged }: Finding,
  ...words: readonly string[]
): void {
  expect({ violations, judged }).toEqual({ violations: [], judged: 0 })
  expect(notJudged.length).toBeGreaterThan(0)
  for (const word of words) expect(notJudged.map(({ why }) => why).join('; ')).toContain(word)
}
