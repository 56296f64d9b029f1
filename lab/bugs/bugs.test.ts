/** The bank of historical bugs: each is planted, and each is caught within what the track record says. */
import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, test } from 'vitest'
import { bugs } from './bank.ts'
import { catchAll } from './catch-all.ts'
import { found } from './found.ts'
import type { Caught } from './plant.ts'
import { comparable, trackRecord } from './record.ts'

let results: ReadonlyMap<string, Caught>

beforeAll(async () => {
  results = await catchAll()
}, 600_000)

test('the bank has at least 25 bugs, and no two have one id', () => {
  expect(bugs.length).toBeGreaterThanOrEqual(25)
  expect(new Set(bugs.map(({ id }) => id)).size).toBe(bugs.length)
})

describe('planted and caught', () => {
  const caught = bugs.filter(({ caughtBy }) => caughtBy !== 'nothing')
  test.each(caught)('$id within $maxSeeds seeds by $caughtBy: $what', ({ id, rule }) => {
    expect(results.get(id)?.seeds, results.get(id)?.message).not.toBeNull()
    if (rule !== undefined) expect(results.get(id)?.rule).toBe(rule)
  })

  const escaped = bugs.filter(({ caughtBy }) => caughtBy === 'nothing')
  test.each(escaped)('$id escapes, and the record says so: $what', ({ id }) => {
    expect(results.get(id)?.seeds).toBeNull()
  })
})

test('TRACK_RECORD.md is what the bank says (npm run bugs -- --write)', () => {
  const written = readFileSync(new URL('../TRACK_RECORD.md', import.meta.url), 'utf8')
  expect(comparable(written)).toBe(comparable(trackRecord(bugs, results, found)))
})
