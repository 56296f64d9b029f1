import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { type Record, remaining, tableOf, updated, withTable } from '../../lab/versions/record.ts'
import { versions } from '../../lab/versions/versions.ts'
import { filesUnder, library, pathFrom, root } from '../lib/repository.ts'

const record: Record = JSON.parse(readFileSync(join(root, 'lab/versions/record.json'), 'utf8'))
const document = readFileSync(join(root, 'docs/versions.md'), 'utf8')
const passed = { version: '17.1', suites: 'guard', passed: 1_234, date: '2026-01-02', sources: 'abc' }

test('docs/versions.md has the table of the record: npm run test:versions -- --record', () => {
  expect(document).toBe(withTable(document, tableOf(versions, record)))
})

test('the record has passed tests of every version that there is, in their order', () => {
  expect(Object.keys(record)).toEqual(versions.map(({ id }) => id))
  for (const { id, number } of versions) {
    expect(`${record[id]?.version}.`).toMatch(new RegExp(`^${number && `${number}\\.`}`))
    expect(record[id]?.passed).toBeGreaterThan(0)
  }
})

test('every path of a version has tests', () => {
  const folders = [library, join(root, 'scripts')]
  const tests = folders.flatMap((folder) => filesUnder(folder, (path) => path.endsWith('.test.ts')))
  expect(new Set(versions.map(({ id }) => id)).size).toBe(versions.length)
  for (const path of versions.flatMap(({ paths }) => paths))
    expect(tests.filter((each) => pathFrom(root, each).startsWith(path)).length, path).toBeGreaterThan(0)
})

test('what has passed with these sources is not run again', () => {
  const some = versions.slice(0, 3)
  const [first, second, third] = some
  const here = { [first?.id ?? '']: passed }
  const there = { [second?.id ?? '']: passed }
  expect(remaining(some, 'abc', here, there)).toEqual([third])
  expect(remaining(some, 'other', here, there)).toEqual(some)
  // Changes that are in no commit may be others the next time.
  expect(remaining(some, null, here, there)).toEqual(some)
})

test('the record takes over what passed with these sources, and leaves the rest as it is', () => {
  const [first, second] = versions
  const results = { [first?.id ?? '']: passed, gone: passed, [second?.id ?? '']: passed }
  const older = { ...passed, version: '17.0' }
  const before = { gone: passed, [second?.id ?? '']: older }
  const after = { [first?.id ?? '']: passed, [second?.id ?? '']: passed }
  expect(updated(versions, 'abc', before, results)).toEqual(after)
  expect(updated(versions, 'other', before, results)).toEqual({ [second?.id ?? '']: older })
})

test('the table has a row for each version, and says which is not recorded', () => {
  const [first, second] = versions
  const table = tableOf(versions.slice(0, 2), { [second?.id ?? '']: passed })
  expect(table.split('\n').slice(2, 4)).toEqual([
    `| ${first?.title} | not recorded |  |  |  |`,
    `| ${second?.title} | 17.1 | guard | 1,234 | 2026-01-02 |`,
  ])
  expect(() => withTable('no marks', table)).toThrow('no place')
})
