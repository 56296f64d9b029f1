/**
 * `npm run bench -- sqlite redis`: acquire and release through the whole library, next to the raw statements of the
 * same engine, and next to other libraries, in the same run.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { parseArgs } from 'node:util'
import { chartOf } from './chart.ts'
import { describeMachine } from './machine.ts'
import { type Report, reportAsMarkdown, reportInWords } from './report.ts'
import { runSubject, type SubjectResult } from './run.ts'
import type { SubjectSource } from './subject.ts'

const available = readdirSync(join(import.meta.dirname, 'subjects')).map((file) => basename(file, '.ts'))

const usualSeconds = 1

const usage = `npm run bench -- [options] backend…

Pairs of acquire and release a second, one after another and many at once, and hand-overs under contention,
next to the raw statements in the same run. Backends: ${available.join(', ')}.

  --seconds 1      how long each measurement lasts (default: 1, or what suits the number of contenders)
  --rounds 5       how often; medians are reported
  --folder path    where files are made (default: the system's temporary folder)
  --save           also write bench/results/<backend>.md, .json and .svg
  --json           print JSON instead of tables
  --help           this text`

const { names, rounds, seconds, parent, save, json } = readOptions()
// Before there is anything to clean up, so that no moment is too early to be interrupted.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => process.exit(130))
const folder = mkdtempSync(join(parent, 'holdfast-bench-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }))

const subjects: SubjectResult[] = []
for (const name of names) {
  const { subject: source } = (await import(`./subjects/${name}.ts`)) as { subject: SubjectSource }
  const subject = typeof source === 'function' ? await source() : source
  try {
    const effort = { rounds, seconds: seconds ?? subject.seconds ?? usualSeconds }
    subjects.push(await runSubject(name, subject, folder, effort, showProgress))
  } finally {
    await subject.close?.()
  }
}
endProgress()

const report: Report = { machine: describeMachine(folder), subjects }
console.log(json ? JSON.stringify(report, null, 2) : reportInWords(report))
if (save) saveEach(report)

function saveEach({ subjects, machine }: Report): void {
  const results = join(import.meta.dirname, 'results')
  mkdirSync(results, { recursive: true })
  for (const subject of subjects) {
    const own: Report = { machine, subjects: [subject] }
    writeFileSync(join(results, `${subject.name}.md`), reportAsMarkdown(own))
    writeFileSync(join(results, `${subject.name}.json`), `${JSON.stringify(own, null, 2)}\n`)
    writeFileSync(join(results, `${subject.name}.svg`), chartOf(subject, machine))
    console.error(`Saved bench/results/${subject.name}.md, .json and .svg.`)
  }
}

function showProgress(what: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\x1b[K${what}` : `${what}\n`)
}

function endProgress(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
}

function readOptions() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        seconds: { type: 'string' },
        rounds: { type: 'string', default: '5' },
        folder: { type: 'string', default: tmpdir() },
        save: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    })
    if (values.help) {
      console.log(usage)
      process.exit(0)
    }
    const unknown = positionals.filter((name) => !available.includes(name))
    if (unknown.length > 0)
      throw new Error(`There is no ${unknown.join(', ')}; there are: ${available.join(', ')}.`)
    if (positionals.length === 0) throw new Error(`Name at least one backend: ${available.join(', ')}.`)
    const seconds = values.seconds === undefined ? undefined : positive('seconds', values.seconds)
    const rounds = Math.ceil(positive('rounds', values.rounds))
    const names = [...new Set(positionals)]
    return { names, rounds, seconds, parent: values.folder, save: values.save, json: values.json }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}

function positive(option: string, text: string): number {
  const value = Number(text)
  if (!(value > 0 && value < 3_600)) throw new Error(`--${option} must be a positive number, not ${text}.`)
  return value
}
