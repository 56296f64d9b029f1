/**
 * Three replicas share a stock, and one of them is stopped in the middle of its work for longer than its lease. What the metrics
 * say of all three, before and after.
 *
 *     node examples/watched-replicas/main.ts
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Children, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import type { Told } from './replica.ts'

const { say, check, finish } = startClaims()
limitTime()

/** As `sum by (…)` would show them. */
const shown = {
  granted: /^holdfast_acquire_seconds_count\{.*outcome="granted"/,
  paused: /^holdfast_paused_seconds_count/,
  expired: /^holdfast_lost_total\{.*reason="expired"/,
  accepted: /^holdfast_guard_total\{.*outcome="accepted"/,
  stale: /^holdfast_guard_total\{.*outcome="stale"/,
}
type Row = Record<keyof typeof shown, number>

async function scrape(port: number): Promise<Row> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
  const sumOf = (series: RegExp) =>
    text
      .split('\n')
      .filter((line) => series.test(line))
      .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
  return Object.fromEntries(Object.entries(shown).map(([name, series]) => [name, sumOf(series)])) as Row
}

const folder = mkdtempSync(join(tmpdir(), 'holdfast-watched-'))
try {
  using children = new Children()
  const start = async (lingers: string) => {
    const program = join(import.meta.dirname, 'replica.ts')
    const child = children.start(program, [join(folder, 'locks.db'), join(folder, 'stock.db'), lingers])
    return { child, port: (await heard<Told, 'listens'>(child, 'listens')).port }
  }
  const replicas = [await start('lingers'), await start(''), await start('')] as const
  const [stopped, other] = replicas
  const show = async (title: string): Promise<readonly Row[]> => {
    const rows = await Promise.all(replicas.map(({ port }) => scrape(port)))
    say(`\n${title}`)
    console.table(Object.fromEntries(rows.map((row, at) => [`replica ${at + 1}`, row])))
    return rows
  }
  const until = async (isSo: () => Promise<boolean>) => {
    while (!(await isSo())) await pause(50)
  }

  await until(async () =>
    (await Promise.all(replicas.map(({ port }) => scrape(port)))).every((row) => row.accepted > 3),
  )
  const before = await show('Before:')
  stopped.child.send('linger')
  await heard<Told, 'inside'>(stopped.child, 'inside')
  stopped.child.kill('SIGSTOP')
  // The others go on as soon as its lease has expired.
  const { granted } = await scrape(other.port)
  await until(async () => (await scrape(other.port)).granted > granted + 3)
  stopped.child.kill('SIGCONT')
  await until(async () => (await scrape(stopped.port)).stale > 0)
  const after = await show('Replica 1 was stopped while it held the lease, and has gone on:')

  const rise = (at: number, name: keyof Row) => (after[at]?.[name] ?? 0) - (before[at]?.[name] ?? 0)
  check(
    'it says that it stood still, and lost a lease by it',
    rise(0, 'paused') >= 1 && rise(0, 'expired') >= 1,
  )
  check('the guard refused its late write', rise(0, 'stale') >= 1)
  check(
    'the others went on, and the guard accepted them',
    [1, 2].every((at) => rise(at, 'accepted') > 0),
  )
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()
