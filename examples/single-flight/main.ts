/**
 * An expensive report that four processes want at the same time: one computes it, the others read its result.
 *
 *     node examples/single-flight/main.ts
 */
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Children, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

export type Report =
  | { readonly kind: 'ready' | 'computing' }
  | { readonly kind: 'got'; readonly text: string }
export interface Order {
  readonly key: string
  readonly how: 'alone' | 'single flight'
  /** It computes until it is killed. */
  readonly hangs?: boolean
}

const folder = mkdtempSync(join(tmpdir(), 'holdfast-single-flight-'))
try {
  using children = new Children()
  const data = join(folder, 'data.db')
  const database = new DatabaseSync(data)
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE computed (key TEXT, process INTEGER)')
  database.exec('CREATE TABLE results (key TEXT PRIMARY KEY, result TEXT)')
  const start = () =>
    children.start(join(import.meta.dirname, 'process.ts'), [join(folder, 'locks.db'), data])
  const processes = [start(), start(), start(), start()]
  await Promise.all(processes.map((each) => heard<Report, 'ready'>(each, 'ready')))

  const ask = async (asked: readonly ChildProcess[], order: Order) => {
    const answers = asked.map((each) => heard<Report, 'got'>(each, 'got'))
    for (const each of asked) each.send(order)
    const texts = (await Promise.all(answers)).map(({ text }) => text)
    const rows = database.prepare('SELECT count(*) AS times FROM computed WHERE key = ?').get(order.key)
    return { times: Number(rows?.times), same: new Set(texts).size === 1 }
  }

  say('Each for itself:')
  const alone = await ask(processes, { key: 'report/october', how: 'alone' })
  mustLose(`it is computed ${alone.times} times`, alone.times === 4)

  say('\nIn single flight:')
  const together = await ask(processes, { key: 'report/november', how: 'single flight' })
  check('it is computed once', together.times === 1)
  check('all four have the same result', together.same)

  say('\nThe computing process is killed:')
  const [victim, ...others] = processes
  if (victim === undefined) throw new Error('no process was started')
  const computing = heard<Report, 'computing'>(victim, 'computing')
  victim.send({ key: 'report/december', how: 'single flight', hangs: true } satisfies Order)
  await computing
  const answered = ask(others, { key: 'report/december', how: 'single flight' })
  victim.kill('SIGKILL')
  const taken = await answered
  check('one of the waiters computes it, and the others read its result', taken.times === 2 && taken.same)
  database.close()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()
