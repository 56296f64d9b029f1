/** One process of the fleet. Locks and results are in SQLite; another engine is another import. */
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { type SingleFlightStore, type StoredResult, singleFlight } from 'holdfast/recipes/single-flight'
import { sqlite } from 'holdfast/sqlite'
import type { Order, Report } from './main.ts'

const [locks = '', data = ''] = process.argv.slice(2)
// A service would leave the TTL at 15 s. Here the reader waits until the killed process is given up.
const locker = createLocker(sqlite({ path: locks }), { ttlMs: 1_000 })
const guard = sqliteGuard({ path: data })
const database = new DatabaseSync(data, { timeout: 5_000 })

const store: SingleFlightStore<string, 'fenced'> = {
  async get(key) {
    const row = database.prepare('SELECT result FROM results WHERE key = ?').get(key)
    return row === undefined ? null : (JSON.parse(String(row.result)) as StoredResult<string>)
  },
  // The guard refuses the result of a process that was paused and overtaken.
  set: (key, result, { fence }) =>
    guard.run(fence, (tx) => {
      tx.prepare('INSERT OR REPLACE INTO results VALUES (?, ?)').run(key, JSON.stringify(result))
    }),
}

async function compute({ key, hangs = false }: Order): Promise<string> {
  database.prepare('INSERT INTO computed VALUES (?, ?)').run(key, process.pid)
  tell({ kind: 'computing' })
  await sleep(hangs ? 60_000 : 200)
  return `${key} of process ${process.pid}`
}

function tell(report: Report): void {
  process.send?.(report)
}

process.on('disconnect', () => process.exit())
process.on('message', async (order: Order) => {
  const text =
    order.how === 'alone'
      ? await compute(order)
      : await singleFlight(locker, order.key, { store, keepMs: 3_600_000 }, () => compute(order))
  tell({ kind: 'got', text })
})
tell({ kind: 'ready' })
