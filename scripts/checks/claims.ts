// Claims of the documents, against the tests that passed.
//
// - Every guarantee has a passed test that carries its number, and docs/guarantees.md cites one for each.
// - A citation is code that starts with a number of a guarantee or trap: `G3 a blocked event loop …`.
// - Every trap of docs/traps.data.ts has an answer for core and for each backend, and the tests that it names passed,
//   those of a backend for that backend.
// - Every case of the conformance suite was played on every backend, with one client library of its engine.
// - docs/traps.md is what its generator writes.

import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { backendCases } from '../../packages/holdfast/src/testing/describe-backend.ts'
import {
  type BackendName,
  backends,
  type Cell,
  lastGuarantee,
  type Trap,
  type TrapSection,
  trapNumbers,
} from '../docs/trap-types.ts'
import { renderTraps } from '../docs/traps.ts'
import { backendsOf } from '../lib/backends.ts'
import { type Complaint, finish } from '../lib/report.ts'
import { pathFrom, root, testReport } from '../lib/repository.ts'

/**
 * The names of the runs of `describeBackend` that together play the whole suite on a backend, or on a Redis Cluster, with one
 * client library.
 */
const wholeRuns: Readonly<Record<BackendName | 'redis-cluster', readonly string[]>> = {
  memory: ['memory'],
  sqlite: ['sqlite'],
  redis: ['redis with ioredis 6, clock-backed'],
  'redis-cluster': ['redis cluster with ioredis 6'],
  redlock: ['redlock with ioredis 6'],
  // A case that restarts the server is played apart from those that share one.
  postgres: ['postgres with pg', 'postgres, restarted'],
  'postgres-advisory': ['postgres-advisory with pg', 'postgres-advisory that is restarted'],
  etcd: ['etcd', 'etcd, alone', 'etcd, restarted'],
  zookeeper: ['zookeeper', 'zookeeper, alone', 'zookeeper, restarted'],
  consul: ['consul', 'consul, alone', 'consul, restarted'],
}

const backendFolders = backendsOf(root)

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
    for (const message of checkAnswers(trap, passed)) complaints.push({ file, message })
  }
  if (page !== renderTraps(sections)) {
    complaints.push({ file: 'docs/traps.md', message: 'differs from its data; run npm run docs:traps' })
  }
  return complaints
}

/** A run that was narrowed to some cases is not called "X conforms", and counts for nothing here. */
export function checkSuites(
  rules: readonly string[],
  passed: readonly PassedTest[],
  runs: Readonly<Record<string, readonly string[]>> = wholeRuns,
): Complaint[] {
  return Object.entries(runs).flatMap(([backend, names]) => {
    const ofRuns = passed.filter(({ name }) => names.some((run) => ` ${name}`.includes(` ${run} conforms `)))
    const played = new Set(ofRuns.map(({ name }) => / conforms .*?\b(C\d+)\b/.exec(name)?.[1]))
    const left = rules.filter((rule) => !played.has(rule))
    if (left.length === 0) return []
    const examples = left.slice(0, 5).join(', ') + (left.length > 5 ? ', …' : '')
    const message = `${left.length} of ${rules.length} cases did not pass with ${names.join(', ')}: ${examples}`
    return [{ file: `packages/holdfast/test/conformance/${backend}.test.ts`, message }]
  })
}

function checkAnswers(trap: Trap, passed: readonly PassedTest[]): string[] {
  const check = (part: string, cell: Cell | undefined, backend?: BackendName): string[] => {
    const answer =
      cell === undefined ? '' : 'test' in cell ? cell.test : 'reason' in cell ? cell.reason : 'later'
    if (cell === undefined || answer.trim() === '') return [`${trap.id} ${part}: neither a test nor a reason`]
    if (!('test' in cell) || passed.some((test) => shows(test, trap.id, cell.test, backend))) return []
    const where = backend === undefined ? '' : ` and names ${backend} in its name or path`
    return [`${trap.id} ${part}: no test passed that contains ${trap.id} and "${cell.test}"${where}`]
  }
  return [
    ...check('core', trap.core),
    ...backends.flatMap((backend) => {
      const cell = trap[backend] ?? trap.backends
      if (cell === 'as core') return []
      return check(backend, cell === 'each its own' ? undefined : cell, backend)
    }),
    ...(trap.later === undefined ? [] : check('later', trap.later)),
  ]
}

/**
 * The conformance suite runs the same titles for every backend, so a backend's answer wants its own run. A rule that the
 * backend skips is reported without the numbers of its traps, and so shows nothing.
 */
function shows({ name, file }: PassedTest, id: string, text: string, backend?: BackendName): boolean {
  if (!hasWord(name, id) || !name.includes(text)) return false
  return backend === undefined || namesBackend(name, backend) || namesBackend(inWords(file), backend)
}

/** A backend's folder stands for its name: tests in `engines/postgres/advisory` are those of postgres-advisory. */
function inWords(file: string): string {
  return backendFolders.find(({ folder }) => file.includes(`/src/${folder}/`))?.name ?? file
}

/** A test of postgres-advisory shows nothing about postgres. */
function namesBackend(text: string, backend: BackendName): boolean {
  const longer = backends.filter((other) => other !== backend && other.startsWith(backend))
  return hasWord(
    longer.reduce((rest, other) => rest.replaceAll(other, ''), text),
    backend,
  )
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
    ...checkSuites(
      backendCases().map(({ rule }) => rule),
      passed,
    ),
  ]
  const traps = `${trapNumbers.length} traps`
  finish(
    'claims',
    complaints,
    `${lastGuarantee} guarantees and ${traps} agree with ${passed.length} passed tests, and the conformance suite was whole on ${backends.length} backends`,
  )
}
