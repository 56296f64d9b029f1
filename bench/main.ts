/**
 * `npm run bench -- sqlite redis`: acquire and release through the whole library, next to the raw statements of the
 * same engine, and next to other libraries, in the same run.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildCommit, commitOf, hasChanges, ownPackage } from './against/checkout.ts'
import { type AgainstReport, againstInWords, type Versions } from './against/report.ts'
import { type AgainstResult, type Packages, runAgainst } from './against/run.ts'
import { overall, type Verdict } from './against/statistics.ts'
import { available, hasServers, startBackend } from './backend.ts'
import { chartOf } from './chart.ts'
import { type CostReport, costAsMarkdown, costInWords } from './cost/report.ts'
import { type CostResult, runCost, verdictOf } from './cost/run.ts'
import { growthChartOf } from './growth/chart.ts'
import { type GrowthReport, growthAsMarkdown, growthInWords } from './growth/report.ts'
import { type GrowthResult, runGrowth } from './growth/run.ts'
import { runHttpGuard } from './http-guard/run.ts'
import { describeMachine } from './machine.ts'
import { type Options, readOptions, usageOf } from './options.ts'
import {
  type RecipesReport,
  type RecipesResult,
  recipesAsMarkdown,
  recipesInWords,
  runRecipes,
} from './recipes/run.ts'
import { type Report, reportAsMarkdown, reportInWords } from './report.ts'
import { runSubject, type SubjectResult } from './run.ts'

const usualSeconds = 1
const usualSecondsAgainst = 0.25
const usualSecondsOfGrowth = 0.5
const usualSecondsOfCost = 0.3
const exitCodes: Record<Verdict, number> = { pass: 0, fail: 1, void: 3 }

// It has neither backends nor options.
if (process.argv[2] === 'http-guard') {
  await runHttpGuard(console.log)
  process.exit()
}
const options = await optionsOrExit()
// Before there is anything to clean up, so that no moment is too early to be interrupted.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => process.exit(130))
const folder = mkdtempSync(join(options.folder, 'holdfast-bench-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }))

if (options.growth) await measureGrowth(options)
else if (options.recipes) await measureRecipes(options)
else if (options.cost) await measureCost(options)
else if (options.against === undefined) await compareWithOthers(options)
else await compareWithCommit(options, options.against)

async function compareWithOthers(options: Options): Promise<void> {
  const { names, rounds, seconds, rttMs, json, save } = options
  const subjects: SubjectResult[] = []
  for (const name of names) {
    const backend = await startBackend(name, rttMs)
    try {
      const subject = backend.subject(await backend.place('bench'))
      const effort = { rounds, seconds: seconds ?? subject.seconds ?? usualSeconds }
      const remarks = [...backend.remarks, ...(subject.remarks ?? [])]
      subjects.push(
        await runSubject(called(name, rttMs), { ...subject, remarks }, folder, effort, showProgress),
      )
    } finally {
      await backend.stop()
    }
  }
  endProgress()
  const report: Report = { machine: describeMachine(folder), subjects }
  console.log(json ? JSON.stringify(report, null, 2) : reportInWords(report))
  if (save) saveEach(report)
}

async function compareWithCommit(options: Options, ref: string): Promise<void> {
  const { names, rounds, rttMs, only, json, seconds = usualSecondsAgainst } = options
  const { versions, packages } = await bothVersions(ref)
  const subjects: AgainstResult[] = []
  for (const name of names)
    subjects.push(
      await runAgainst(name, packages, folder, { rounds, seconds }, showProgress, { rttMs, only }),
    )
  endProgress()
  const report: AgainstReport = {
    machine: describeMachine(folder),
    ...versions,
    subjects,
    verdict: overall(subjects.flatMap(({ workloads }) => workloads.map(({ verdict }) => verdict))),
  }
  console.log(json ? JSON.stringify(report, null, 2) : againstInWords(report))
  process.exitCode = exitCodes[report.verdict]
}

async function bothVersions(ref: string): Promise<{ versions: Versions; packages: Packages }> {
  const old = await orExit(() => commitOf(ref))
  showProgress(`building ${old.id}`)
  const packages = { new: ownPackage, old: await buildCommit(old, join(folder, 'commit')) }
  return { versions: { new: { ...commitOf('HEAD'), hasChanges: hasChanges() }, old }, packages }
}

async function measureCost(options: Options): Promise<void> {
  const { names, rounds, rttMs, only, json, save, against, seconds = usualSecondsOfCost } = options
  const both = against === undefined ? undefined : await bothVersions(against)
  const packages = both?.packages ?? { new: ownPackage }
  const profiles = options.profile ? join(import.meta.dirname, 'profiles') : undefined
  const results: CostResult[] = []
  for (const name of names)
    results.push(
      await runCost(name, packages, folder, { rounds, seconds, rttMs, only, profiles }, showProgress),
    )
  endProgress()
  const machine = describeMachine(folder)
  const report: CostReport = {
    machine,
    results,
    ...(both && { versions: both.versions, verdict: verdictOf(results) }),
  }
  console.log(json ? JSON.stringify(report, null, 2) : costInWords(report))
  for (const result of save ? results : []) {
    const own: CostReport = { machine, results: [result] }
    saveAs(called(`cost-${result.name}`, rttMs), costAsMarkdown(own), own)
  }
  if (report.verdict !== undefined) process.exitCode = exitCodes[report.verdict]
}

async function measureGrowth(options: Options): Promise<void> {
  const { names, sizes, json, save, seconds = usualSecondsOfGrowth } = options
  const growth: GrowthResult[] = []
  for (const name of names) growth.push(await runGrowth(name, folder, { sizes, seconds }, showProgress))
  endProgress()
  const machine = describeMachine(folder)
  const report: GrowthReport = { machine, growth }
  if (save)
    for (const result of growth) {
      const own: GrowthReport = { machine, growth: [result] }
      saveAs(`growth-${result.name}`, growthAsMarkdown(own), own, growthChartOf(result, machine))
    }
  // Thousands of waiters may still be ending: this process does not wait for them.
  const text = json ? JSON.stringify(report, null, 2) : growthInWords(report)
  process.stdout.write(`${text}\n`, () => process.exit())
}

async function measureRecipes({ names, only, json, save }: Options): Promise<void> {
  const results: RecipesResult[] = []
  for (const name of names) results.push(await runRecipes(name, folder, only, showProgress))
  endProgress()
  const report: RecipesReport = { machine: describeMachine(folder), results }
  console.log(json ? JSON.stringify(report, null, 2) : recipesInWords(report))
  if (save) saveAs('recipes', recipesAsMarkdown(report), report)
}

function saveEach({ subjects, machine }: Report): void {
  for (const subject of subjects) {
    const own: Report = { machine, subjects: [subject] }
    saveAs(subject.name, reportAsMarkdown(own), own, chartOf(subject, machine))
  }
}

/** Results with a network are saved beside those without. */
function called(name: string, rttMs: number | undefined): string {
  return rttMs === undefined ? name : `${name}-rtt-${rttMs}`
}

function saveAs(name: string, markdown: string, report: object, chart?: string): void {
  const results = join(import.meta.dirname, 'results')
  mkdirSync(results, { recursive: true })
  writeFileSync(join(results, `${name}.md`), markdown)
  writeFileSync(join(results, `${name}.json`), `${JSON.stringify(report, null, 2)}\n`)
  if (chart !== undefined) writeFileSync(join(results, `${name}.svg`), chart)
  console.error(`Saved bench/results/${name}.md, .json${chart === undefined ? '' : ', .svg'}.`)
}

function showProgress(what: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\x1b[K${what}` : `${what}\n`)
}

function endProgress(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
}

async function optionsOrExit(): Promise<Options> {
  const read = await orExit(async () => {
    const options = readOptions(process.argv.slice(2), available)
    if (options === 'help' || options.rttMs === undefined) return options
    for (const name of options.names)
      if (!(await hasServers(name))) throw new Error(`--rtt is for servers, and ${name} has none.`)
    return options
  })
  if (read !== 'help') return read
  console.log(usageOf(available))
  process.exit(0)
}

/** Turns an option of the command line that cannot be met into a message and an exit code. */
async function orExit<T>(action: () => T | Promise<T>): Promise<T> {
  try {
    return await action()
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usageOf(available)}`)
    process.exit(2)
  }
}
