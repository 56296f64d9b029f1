/**
 * A scheduled report on three replicas, one of which is killed after it has written the report and before that is recorded.
 * The tick starts again on another replica. Written with `idempotent`, the report is there once; written plainly, twice.
 *
 *     node examples/nightly-report/main.ts
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as pause } from 'node:timers/promises'

const TICKS = 3
const LIMIT_MS = 60_000

const folder = mkdtempSync(join(tmpdir(), 'holdfast-nightly-report-'))
const data = join(folder, 'data.db')
const database = new DatabaseSync(data, { timeout: 5_000 })
// No unique key on purpose: a report that was written twice must be seen.
database.exec(
  'PRAGMA journal_mode = WAL; CREATE TABLE starts (way TEXT, tick TEXT); CREATE TABLE reports (way TEXT, tick TEXT)',
)

interface Result {
  readonly way: string
  /** How often each tick was started, and how often its report is there. */
  readonly starts: readonly number[]
  readonly reports: readonly number[]
}

const replicas: ChildProcess[] = []
try {
  const [plain, once] = await Promise.all([play('plain'), play('idempotent')])
  check(
    'plain: the tick of the killed replica was started again',
    plain.starts.some((count) => count > 1),
  )
  check(
    'plain, the control: its report is there twice',
    plain.reports.some((count) => count > 1),
  )
  check(
    'idempotent: the tick of the killed replica was started again',
    once.starts.some((count) => count > 1),
  )
  check(
    'idempotent: each report is there once',
    once.reports.every((count) => count === 1),
  )
} finally {
  for (const replica of replicas) replica.kill('SIGKILL')
  database.close()
  rmSync(folder, { recursive: true, force: true })
}

async function play(way: string): Promise<Result> {
  const crash = join(folder, `crash-${way}`)
  writeFileSync(crash, '')
  const program = join(import.meta.dirname, 'replica.ts')
  const args = ['--disable-warning=ExperimentalWarning', program, way, join(folder, 'locks.db'), data, crash]
  const started = Array.from({ length: 3 }, () =>
    spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] }),
  )
  replicas.push(...started)
  const ended = started.map((replica) => once(replica, 'exit'))
  const countsOf = (table: string) =>
    database
      .prepare(`SELECT count(*) AS count FROM ${table} WHERE way = ? GROUP BY tick ORDER BY tick`)
      .all(way)
      .map(({ count }) => Number(count))
  const deadlineMs = Date.now() + LIMIT_MS
  while (countsOf('reports').length < TICKS || !countsOf('starts').some((count) => count > 1)) {
    if (Date.now() > deadlineMs) throw new Error(`${way}: it took too long.`)
    await pause(50)
  }
  for (const replica of started) replica.kill('SIGTERM')
  await Promise.all(ended)
  return { way, starts: countsOf('starts'), reports: countsOf('reports') }
}

function check(claim: string, holds: boolean): void {
  console.log(`${holds ? '✓' : '✗'} ${claim}`)
  if (!holds) process.exitCode = 1
}
