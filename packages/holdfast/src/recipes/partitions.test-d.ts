/** Types that must not compile, and types that must. Checked by the type check of the repository; never run. */
import type { Fence } from '../base/fence.ts'
import type { Locker } from '../base/types.ts'
import { partitions } from './partitions.ts'

declare const fenced: Locker<'fenced'>
declare const unfenced: Locker<'unfenced'>
declare function use(fence: Fence): void
const rest = { name: 'p', count: 4, onRevoked: () => {} }

export async function accepted(): Promise<void> {
  const member = await partitions(fenced, { ...rest, onAssigned: (_, { fence }) => use(fence) })
  for (const [, { fence }] of member.assigned) use(fence)
  await partitions(unfenced, { ...rest, onAssigned: () => {}, allowUnfenced: true })
}

export async function refused(): Promise<void> {
  // @ts-expect-error An unfenced locker must be asked for.
  await partitions(unfenced, { ...rest, onAssigned: () => {} })
  // @ts-expect-error Its leases have no fence.
  await partitions(unfenced, { ...rest, onAssigned: (_, { fence }) => use(fence), allowUnfenced: true })
}
