/** A replica of two schedules, one for each policy, until it is killed. Notes starts, ends and losses where all can see them. */
import { appendFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { openSqlite } from '../../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { schedule } from '../../../src/recipes/schedule.ts'

const [path = '', log = '', everyMs = '', ttlMs = ''] = process.argv.slice(2)

const locker = createLocker(openSqlite({ path }), { ttlMs: Number(ttlMs) })
for (const policy of ['skip', 'rerun'] as const)
  await schedule(
    locker,
    { name: policy, policy, everyMs: Number(everyMs), maxStarts: 100, rerunAfterMs: 0, onError: () => {} },
    async ({ tick, signal }) => {
      const note = (what: string) =>
        appendFileSync(log, `${policy} ${tick.scheduledAt.getTime()} ${what} ${process.pid}\n`)
      note('start')
      try {
        await pause(60, undefined, { signal })
        note('end')
      } catch (error) {
        note('lost')
        throw error
      }
    },
  )
console.log('ready')
