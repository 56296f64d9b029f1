import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { root } from '../lib/repository.ts'
import { ceilings, checkSizes, isMeasured, measureParts, partOf } from '../lib/sizes.ts'

const messages = (...args: Parameters<typeof checkSizes>) => checkSizes(...args).map(({ message }) => message)

test('no part of the packages has more lines than its ceiling', () => {
  expect(messages(measureParts())).toEqual([])
})

test('the ADR about ceilings says of each that it lists what it is now', () => {
  const text = readFileSync(join(root, 'docs/adr/0027-ceilings-of-the-house.md'), 'utf8')
  const rows = [...text.matchAll(/^\| `([^`]+)` \| [\d,]* \| ([\d,]+) \|/gm)]
  expect(rows.length).toBeGreaterThan(20)
  for (const [, part = '', now = ''] of rows)
    expect([part, Number(now.replaceAll(',', ''))]).toEqual([part, ceilings[part]])
})

test('a part above its ceiling, without one, or with one that is left over is named', () => {
  const parts = [
    { name: 'kit', files: 2, lines: 101 },
    { name: 'locker', files: 1, lines: 100 },
    { name: 'base', files: 1, lines: 1 },
  ]
  expect(messages(parts, { kit: 100, locker: 100, gone: 5 })).toEqual([
    'kit has 101 lines of 100: say why in an ADR and raise it',
    'base has 1 lines and no ceiling',
    'gone has a ceiling, and is not there',
  ])
})

test('every source file counts for one part, and tests for none', () => {
  expect(partOf('open.ts')).toBe('entry points')
  expect(partOf('recipes/election/term.ts')).toBe('recipes')
  expect(partOf('engines/memory/engine.ts')).toBe('engines/memory')
  expect(partOf('engines/redis/locks/scripts/library.ts')).toBe('engines/redis/locks')
  expect(['a.test.ts', 'a.test-d.ts', 'testing/index.ts', 'a.md'].filter(isMeasured)).toEqual([])
  expect(['a.ts', 'a/b.lua', 'c.sql'].filter(isMeasured)).toHaveLength(3)
})
