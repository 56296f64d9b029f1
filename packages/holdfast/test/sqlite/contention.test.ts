import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import type { Statistics } from '../../src/engines/sqlite/locks/statistics.ts'
import { start } from './workers/start.ts'

const PROCESSES = 4
const TURNS = 5_000

interface Report {
  readonly id: string
  readonly entries: number
  readonly statistics: Statistics
}

describe('four processes and one lock', () => {
  test('G1 G2 G8 T28 never two inside, tokens in order, every process served, none spinning', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-contention-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const [path, inside, turns] = ['locks.db', 'inside', 'turns'].map((name) => join(folder, name))
    assert(path !== undefined && inside !== undefined && turns !== undefined)

    const workers = Array.from({ length: PROCESSES }, (_, id) =>
      start('contend.ts', path, inside, turns, id, TURNS),
    )
    const outputs = await Promise.all(workers.map((worker) => worker.ended))
    const reports = outputs.map((lines) => JSON.parse(lines.join('\n')) as Report)

    // Whoever was inside appended its line there, so the order of the lines is the order of the turns.
    const lines = readFileSync(turns, 'utf8').trim().split('\n')
    let bytes = 0
    const entries = lines.map((line) => {
      const [id = '', token = '', queuedAt = ''] = line.split(' ')
      const from = bytes
      bytes += line.length + 1
      return { id, token: BigInt(token), from, queuedAt: Number(queuedAt) }
    })
    assert.equal(
      entries.length,
      reports.reduce((sum, report) => sum + report.entries, 0),
      'no turn is missing',
    )
    entries.reduce((before, entry) => {
      assert(entry.token > before.token, `${entry.id} came after ${before.id} with a lower token`)
      return entry
    })

    // Those who were before it in the queue may come first, and nobody else.
    for (const [index, { id, queuedAt }] of entries.entries()) {
      const passed = entries
        .slice(Math.max(0, index - PROCESSES), index)
        .filter(({ from }) => from >= queuedAt)
      assert(passed.length < PROCESSES, `${passed.length} turns of others while process ${id} waited`)
    }
    for (const { id, statistics } of reports) {
      const perTurn = statistics.statements / TURNS
      assert(perTurn <= 30, `process ${id}: ${perTurn} statements per turn`)
      const triesPerTurn = statistics.busyRetries / TURNS
      assert(triesPerTurn <= 30, `process ${id}: ${triesPerTurn} tries for the write lock per turn`)
    }
    console.log(summary(entries.length, reports))
  })
})

function summary(turns: number, reports: readonly Report[]): string {
  const sum = (key: keyof Statistics) => reports.reduce((total, { statistics }) => total + statistics[key], 0)
  const perTurn = (key: keyof Statistics) => (sum(key) / turns).toFixed(2)
  return (
    `${turns} turns (${reports.map((report) => report.entries).join(', ')}); per turn ${perTurn('statements')} ` +
    `statements, ${perTurn('transactions')} transactions, ${perTurn('busyRetries')} busy, ` +
    `${perTurn('wakeUpsSent')} wake-ups sent, ${perTurn('wakeUpsReceived')} received, ${perTurn('polls')} polls`
  )
}
