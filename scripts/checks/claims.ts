// What the documents claim against the tests that passed.
//
// - Every guarantee has a passed test that carries its number, and docs/guarantees.md cites one for each.
// - A citation is code that starts with a number of a guarantee or trap: `G3 a blocked event loop …`.
// - Every cell of docs/traps.data.ts is answered, and the tests that it names passed.
// - docs/traps.md is what its generator writes.

import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type Column, columns, lastGuarantee, type TrapSection, trapNumbers } from '../docs/trap-types.ts'
import { renderTraps } from '../docs/traps.ts'
import { type Complaint, finish } from '../lib/report.ts'
import { pathFrom, root, testReport } from '../lib/repository.ts'

export interface PassedTest {
  /** The titles of the describe blocks, then the test's own. */
  readonly name: string
  readonly file: string
}

/** The part of the runner's JSON report that is used here. */
interface Report {
  testResults: {
    name: string
    assertionResults: { ancestorTitles: string[]; title: string; status: string }[]
  }[]
}

export function passedTests(report: Report, folder: string): PassedTest[] {
  return report.testResults.flatMap(({ name: file, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === 'passed')
      .map(({ ancestorTitles, title }) => ({
        name: [...ancestorTitles, title].join(' '),
        file: pathFrom(folder, file),
      })),
  )
}

export function checkGuarantees(guide: string, passed: readonly PassedTest[]): Complaint[] {
  const file = 'docs/guarantees.md'
  const complaints: Complaint[] = []
  const cited: string[] = []
  for (const [index, line] of guide.split('\n').entries()) {
    for (const [, title = ''] of line.matchAll(/`([GT]\d+ [^`]+)`/g)) {
      cited.push(title)
      if (!passed.some(({ name }) => name.includes(title))) {
        complaints.push({ file, line: index + 1, message: `no test passed that is called "${title}"` })
      }
    }
  }
  for (const id of numbered('G', lastGuarantee)) {
    if (!passed.some(({ name }) => hasWord(name, id))) {
      complaints.push({ file, message: `no test passed whose name contains ${id}` })
    }
    if (!cited.some((title) => hasWord(title, id))) {
      complaints.push({ file, message: `cites no test for ${id}` })
    }
  }
  return complaints
}

export function checkTraps(
  sections: readonly TrapSection[],
  page: string,
  passed: readonly PassedTest[],
): Complaint[] {
  const file = 'docs/traps.data.ts'
  const complaints: Complaint[] = []
  const traps = sections.flatMap((section) => section.traps)
  const ids = traps.map(({ id }) => id).join(' ')
  const expected = trapNumbers.map((number) => `T${number}`).join(' ')
  if (ids !== expected) complaints.push({ file, message: `must list ${expected} in order, lists: ${ids}` })
  for (const trap of traps) {
    for (const column of columns) {
      const cell = trap[column]
      const answer = 'test' in cell ? cell.test : 'later' in cell ? String(cell.later) : cell.reason
      if (answer.trim() === '') {
        complaints.push({ file, message: `${trap.id} ${column}: neither a test nor a reason` })
      } else if ('test' in cell && !passed.some((test) => shows(test, trap.id, column, cell.test))) {
        const where = isBackend(column) ? ` and names ${column} in its name or path` : ''
        const message = `${trap.id} ${column}: no test passed that contains ${trap.id} and "${cell.test}"${where}`
        complaints.push({ file, message })
      }
    }
  }
  if (page !== renderTraps(sections)) {
    complaints.push({ file: 'docs/traps.md', message: 'differs from its data; run npm run docs:traps' })
  }
  return complaints
}

/** The conformance suite runs the same titles for every backend, so a backend's cell wants its own run. */
function shows({ name, file }: PassedTest, id: string, column: Column, text: string): boolean {
  if (!hasWord(name, id) || !name.includes(text)) return false
  return !isBackend(column) || namesBackend(name, column) || namesBackend(file, column)
}

/** A test of postgres-advisory shows nothing about postgres. */
function namesBackend(text: string, column: Column): boolean {
  const longer = columns.filter((other) => other !== column && other.startsWith(column))
  return hasWord(
    longer.reduce((rest, other) => rest.replaceAll(other, ''), text),
    column,
  )
}

function isBackend(column: Column): boolean {
  return column !== 'core' && column !== 'later'
}

function hasWord(text: string, word: string): boolean {
  return new RegExp(`\\b${word}\\b`).test(text)
}

function numbered(letter: string, last: number): string[] {
  return Array.from({ length: last }, (_, index) => `${letter}${index + 1}`)
}

function readOrEmpty(path: string): string {
  return statSync(path, { throwIfNoEntry: false }) ? readFileSync(path, 'utf8') : ''
}

if (import.meta.main) {
  const text = readOrEmpty(testReport)
  if (text === '') {
    console.error('claims: there is no test report; a full `npm test` writes it')
    process.exit(1)
  }
  const passed = passedTests(JSON.parse(text), root)
  const { sections } = await import('../../docs/traps.data.ts')
  const complaints = [
    ...checkGuarantees(readOrEmpty(join(root, 'docs/guarantees.md')), passed),
    ...checkTraps(sections, readOrEmpty(join(root, 'docs/traps.md')), passed),
  ]
  const traps = `${trapNumbers.length} traps`
  finish(
    'claims',
    complaints,
    `${lastGuarantee} guarantees and ${traps} agree with ${passed.length} passed tests`,
  )
}
