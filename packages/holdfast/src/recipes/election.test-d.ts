/** Types that must not compile, and types that must. Checked by the type check of the repository; never run. */
import type { Fence } from '../base/fence.ts'
import type { AnyLocker, Locker } from '../base/types.ts'
import type { Guard } from '../guards/guard.ts'
import { election } from './election.ts'

declare const fenced: Locker<'fenced'>
declare const unfenced: Locker<'unfenced'>
declare const configured: AnyLocker
declare const guard: Guard<{ readonly some: 'transaction' }>
declare const effect: () => Promise<void>
const allowed = { allowUnfenced: true } as const

export async function accepted(): Promise<void> {
  const vote = election(fenced, 'leader', { ttlMs: 5_000, note: 'web', owner: 'task', lockDelayMs: 100 })
  const leadership = await vote.campaign({ waitMs: 5_000, signal: AbortSignal.timeout(1) })
  const fence: Fence = leadership.lease.fence
  await guard.run(leadership.lease, effect)
  await guard.run(fence, effect)
  const token: bigint | undefined = (await vote.leader())?.token
  await vote.serve(
    async (term) => {
      await guard.run(term.lease, effect)
      term.resign()
    },
    { onJeopardy: (remainingMs) => remainingMs.toFixed() },
  )
  for await (const leader of vote.observe()) if (leader !== null && leader.token === token) break
  vote.checkHealth({ graceMs: 1 })
  await election(unfenced, 'leader', allowed).serve((term) => term.resign())
  // Narrowed by the lease.
  const { lease } = await election(configured, 'leader', allowed).campaign()
  if (lease.fencing === 'fenced') await guard.run(lease, effect)
  await using _held = await vote.campaign()
}

export async function refused(): Promise<void> {
  // @ts-expect-error an unfenced locker must be asked for
  election(unfenced, 'leader')
  // @ts-expect-error and one that may be unfenced
  election(configured, 'leader')
  const { lease } = await election(unfenced, 'leader', allowed).campaign()
  // @ts-expect-error an unfenced leader has no proof for a guard
  await guard.run(lease, effect)
  await election(unfenced, 'leader', allowed).serve(async (term) => {
    // @ts-expect-error nor has its term
    await guard.run(term.lease, effect)
  })
  // @ts-expect-error it must be narrowed first
  await guard.run((await election(configured, 'leader', allowed).campaign()).lease, effect)
  // @ts-expect-error an unfenced leader has no token
  const _token: bigint | undefined = (await election(unfenced, 'leader', allowed).leader())?.token
  // @ts-expect-error a leader excludes all others
  election(fenced, 'leader', { mode: 'shared' })
  // @ts-expect-error a campaign waits, a service waits for ever
  await election(fenced, 'leader').serve(() => {}, { waitMs: 5_000 })
  // @ts-expect-error what the work returns is lost, so it must not return anything
  await election(fenced, 'leader').serve(async () => 5)
  // @ts-expect-error how long is stale, the caller must say
  election(fenced, 'leader').checkHealth()
}
