/** What the commands that hold a name have in common: their flags, checked before anything is locked. */
import type { HoldOptions } from 'holdfast'
import { closeEngine, type EngineFlags, openEngine } from './engine.ts'
import type { EnvironmentFlags } from './environment.ts'
import { type Exit, usageError } from './exits.ts'
import { Signals } from './signals.ts'
import type { Stopping } from './under-lease.ts'

export interface HoldFlags extends EngineFlags, EnvironmentFlags {
  readonly ttl?: number
  readonly stopIn?: number
  readonly note?: string
}

const TTL_MS = 15_000
const STOP_MS = 5_000
const SHARE = 3

export function stopInMsOf({ ttl = TTL_MS, stopIn }: HoldFlags): number {
  const most = ttl / SHARE
  if (stopIn === undefined) return Math.min(STOP_MS, most)
  if (stopIn > 0 && stopIn <= most) return stopIn
  throw usageError(`--stop-in must be more than 0 and at most a third of --ttl, ${Math.floor(most)}ms.`)
}

/** Shown to operators. Arguments may hold secrets, so it is the file alone. */
export function noteOf({ note }: HoldFlags, [file = '']: readonly string[]): string {
  return note ?? `holdfast: ${file}`.slice(0, 200).toWellFormed()
}

export function ttlOf({ ttl }: HoldFlags): Pick<HoldOptions, 'ttlMs'> {
  return ttl === undefined ? {} : { ttlMs: ttl }
}

export interface Holding extends Stopping {
  readonly locker: Awaited<ReturnType<typeof openEngine>>
}

/** Opens the engine, and closes it however `work` ends. A signal meanwhile ends the opening, too. */
export async function withEngine(
  flags: HoldFlags,
  work: (holding: Holding) => Promise<number>,
): Promise<number> {
  const stopInMs = stopInMsOf(flags)
  const signals = new Signals()
  const locker = await unlessCancelled(signals, openEngine(flags))
  try {
    return await work({ locker, clock: locker.clock, stopInMs, signals })
  } finally {
    await closeEngine(locker)
  }
}

/** Opening holds nothing, so it is left to itself. */
function unlessCancelled<T>({ cancelled }: Signals, opening: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    cancelled.addEventListener('abort', () => reject(cancelled.reason as Exit), { once: true })
    opening.then(resolve, reject)
  })
}
