/**
 * Leases whose callers have dropped them without releasing. The collector tells, but being told costs more than the rest
 * of a short lease; so a handle is kept by its record at first, and watched from the lease's first renewal on. A lease
 * that was never renewed needs no watching: it ends by itself.
 *
 *   kept by the record ──first renewal──▶ watched     [watchForDrop]
 *   kept | watched ──release──▶ forgotten             [forgetHandle]
 *   watched ──collected──▶ lost, and released
 */
import { callSite } from '../base/call-site.ts'
import { quote } from '../base/errors.ts'
import { type AboutLease, emit, hasListeners, warnAgain } from '../base/events.ts'
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
  warnOfDrop(record.about, record.terms.site)
})

/** Call sites that a warning has named. `''` stands for the first drop of the process, whose call site was not noted. */
const toldSites = new Set<string>()

/**
 * The call site in the user's program; undefined before the first drop. `above`: the function that asks. The stack is read at once: until it
 * is read, it keeps the functions on it in memory, and so perhaps the handle.
 */
export function siteOfAcquire(above: (...args: never[]) => unknown): string | undefined {
  return toldSites.size === 0 ? undefined : callSite(above)()
}

/** Warns once for each call site, because a mistake in a busy place drops a lease at each request. */
function warnOfDrop({ backend, namespace, name, owner }: AboutLease, site = ''): void {
  if (toldSites.has(site)) return
  toldSites.add(site)
  const of = owner === undefined ? quote(name) : `${quote(name)} with owner ${quote(owner)}`
  const where =
    site === ''
      ? 'From now on each acquire notes its call site, and the next such warning says it'
      : `It was acquired at ${site}`
  const warning = `the lease on ${of} was garbage collected without having been released, and is released now. ${where}`
  warnAgain({ backend, namespace, code: 'HOLDFAST_DROPPED', warning })
}

export function watchForDrop(record: LeaseRecord): void {
  if (record.handle === undefined) return
  dropped.register(record.handle, new WeakRef(record), record)
  record.handle = undefined
}

export function forgetHandle(record: LeaseRecord): void {
  if (record.handle === undefined) dropped.unregister(record)
  record.handle = undefined
}
