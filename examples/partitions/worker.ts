/** One worker. It works on the partitions that are its share, and tells its parent which. SIGTERM makes it leave. */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker, type FencedLease, isHoldfastError } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { partitions } from 'holdfast/recipes/partitions'
import { sqlite } from 'holdfast/sqlite'

export interface Report {
  readonly kind: 'assigned' | 'revoked'
  readonly partition: number
}

const [holder = '', locks = '', data = '', count = ''] = process.argv.slice(2)
const tell = (report: Report) => process.send?.(report)

await using locker = createLocker(sqlite({ path: locks }), { holder, ttlMs: 3_000 })
await using guard = sqliteGuard({ path: data })
const running = new Map<number, { readonly stop: AbortController; readonly done: Promise<void> }>()

await using _member = await partitions(locker, {
  name: 'orders',
  count: Number(count),
  onAssigned(partition, lease) {
    const stop = new AbortController()
    running.set(partition, { stop, done: work(partition, lease, stop.signal) })
    tell({ kind: 'assigned', partition })
  },
  // The partition is given away when this has settled: by then the work has stopped.
  async onRevoked(partition) {
    const work = running.get(partition)
    work?.stop.abort()
    await work?.done
    tell({ kind: 'revoked', partition })
  },
})
await new Promise((resolve) => process.once('SIGTERM', resolve))

async function work(partition: number, lease: FencedLease, stop: AbortSignal): Promise<void> {
  while (!stop.aborted && !lease.signal.aborted) {
    try {
      await guard.run(lease, (tx) =>
        tx
          .prepare('INSERT INTO work (partition, worker, token) VALUES (?, ?, ?)')
          .run(partition, holder, lease.fence.token),
      )
    } catch (error) {
      // A worker that was frozen, and overtaken, is refused here.
      if (isHoldfastError(error, 'FENCE_STALE') || isHoldfastError(error, 'LEASE_LOST')) return
      throw error
    }
    await sleep(100, undefined, { signal: stop }).catch(() => {})
  }
}
