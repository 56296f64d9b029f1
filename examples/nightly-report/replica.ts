/** One replica of a service that writes a report at every tick. `way` says how it writes. */
import { existsSync, unlinkSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { createLocker } from 'holdfast'
import { sqliteIdempotent } from 'holdfast/lockfree/sqlite'
import { schedule, type Tick } from 'holdfast/recipes/schedule'
import { sqlite } from 'holdfast/sqlite'

const [way = '', locks = '', data = '', crash = ''] = process.argv.slice(2)

const locker = createLocker(sqlite({ path: locks }), { ttlMs: 1_000 })
const database = new DatabaseSync(data, { timeout: 5_000 })
const idempotent = sqliteIdempotent({ path: data })

const reports = await schedule(
  locker,
  { name: `report/${way}`, everyMs: 500, policy: 'rerun' },
  async ({ tick }) => {
    database.prepare('INSERT INTO starts VALUES (?, ?)').run(way, tick.id)
    await (way === 'plain' ? write(tick) : writeOnce(tick))
    // The misfortune: the report is there, and the schedule does not know. One replica dies here, once.
    if (existsSync(crash)) {
      unlinkSync(crash)
      process.kill(process.pid, 'SIGKILL')
    }
  },
)
process.once('SIGTERM', async () => {
  await reports.close()
  await locker.close()
  await idempotent.close()
})
console.log('ready')

function write(tick: Tick): void {
  database.prepare('INSERT INTO reports VALUES (?, ?)').run(way, tick.id)
}

/** The report and the fact that it was written are one transaction, under the id of the tick. */
async function writeOnce(tick: Tick): Promise<void> {
  await idempotent({ scope: tick.schedule, key: tick.id }, async ({ store }) => {
    database.exec('BEGIN IMMEDIATE')
    try {
      write(tick)
      await store(database, 'written')
      database.exec('COMMIT')
    } catch (error) {
      database.exec('ROLLBACK')
      throw error
    }
  })
}
