// `npm run size`: how large the library is, and how much of it one lock passes through.
//
//   lines      of each part, beside the ceiling that scripts/checks/sizes.test.ts holds it to
//   functions  that one acquire and one release of a free lock call, and the files in which they are, on real servers
//
// `--json` prints everything for comparison.

import { Session } from 'node:inspector/promises'
import { parseArgs } from 'node:util'
import { libraryPath } from './lib/repository.ts'
import { ceilings, measureParts, type Part } from './lib/sizes.ts'

const usage = `npm run size [-- options]

Lines of each part of the packages, and the functions that one uncontended acquire and release call.

  --no-calls   lines only: needs no servers
  --list       name the functions, file by file
  --json       print JSON instead of tables
  --help       this text`

interface Calls {
  readonly backend: string
  readonly what: 'acquire' | 'release'
  readonly files: number
  readonly functions: number
  readonly calls: number
  /** `file function`, each once, in the order of the files. */
  readonly called: readonly string[]
}

const { values } = parseArgs({
  options: {
    calls: { type: 'boolean', default: true },
    list: { type: 'boolean' },
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

async function measureCalls(): Promise<Calls[]> {
  const { openForCounting } = await import('./lib/counted-lockers.ts')
  const found: Calls[] = []
  for (const backend of ['memory', 'sqlite', 'redis', 'postgres']) {
    await using opened = await openForCounting(backend)
    const acquire = () => opened.locker.acquire('size/one')
    for (let turn = 0; turn < 5; turn++) await (await acquire()).release()
    const [lease, ofAcquire] = await countCalls(acquire)
    const [, ofRelease] = await countCalls(() => lease.release())
    found.push({ backend, what: 'acquire', ...ofAcquire })
    found.push({ backend, what: 'release', ...ofRelease })
  }
  return found
}

async function countCalls<T>(run: () => Promise<T>): Promise<[T, Omit<Calls, 'backend' | 'what'>]> {
  const session = new Session()
  session.connect()
  try {
    await session.post('Profiler.enable')
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
    await session.post('Profiler.takePreciseCoverage')
    const value = await run()
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const ours = result.filter(({ url }) => url.includes(`/${libraryPath}/src/`))
    const called = ours.flatMap(({ url, functions }) =>
      functions
        .map(({ functionName, ranges }) => ({ url, functionName, count: ranges[0]?.count ?? 0 }))
        .filter(({ count }) => count > 0),
    )
    return [
      value,
      {
        files: new Set(called.map(({ url }) => url)).size,
        functions: called.length,
        calls: called.reduce((sum, { count }) => sum + count, 0),
        called: called.map(
          ({ url, functionName }) =>
            `${url.slice(url.indexOf('/src/') + 5)} ${functionName || '(anonymous)'}`,
        ),
      },
    ]
  } finally {
    session.disconnect()
  }
}

function inWords(parts: readonly Part[], calls: readonly Calls[]): string {
  const number = (value: number) => value.toLocaleString('en')
  const ceiling = (value: number, most: number | undefined) =>
    most === undefined ? '' : `  at most ${number(most)}${value > most ? ': too many' : ''}`
  const lines = parts.map(
    ({ name, files, lines }) =>
      `  ${name.padEnd(28)}${number(lines).padStart(8)} lines in ${String(files).padStart(3)} files${ceiling(lines, ceilings[name])}`,
  )
  const called = calls.map(
    ({ backend, what, files, functions, calls: count, called: names }) =>
      `  ${`${backend}, ${what}`.padEnd(28)}${String(functions).padStart(8)} functions in ${String(files).padStart(3)} files, ` +
      `${count} calls${values.list ? names.map((name) => `\n      ${name}`).join('') : ''}`,
  )
  const title = '\n\nOne acquire of a free lock and its release pass through\n\n'
  return (
    ['Lines without tests and testing/', '', ...lines].join('\n') +
    (called.length > 0 ? title + called.join('\n') : '')
  )
}
