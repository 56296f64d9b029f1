/**
 * Twelve partitions of a queue, shared by worker processes on one machine. One is killed, one joins, and all leave.
 *
 *     node examples/partitions/main.ts
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Report } from './worker.ts'

const COUNT = 12
const LIMIT_MS = 30_000

interface Worker {
  readonly process: ChildProcess
  readonly has: Set<number>
  /** How many partitions it had to give away. */
  gave: number
}

const folder = mkdtempSync(join(tmpdir(), 'holdfast-partitions-'))
const [locks, data] = [join(folder, 'locks.db'), join(folder, 'data.db')]
const database = new DatabaseSync(data)
database.exec('PRAGMA journal_mode = WAL; CREATE TABLE work (partition INTEGER, worker TEXT, token INTEGER)')
const workers = new Map<string, Worker>()
try {
  for (const name of ['ann', 'bob', 'cyd']) start(name)
  await untilShared('three workers')

  const before = new Map([...workers].map(([name, { has }]) => [name, [...has]]))
  const killed = workers.get('bob')
  killed?.process.kill('SIGKILL')
  workers.delete('bob')
  await untilShared('bob is killed')
  for (const [name, { has }] of workers)
    check(`${name} kept what it had`, before.get(name)?.every((partition) => has.has(partition)) ?? false)

  for (const worker of workers.values()) worker.gave = 0
  start('dan')
  await untilShared('dan joins')
  const moved = [...workers.values()].reduce((sum, { gave }) => sum + gave, 0)
  check(`${moved} partitions moved to dan, and no other`, moved === COUNT / 3)

  const all = [...workers.values()]
  for (const { process } of all) process.kill('SIGTERM')
  const codes = await Promise.all(all.map(async ({ process }) => (await once(process, 'exit'))[0]))
  check(
    'everybody left in peace',
    codes.every((code) => code === 0),
  )
  checkWork()
} finally {
  for (const { process } of workers.values()) process.kill('SIGKILL')
  database.close()
  rmSync(folder, { recursive: true, force: true })
}

function start(name: string): void {
  const child = fork(join(import.meta.dirname, 'worker.ts'), [name, locks, data, String(COUNT)], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
  })
  const worker: Worker = { process: child, has: new Set(), gave: 0 }
  workers.set(name, worker)
  child.on('message', ({ kind, partition }: Report) => {
    if (kind === 'assigned') worker.has.add(partition)
    else if (worker.has.delete(partition)) worker.gave++
  })
}

/** All partitions are worked on, by as many workers as there are, evenly. */
async function untilShared(what: string): Promise<void> {
  const sizes = () => [...workers.values()].map(({ has }) => has.size)
  const isShared = () => sizes().every((size) => size === COUNT / workers.size)
  for (const since = Date.now(); !isShared(); await sleep(20))
    if (Date.now() - since > LIMIT_MS) throw new Error(`${what}: not shared in time: ${sizes()}`)
  console.log(
    `${what}: ${[...workers].map(([name, { has }]) => `${name} has ${[...has].sort((a, b) => a - b)}`).join('; ')}`,
  )
}

/** No partition saw an older worker after a newer one. */
function checkWork(): void {
  const rows = database.prepare('SELECT partition, worker, token FROM work ORDER BY rowid').all()
  const last = new Map<unknown, number>()
  let isOrdered = true
  for (const { partition, token } of rows) {
    if (Number(token) < (last.get(partition) ?? 0)) isOrdered = false
    last.set(partition, Number(token))
  }
  check('all partitions were worked on', last.size === COUNT)
  check('and each by one worker after the other', isOrdered)
}

function check(claim: string, holds: boolean): void {
  if (!holds) throw new Error(`It does not hold: ${claim}`)
  console.log(`  ✓ ${claim}`)
}
