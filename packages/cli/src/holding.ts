/** What the commands that hold a name have in common: their flags, checked before anything is locked. */
import { type AnyLocker, defaults, type Fence, type LeaseBase } from 'holdfast'
import { type EngineFlags, withEngine } from './engine.ts'
import { type EnvironmentFlags, environmentOf, readSignKey } from './environment.ts'
import { usageError } from './exits.ts'
import { Signals } from './signals.ts'
import { type CommandEnd, runUnderLease } from './under-lease.ts'

export interface HoldFlags extends EngineFlags, EnvironmentFlags {
  readonly ttl?: number
  readonly stopIn?: number
  readonly note?: string
  readonly maxHold?: number
  readonly capacity?: number
}

const STOP_MS = 5_000
const SHARE = 3

/** A third of the time that the command has at most: so much is never left while renewals succeed. */
export function stopInMsOf({ stopIn, maxHold = Number.POSITIVE_INFINITY }: HoldFlags, ttlMs: number): number {
  const most = Math.min(ttlMs, maxHold) / SHARE
  if (stopIn === undefined) return Math.min(STOP_MS, most)
  if (stopIn > 0 && stopIn <= most) return stopIn
  throw usageError(
    `--stop-in must be more than 0 and at most a third of --ttl and of --max-hold, ${Math.floor(most)}ms.`,
  )
}

/** Shown to operators. Arguments may hold secrets, so it is the file alone. */
export function noteOf({ note }: HoldFlags, [file = '']: readonly string[]): string {
  return note ?? `holdfast: ${file}`.slice(0, 200).toWellFormed()
}

export interface Holding {
  readonly locker: AnyLocker
  readonly ttlMs: number
  readonly signals: Signals
  /** Runs the command under this lease. `further`: variables of its environment. */
  run(
    lease: LeaseBase & { readonly fence?: Fence },
    further?: Readonly<Record<string, string>>,
  ): Promise<CommandEnd>
}

export function holding(
  flags: HoldFlags,
  command: readonly string[],
  work: (holding: Holding) => Promise<number>,
): Promise<number> {
  const key = readSignKey(flags)
  const signals = new Signals()
  const hold = (locker: AnyLocker) => {
    const { clock, fencing, info } = locker
    if (key !== undefined && (fencing === 'unfenced' || flags.capacity !== undefined))
      throw usageError(
        '--sign-key-file signs a fence, and neither a permit nor a lease of an unfenced engine has one.',
      )
    const ttlMs = flags.ttl ?? Math.min(Math.max(defaults.ttlMs, info.ttlMs.min), info.ttlMs.max)
    const stopping = { clock, stopInMs: stopInMsOf(flags, ttlMs), signals }
    const run: Holding['run'] = async (lease, further) =>
      runUnderLease(lease, command, await environmentOf(lease, flags, key, further), stopping)
    return work({ locker, ttlMs, signals, run })
  }
  return withEngine(flags, async (locker) => hold(locker), signals)
}
