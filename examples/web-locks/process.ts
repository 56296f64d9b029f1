/** One seller. The choice of `locks` is all that differs. */
import { join } from 'node:path'
import { type LockManager, locks as locksOfThisProcess } from 'node:worker_threads'
import { createLocker } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'
import { webLocks } from 'holdfast/web-locks'
import type { Told } from './main.ts'
import { workDay } from './seller.ts'

const [reach = '', seller = '', shop = '', units = ''] = process.argv.slice(2)
const locker = createLocker(sqlite({ path: join(shop, 'locks.db') }), { holder: seller })
const locks: LockManager = reach === 'fleet' ? webLocks(locker) : locksOfThisProcess

const tell = (told: Told) => process.send?.(told)
process.on('message', async () => {
  tell({ kind: 'done', day: await workDay(locks, seller, shop, Number(units)) })
  await locker.close()
  process.disconnect()
})
tell({ kind: 'ready' })
