/**
 * Leases whose callers have dropped them without releasing. The collector tells, but being told costs more than the rest
 * of a short lease; so a handle is kept by its record at first, and watched from the lease's first renewal on. A lease
 * that was never renewed needs no watching: it ends by itself.
 *
 *   kept by the record ──first renewal──▶ watched     [watchForDrop]
 *   kept | watched ──release──▶ forgotten             [forgetHandle]
 *   watched ──collected──▶ lost, and released
 */
import { emit, hasListeners } from '../base/events.ts'
import type { LeaseRecord } from './lease.ts'

/**
 * Holds records weakly. A record refers to its signal's listeners and to `onJeopardy`, which often refer to the handle. A
 * strong reference would keep all of them, the session and the locker in memory for ever. The session keeps the record
 * while the lease is live.
 */
const dropped = new FinalizationRegistry<WeakRef<LeaseRecord>>((reference) => {
  const record = reference.deref()
  if (record === undefined || !record.isLive) return
  if (hasListeners('dropped')) emit('dropped', record.about)
  record.lose('dropped')
})

export function watchForDrop(record: LeaseRecord): void {
  if (record.handle === undefined) return
  dropped.register(record.handle, new WeakRef(record), record)
  record.handle = undefined
}

export function forgetHandle(record: LeaseRecord): void {
  if (record.handle === undefined) dropped.unregister(record)
  record.handle = undefined
}
