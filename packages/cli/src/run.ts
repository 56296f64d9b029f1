/** `holdfast run`: waits, holds, runs, releases. */
import type { AnyLocker, LeaseBase } from 'holdfast'
import { environmentOf, readSignKey } from './environment.ts'
import { EXIT, Exit, usageError } from './exits.ts'
import { type HoldFlags, noteOf, ttlOf, withEngine } from './holding.ts'
import { runUnderLease } from './under-lease.ts'

export interface RunFlags extends HoldFlags {
  readonly wait: number
  readonly shared?: boolean
  readonly capacity?: number
  readonly weight?: number
  readonly holdAtLeast?: number
  readonly maxHold?: number
}

export async function run(name: string, command: readonly string[], flags: RunFlags): Promise<number> {
  if (flags.shared && flags.capacity !== undefined)
    throw usageError('--shared and --capacity exclude each other: a semaphore has no readers.')
  if (flags.weight !== undefined && flags.capacity === undefined)
    throw usageError('--weight needs --capacity, the number of permits in all.')
  const key = readSignKey(flags)
  return withEngine(flags, async ({ locker, ...stopping }) => {
    const lease = await obtain(locker, name, command, flags, stopping.signals.cancelled)
    try {
      const env = await environmentOf(lease, flags, key)
      return (await runUnderLease(lease, command, env, stopping)).exitCode
    } finally {
      await lease.release()
    }
  })
}

async function obtain(
  locker: AnyLocker,
  name: string,
  command: readonly string[],
  flags: RunFlags,
  signal: AbortSignal,
): Promise<LeaseBase & { readonly fence?: never | import('holdfast').Fence }> {
  const { wait, capacity, weight, holdAtLeast, maxHold, shared } = flags
  const hold = {
    ...ttlOf(flags),
    ...(holdAtLeast !== undefined && { holdAtLeastMs: holdAtLeast }),
    ...(maxHold !== undefined && { maxHoldMs: maxHold }),
    note: noteOf(flags, command),
    // The command's owner knows how long it takes.
    warnHoldMs: Number.POSITIVE_INFINITY,
    signal,
  }
  const permits = capacity === undefined ? null : { capacity, ...(weight !== undefined && { weight }) }
  const mode = shared ? 'shared' : 'exclusive'
  if (wait > 0) {
    const waits = { ...hold, waitMs: wait }
    return permits === null
      ? locker.acquire(name, { ...waits, mode })
      : locker.acquirePermits(name, { ...waits, ...permits })
  }
  const taken =
    permits === null
      ? await locker.tryAcquire(name, { ...hold, mode })
      : await locker.tryAcquirePermits(name, { ...hold, ...permits })
  if (taken === null) throw new Exit(EXIT.busy, `${JSON.stringify(name)} is taken.`)
  return taken
}
