/** The bank's own promises, without planting anything: quick, so that an edit that no longer fits is found at once. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { bugs } from './bank.ts'
import { edited } from './bug.ts'
import { plantedSchema, schemaBugs } from './schemas.ts'
import { sourceBugs } from './sources/index.ts'

const textOf = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')

test('no two bugs have one name, and each has a check that must find it', () => {
  const names = bugs.map((bug) => ('id' in bug ? bug.id : bug.what))
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([])
  expect(bugs.filter(({ foundBy }) => Object.keys(foundBy).length === 0)).toEqual([])
})

test.each(sourceBugs)('the edits of $id fit the sources', ({ edits }) => {
  for (const file of new Set(edits.map((edit) => edit.file)))
    edited(
      textOf(file),
      edits.filter((edit) => edit.file === file),
    )
})

test.each(schemaBugs)('the edits of $id fit the schema, and a test plants them', ({ id, foundBy }) => {
  expect(plantedSchema(id).schemaSql).not.toBe('')
  expect(textOf(foundBy.test ?? '')).toContain(`plantedSchema('${id}')`)
})

test('every guarantee has a bug that the unit tests or the suite find by its number', () => {
  const found = bugs.flatMap(({ foundBy }) => [foundBy.units?.name, ...(foundBy.suite?.split(' ') ?? [])])
  const guarantees = Array.from({ length: 13 }, (_, index) => `G${index + 1}`)
  expect(guarantees.filter((guarantee) => !found.includes(guarantee))).toEqual([])
})
