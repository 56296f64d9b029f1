// `npm run size`: how large the library is, and how much of it one lock passes through.
//
//   lines      of .ts, .lua and .sql files in packages/holdfast/src, without tests and without testing/
//   functions  that one acquire and one release of a free lock call, and the files in which they are, on real servers
//
// The targets are goals: nothing fails when one is exceeded. `--json` prints everything for comparison.

import { readdirSync, readFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { pathFrom, root } from './lib/repository.ts'

const usage = `npm run size [-- options]

Lines per layer and backend of the library, and the functions that one uncontended acquire and release call.

  --no-calls   lines only: needs no servers
  --json       print JSON instead of tables
  --help       this text`

const library = join(root, 'packages/holdfast/src')

const targets: Readonly<Record<string, number>> = {
  'whole library': 27_000,
  clients: 2_800,
  guards: 3_000,
  kit: 1_800,
  lockfree: 1_900,
  'engines/etcd/locks': 1_200,
  'engines/memory': 2_000,
  'engines/postgres/locks': 2_000,
  'engines/postgres/advisory': 1_600,
  'engines/redis/locks': 2_000,
  'engines/redis/redlock': 2_000,
  'engines/sqlite/locks': 2_000,
}
const mostFunctions: Readonly<Record<string, number>> = { redis: 90, postgres: 90 }

interface Part {
  readonly name: string
  readonly files: number
  readonly lines: number
  readonly target?: number
}

interface Calls {
  readonly backend: string
  readonly what: 'acquire' | 'release'
  readonly files: number
  readonly functions: number
  readonly calls: number
  readonly target?: number
}

const { values } = parseArgs({
  options: {
    calls: { type: 'boolean', default: true },
    json: { type: 'boolean' },
    help: { type: 'boolean' },
  },
  allowNegative: true,
})
if (values.help) console.log(usage)
else {
  const parts = measureParts()
  const calls = values.calls ? await measureCalls() : []
  console.log(values.json ? JSON.stringify({ parts, calls }, null, 2) : inWords(parts, calls))
}

function measureParts(): Part[] {
  const sums = new Map<string, { files: number; lines: number }>()
  for (const entry of readdirSync(library, { recursive: true, withFileTypes: true })) {
    const path = pathFrom(library, join(entry.parentPath, entry.name))
    if (!entry.isFile() || !/\.(ts|lua|sql)$/.test(path)) continue
    if (/\.(test|test-d)\.ts$/.test(path) || path.startsWith('testing/')) continue
    const lines = readFileSync(join(library, path), 'utf8').split('\n').length - 1
    for (const name of ['whole library', partOf(path)]) {
      const sum = sums.get(name) ?? { files: 0, lines: 0 }
      sums.set(name, { files: sum.files + 1, lines: sum.lines + lines })
    }
  }
  return [...sums]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, sum]) => ({ name, ...sum, ...(targets[name] !== undefined && { target: targets[name] }) }))
}

function partOf(path: string): string {
  const [layer = '', folder = ''] = path.split('/')
  if (!path.includes('/')) return 'entry points'
  return layer === 'backends' ? `backends/${folder}` : layer
}

async function measureCalls(): Promise<Calls[]> {
  const { openForCounting } = await import('./lib/counted-lockers.ts')
  const found: Calls[] = []
  for (const backend of ['memory', 'sqlite', 'redis', 'postgres']) {
    await using opened = await openForCounting(backend)
    const acquire = () => opened.locker.acquire('size/one')
    for (let turn = 0; turn < 5; turn++) await (await acquire()).release()
    const [lease, ofAcquire] = await countCalls(acquire)
    const [, ofRelease] = await countCalls(() => lease.release())
    found.push({ backend, what: 'acquire', ...ofAcquire, ...targetOf(backend) })
    found.push({ backend, what: 'release', ...ofRelease })
  }
  return found
}

function targetOf(backend: string): { readonly target?: number } {
  const target = mostFunctions[backend]
  return target === undefined ? {} : { target }
}

async function countCalls<T>(
  run: () => Promise<T>,
): Promise<[T, Pick<Calls, 'files' | 'functions' | 'calls'>]> {
  const session = new Session()
  session.connect()
  try {
    await session.post('Profiler.enable')
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
    await session.post('Profiler.takePreciseCoverage')
    const value = await run()
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const ours = result.filter(({ url }) => url.includes('/packages/holdfast/src/'))
    const called = ours.map(({ functions }) =>
      functions.map(({ ranges }) => ranges[0]?.count ?? 0).filter((count) => count > 0),
    )
    const counts = called.flat()
    return [
      value,
      {
        files: called.filter((own) => own.length > 0).length,
        functions: counts.length,
        calls: counts.reduce((sum, count) => sum + count, 0),
      },
    ]
  } finally {
    session.disconnect()
  }
}

function inWords(parts: readonly Part[], calls: readonly Calls[]): string {
  const number = (value: number) => value.toLocaleString('en')
  const goal = (value: number, target: number | undefined) =>
    target === undefined ? '' : `  at most ${number(target)}${value > target ? ': too many' : ''}`
  const lines = parts.map(
    ({ name, files, lines, target }) =>
      `  ${name.padEnd(28)}${number(lines).padStart(8)} lines in ${String(files).padStart(3)} files${goal(lines, target)}`,
  )
  const called = calls.map(
    ({ backend, what, files, functions, calls: count, target }) =>
      `  ${`${backend}, ${what}`.padEnd(28)}${String(functions).padStart(8)} functions in ${String(files).padStart(3)} files, ` +
      `${count} calls${goal(functions, target)}`,
  )
  const title = '\n\nOne acquire of a free lock and its release pass through\n\n'
  return (
    ['Lines without tests and testing/', '', ...lines].join('\n') +
    (called.length > 0 ? title + called.join('\n') : '')
  )
}
