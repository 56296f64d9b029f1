/** Types that must not compile. */
import type { Locker } from '../base/types.ts'
import type { Guard } from '../guards/guard.ts'
import { schedule, tickRunner } from './schedule.ts'

declare const fenced: Locker<'fenced'>
declare const unfenced: Locker<'unfenced'>
declare const guard: Guard<string>

// The lease of a fenced locker is a proof for a guard.
schedule(fenced, { name: 'report', everyMs: 1_000 }, ({ lease }) => guard.run(lease, (tx) => tx))
tickRunner(fenced, { name: 'report' }, ({ lease }) => guard.run(lease.fence, (tx) => tx))

schedule(unfenced, { name: 'report', everyMs: 1_000, allowUnfenced: true }, ({ lease }) =>
  // @ts-expect-error the lease of an unfenced locker carries no fence
  guard.run(lease, (tx) => tx),
)

// @ts-expect-error missed ticks need the times, which a tick runner does not know
tickRunner(fenced, { name: 'report', missed: 'all' }, () => {})

// @ts-expect-error there is no such policy
schedule(fenced, { name: 'report', everyMs: 1_000, policy: 'retry' }, () => {})
