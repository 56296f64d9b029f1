/**
 * Every planted break goes into a copy of the sources of its own; one run of the test runner over all copies then
 * shows which tests turned red where. An unchanged copy runs along: it must stay green, or red would prove nothing.
 */
import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { breaks } from './breaks.ts'

const packageFolder = fileURLToPath(new URL('../..', import.meta.url))
const cacheFolder = fileURLToPath(new URL('../../../../.cache', import.meta.url))
const guarantees = Array.from({ length: 13 }, (_, index) => `G${index + 1}`)

interface Report {
  readonly testResults: readonly {
    readonly name: string
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[]
  }[]
}

let workFolder: string
let failures: Map<string, string[]>
let passes: Map<string, number>

beforeAll(async () => {
  mkdirSync(cacheFolder, { recursive: true })
  workFolder = mkdtempSync(join(cacheFolder, 'breaks-'))
  const unchanged = new Set(breaks.map(({ caughtBy }) => caughtBy))
  for (const testFile of unchanged) copyFor('unchanged', testFile)
  breaks.forEach((planted, index) => {
    const folder = copyFor(`break-${index}`, planted.caughtBy)
    const path = join(folder, 'src', planted.file)
    const source = readFileSync(path, 'utf8')
    if (source.split(planted.find).length !== 2)
      throw new Error(
        `planted break "${planted.what}": the text to replace is not exactly once in ${planted.file}`,
      )
    writeFileSync(
      path,
      source.replace(planted.find, () => planted.replaceBy),
    )
  })
  const report = await runTests(workFolder)
  failures = new Map()
  passes = new Map()
  for (const { name, assertionResults } of report.testResults) {
    const copy = name.slice(workFolder.length + 1).split('/')[0] ?? ''
    for (const { fullName, status } of assertionResults) {
      if (status === 'failed') failures.set(copy, [...(failures.get(copy) ?? []), fullName])
      if (status === 'passed') passes.set(copy, (passes.get(copy) ?? 0) + 1)
    }
  }
}, 240_000)

afterAll(() => rmSync(workFolder, { recursive: true, force: true }))

/** A copy of the package with no tests but the one that is to notice. */
function copyFor(copy: string, testFile: string): string {
  const folder = join(workFolder, copy)
  const isOtherTest = (path: string) => path.endsWith('.test.ts') || path.endsWith('.test-d.ts')
  for (const part of ['src', 'test'])
    cpSync(join(packageFolder, part), join(folder, part), {
      recursive: true,
      filter: (path) => !isOtherTest(path),
    })
  mkdirSync(dirname(join(folder, testFile)), { recursive: true })
  cpSync(join(packageFolder, testFile), join(folder, testFile))
  return folder
}

async function runTests(root: string): Promise<Report> {
  const vitest = fileURLToPath(new URL('../../../../node_modules/vitest/vitest.mjs', import.meta.url))
  const config = fileURLToPath(new URL('vitest.config.ts', import.meta.url))
  const reportPath = join(root, 'report.json')
  const parameters = [
    vitest,
    'run',
    '--root',
    root,
    '--config',
    config,
    '--reporter=json',
    `--outputFile=${reportPath}`,
  ]
  // It is expected to fail; what counts is the report.
  await new Promise<void>((resolve) => execFile(process.execPath, parameters, { cwd: root }, () => resolve()))
  return JSON.parse(readFileSync(reportPath, 'utf8')) as Report
}

test('every guarantee has a planted break', () => {
  const planted = new Set<string>(breaks.map(({ guarantee }) => guarantee))
  expect(guarantees.filter((guarantee) => !planted.has(guarantee))).toEqual([])
})

test('without a break everything is green', () => {
  expect(failures.get('unchanged') ?? []).toEqual([])
  expect(passes.get('unchanged')).toBeGreaterThan(50)
})

describe('each break turns a test of its guarantee red', () => {
  test.each(breaks.map((planted, index) => ({ ...planted, index })))(
    'break of $guarantee: $what',
    ({ index, guarantee }) => {
      const red = failures.get(`break-${index}`) ?? []
      const ofTheGuarantee = red.filter((name) => new RegExp(`\\b${guarantee}\\b`).test(name))
      expect(ofTheGuarantee, `red: ${JSON.stringify(red)}`).not.toEqual([])
    },
  )
})
