/** What the bank promises, without planting anything: quick, so that an edit that no longer fits is found at once. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { backendBugs } from './backends/index.ts'
import { edited } from './bug.ts'
import { sourceBugs } from './sources/index.ts'

const textOf = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')

test('no two bugs have one name, and each has a check that must find it', () => {
  const names = [...sourceBugs.map(({ id }) => id), ...backendBugs.map(({ what }) => what)]
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([])
  const unchecked = [...sourceBugs, ...backendBugs].filter(({ foundBy }) => Object.keys(foundBy).length === 0)
  expect(unchecked).toEqual([])
})

test.each(sourceBugs)('the edits of $id fit the sources', ({ edits }) => {
  for (const file of new Set(edits.map((edit) => edit.file)))
    edited(
      textOf(file),
      edits.filter((edit) => edit.file === file),
    )
})

test('every guarantee has a bug that the unit tests or the suite find by its number', () => {
  const found = sourceBugs.flatMap(({ foundBy }) => [
    foundBy.units?.name,
    ...(foundBy.suite?.split(' ') ?? []),
  ])
  const guarantees = Array.from({ length: 13 }, (_, index) => `G${index + 1}`)
  expect(guarantees.filter((guarantee) => !found.includes(guarantee))).toEqual([])
})
