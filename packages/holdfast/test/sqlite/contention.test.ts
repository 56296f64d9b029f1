import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import type { Statistics } from '../../src/engines/sqlite/locks/statistics.ts'
import { start } from './workers/start.ts'

const PROCESSES = 4
const FOR_MS = 10_000
const LONGEST_WAIT_MS = 2_000

interface Report {
  readonly id: string
  readonly entries: number
  readonly statistics: Statistics
  readonly lagMs: number
}

describe('four processes and one lock', () => {
  test('G1 G2 G8 T28 never two inside, tokens in order, every process served, none spinning', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-contention-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const [path, inside, turns] = ['locks.db', 'inside', 'turns'].map((name) => join(folder, name))
    assert(path !== undefined && inside !== undefined && turns !== undefined)

    const workers = Array.from({ length: PROCESSES }, (_, id) =>
      start('contend.ts', path, inside, turns, id, FOR_MS),
    )
    const outputs = await Promise.all(workers.map((worker) => worker.ended))
    const reports = outputs.map((lines) => JSON.parse(lines.join('\n')) as Report)

    // Whoever was inside appended its line there, so the order of the lines is the order of the turns.
    const lines = readFileSync(turns, 'utf8').trim().split('\n')
    const entries = lines.map((line) => {
      const [id = '', token = '', atMs = ''] = line.split(' ')
      return { id, token: BigInt(token), atMs: Number(atMs) }
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

    const lagMs = Math.max(...reports.map((report) => report.lagMs))
    for (const { id, statistics } of reports) {
      const own = entries.filter((entry) => entry.id === id).map((entry) => entry.atMs)
      const gaps = own.slice(1).map((atMs, index) => atMs - (own[index] ?? atMs))
      const longestMs = Math.max(...gaps)
      assert(own.length > 10, `process ${id} had ${own.length} turns`)
      assert(
        longestMs <= LONGEST_WAIT_MS + lagMs,
        `process ${id} waited ${longestMs} ms (machine: ${lagMs} ms)`,
      )
      const perTurn = statistics.statements / own.length
      assert(perTurn <= 30, `process ${id}: ${perTurn} statements per turn`)
      const triesPerTurn = statistics.busyRetries / own.length
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
