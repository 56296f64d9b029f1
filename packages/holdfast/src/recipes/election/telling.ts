/** The event `leadership`. */
import { emit, type HoldfastEvents, hasListeners } from '../../base/events.ts'
import type { Lease, Locker } from '../../base/types.ts'

export type EndOfLeadership = NonNullable<HoldfastEvents['leadership']['reason']>

/** Tells that a leadership has begun. The function that it returns tells its end, once; it keeps no hold of the lease. */
export function tellLeadership(
  { info }: Pick<Locker, 'info'>,
  { name, holder, id }: Lease,
): (reason: EndOfLeadership) => void {
  const about = { backend: info.name, namespace: info.namespace, name, holder, id }
  let isOver = false
  if (hasListeners('leadership')) emit('leadership', { ...about, phase: 'began', reason: null })
  return (reason) => {
    if (!isOver && hasListeners('leadership')) emit('leadership', { ...about, phase: 'ended', reason })
    isOver = true
  }
}
