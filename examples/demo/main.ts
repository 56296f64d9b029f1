/**
 * `npm run demo`: why a lock needs a fence. The same workers, the same lease and the same pause, once without and
 * once with a guard on what they write to.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { audit } from './audit.ts'
import { Crew, workerNames } from './crew.ts'
import { nowMs, type RoundEvent } from './events.ts'
import { type Round, runRound } from './round.ts'
import { isColoured, LiveArea, paint, terminalWidth } from './terminal.ts'
import { drawTimeline } from './timeline.ts'
import { account, conclusion, introduction, roundTitle, statusOf } from './words.ts'

const usage = `npm run demo [-- options]

Three processes take turns on a SQLite file. One is stopped past the end of its lease and then goes on.
Shown twice: without and with a guard on what they write to.

  --json    print the result as JSON instead
  --help    this text

Exits with 0 if the unguarded ledger lost an update and the guarded one lost nothing.`

const controlTries = 3
const limitMs = 28_000

const { json } = readOptions()
if (process.platform === 'win32') {
  console.error(
    'The demo stops a process with SIGSTOP, which Windows does not have; run it on Linux, macOS or WSL.',
  )
  process.exit(1)
}

// Before there is anything to clean up, so that no moment is too early to be interrupted.
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const)
  process.on(signal, () => process.exit(code))

const crew = new Crew()
const folder = mkdtempSync(join(tmpdir(), 'holdfast-demo-'))
process.on('exit', () => {
  crew.end()
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
})
setTimeout(() => fail('it took too long. The machine may be busy; try again.'), limitMs).unref()

try {
  process.exitCode = (await demo()) ? 0 : 1
} catch (error) {
  fail((error as Error).message)
} finally {
  crew.end()
}

function fail(why: string): never {
  console.error(`\nThe demo could not finish: ${why}`)
  process.exit(1)
}

async function demo(): Promise<boolean> {
  const startedMs = nowMs()
  const width = terminalWidth()
  print(introduction(width, paint))
  const live = new LiveArea()
  if (!json) live.draw(['  Three processes are starting …'])
  await crew.start()
  live.clear()

  let control = await play(false, 1, width)
  const rounds = [control]
  while (audit(control).lost.length === 0 && rounds.length < controlTries) {
    print(['  Nothing was lost this time, so there is nothing to compare with. Once more.', ''])
    control = await play(false, rounds.length + 1, width)
    rounds.push(control)
  }
  const guarded = await play(true, rounds.length + 1, width)
  rounds.push(guarded)

  const passed =
    audit(control).lost.length > 0 &&
    audit(guarded).intact &&
    guarded.events.some(({ kind }) => kind === 'refused')
  print(conclusion(passed, control, guarded, width, paint))
  if (json) console.log(JSON.stringify(resultOf(passed, rounds, nowMs() - startedMs), null, 2))
  return passed
}

async function play(guarded: boolean, number: number, width: number): Promise<Round> {
  let events: readonly RoundEvent[] = []
  const draw = (lost: readonly string[], untilMs: number) => [
    roundTitle(guarded, width, paint),
    '',
    ...drawTimeline(events, { workers: workerNames, width, paint, coloured: isColoured, untilMs, lost }),
    '',
  ]
  const live = new LiveArea()
  const ticker = setInterval(() => {
    if (!json) live.draw([...draw([], nowMs()), `  ${paint('dim', statusOf(events))}`])
  }, 80)
  try {
    const round = await runRound(crew, {
      guarded,
      folder: join(folder, `round-${number}`),
      onEvent: (seen) => {
        events = seen
      },
    })
    live.clear()
    const untilMs = events.at(-1)?.atMs ?? nowMs()
    print([...draw(audit(round).lost, untilMs), ...account(round, width, paint), ''])
    return round
  } finally {
    clearInterval(ticker)
  }
}

function print(lines: readonly string[]): void {
  if (!json) console.log(lines.join('\n'))
}

function resultOf(passed: boolean, rounds: readonly Round[], tookMs: number) {
  return {
    passed,
    tookMs: Math.round(tookMs),
    rounds: rounds.map((round) => {
      const startMs = round.events[0]?.atMs ?? 0
      return {
        guarded: round.guarded,
        ...audit(round),
        ledger: round.lines,
        events: round.events.map((event) => ({ ...event, atMs: Math.round(event.atMs - startMs) })),
      }
    }),
  }
}

function readOptions(): { json: boolean } {
  try {
    const { values } = parseArgs({ options: { json: { type: 'boolean' }, help: { type: 'boolean' } } })
    if (values.help) {
      console.log(usage)
      process.exit(0)
    }
    return { json: values.json ?? false }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
