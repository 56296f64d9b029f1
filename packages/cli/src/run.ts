/** `holdfast run`: waits, holds, runs, releases. */
import { EXIT, Exit, usageError } from './exits.ts'
import { type HoldFlags, type Holding, holding, noteOf } from './holding.ts'

export interface RunFlags extends HoldFlags {
  readonly wait: number
  readonly shared?: boolean
  readonly weight?: number
  readonly holdAtLeast?: number
}

export async function run(name: string, command: readonly string[], flags: RunFlags): Promise<number> {
  if (flags.shared && flags.capacity !== undefined)
    throw usageError('--shared and --capacity exclude each other: a semaphore has no readers.')
  if (flags.weight !== undefined && flags.capacity === undefined)
    throw usageError('--weight needs --capacity, the number of permits in all.')
  return holding(flags, command, async (held) => {
    const lease = await obtain(name, noteOf(flags, command), flags, held)
    try {
      return (await held.run(lease)).exitCode
    } finally {
      await lease.release()
    }
  })
}

async function obtain(name: string, note: string, flags: RunFlags, { locker, ttlMs, signals }: Holding) {
  const { wait, capacity, weight, holdAtLeast, maxHold, shared } = flags
  const hold = {
    ttlMs,
    ...(holdAtLeast !== undefined && { holdAtLeastMs: holdAtLeast }),
    ...(maxHold !== undefined && { maxHoldMs: maxHold }),
    note,
    // The command's owner knows how long it takes.
    warnHoldMs: Number.POSITIVE_INFINITY,
    signal: signals.cancelled,
  }
  const lock = { ...hold, mode: shared ? 'shared' : 'exclusive' } as const
  const permits = capacity === undefined ? null : { ...hold, capacity, ...(weight && { weight }) }
  if (wait > 0)
    return permits === null
      ? locker.acquire(name, { ...lock, waitMs: wait })
      : locker.acquirePermits(name, { ...permits, waitMs: wait })
  const taken = await (permits === null
    ? locker.tryAcquire(name, lock)
    : locker.tryAcquirePermits(name, permits))
  if (taken === null) throw new Exit(EXIT.busy, `${JSON.stringify(name)} is taken.`)
  return taken
}
