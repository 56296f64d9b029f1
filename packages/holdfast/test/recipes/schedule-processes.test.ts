/** Twenty replicas in processes of their own. Runners are stopped and killed in the middle of their jobs. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { onTestFinished, test } from 'vitest'
import { startProgram } from '../start-program.ts'

const REPLICAS = 20
const EVERY_MS = 400
const TTL_MS = 1_000
const KILLS = 4
const STOPS = 2

interface Note {
  readonly policy: string
  readonly tick: string
  readonly what: 'start' | 'end' | 'lost'
  readonly pid: number
}

test('twenty processes, SIGSTOP and kill -9: skip starts no tick twice, rerun completes each that started', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-schedules-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const log = join(folder, 'log')
  writeFileSync(log, '')
  const notes = (): Note[] =>
    readFileSync(log, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => line.split(' '))
      .map(([policy = '', tick = '', what, pid]) => ({
        policy,
        tick,
        what: what as Note['what'],
        pid: Number(pid),
      }))
  const until = async (what: string, isSo: () => boolean) => {
    for (let tries = 0; !isSo(); tries++) {
      assert(tries < 2_000, `not so: ${what}`)
      await pause(10)
    }
  }

  const program = join(import.meta.dirname, 'children', 'replica.ts')
  const replicas = Array.from({ length: REPLICAS }, () =>
    startProgram(program, join(folder, 'locks.db'), log, EVERY_MS, TTL_MS),
  )
  await Promise.all(replicas.map((replica) => replica.printed('ready')))

  /** Of alternating policies: the runner that has just started is in the middle of its job. */
  const disturbed = new Set<number>()
  const strike = async (policy: string, signal: 'SIGKILL' | 'SIGSTOP') => {
    const before = notes().length
    const fresh = () =>
      notes()
        .slice(before)
        .find((note) => note.policy === policy && note.what === 'start')
    await until('a tick starts', () => fresh() !== undefined)
    const pid = fresh()?.pid ?? 0
    process.kill(pid, signal)
    disturbed.add(pid)
    if (signal === 'SIGKILL') return
    await pause(1.5 * TTL_MS)
    process.kill(pid, 'SIGCONT')
  }
  const kinds = [...Array(KILLS).fill('SIGKILL'), ...Array(STOPS).fill('SIGSTOP')] as const
  await Promise.all(
    ['skip', 'rerun'].map(async (policy, offset) => {
      for (const [index, kind] of kinds.entries()) if (index % 2 === offset) await strike(policy, kind)
    }),
  )

  const started = notes().filter(({ what }) => what === 'start')
  const of = (policy: string) => started.filter((note) => note.policy === policy).map(({ tick }) => tick)
  assert(disturbed.size >= (KILLS + STOPS) / 2)
  assert.equal(new Set(of('skip')).size, of('skip').length, 'skip: a tick has started twice')
  const hasEnded = (tick: string) =>
    notes().some((note) => note.policy === 'rerun' && note.tick === tick && note.what === 'end')
  await until('rerun: every tick that started has completed', () => of('rerun').every(hasEnded))
  const all = notes()
  for (const [index, { policy, tick, what, pid }] of all.entries()) {
    const isRestart = all.slice(0, index).some((note) => note.policy === policy && note.tick === tick)
    if (policy !== 'rerun' || what !== 'start' || !isRestart) continue
    const runners = all.slice(0, index).filter((note) => note.policy === policy && note.tick === tick)
    const last = runners.filter((note) => note.what === 'start' && note.pid !== pid).at(-1)
    const wasLost = all.some((note) => note.tick === tick && note.what === 'lost' && note.pid === last?.pid)
    assert(
      last !== undefined && (disturbed.has(last.pid) || wasLost),
      `rerun: ${tick} has started twice, although its runner neither died nor lost its lease`,
    )
  }
  assert(new Set(of('rerun')).size < of('rerun').length, 'void: no tick was started again')
})
