/** `holdfast schedule`: the schedule recipe for a command, in the foreground. */
import type { Locker } from 'holdfast'
import { environmentOf, readSignKey } from './environment.ts'
import { messageOf } from './exits.ts'
import { type HoldFlags, ttlOf, withEngine } from './holding.ts'
import { say } from './terminal.ts'
import { runUnderLease } from './under-lease.ts'

export interface ScheduleFlags extends HoldFlags {
  readonly cron: string
  readonly tz?: string
  readonly policy: 'skip' | 'rerun'
  readonly allowUnfenced?: boolean
}

/** Goes on until a signal comes. A signal while the command runs is the command's; the schedule ends with it. */
export async function schedule(
  name: string,
  command: readonly string[],
  flags: ScheduleFlags,
): Promise<number> {
  const key = readSignKey(flags)
  const recipe = await import('holdfast/recipes/schedule')
  return withEngine(flags, async ({ locker, ...stopping }) => {
    const { signals } = stopping
    const { cron, tz, policy, allowUnfenced = false } = flags
    const options = {
      ...{ name, cron, policy, ...ttlOf(flags) },
      ...(tz !== undefined && { timeZone: tz }),
      ...(allowUnfenced && { allowUnfenced: true as const }),
      onError(error: unknown) {
        // A signal came while a tick began.
        if (!signals.cancelled.aborted) say(messageOf(error))
      },
    }
    const running = await recipe.schedule(locker as Locker<'fenced'>, options, async ({ tick, lease }) => {
      const env = await environmentOf(lease, flags, key, { HOLDFAST_TICK: tick.id })
      const { exitCode } = await runUnderLease(lease, command, env, stopping)
      signals.cancelIfAsked()
      if (exitCode !== 0) throw new Error(`the command of tick ${tick.id} ended with ${exitCode}`)
    })
    const { promise, reject } = Promise.withResolvers<never>()
    const { cancelled } = signals
    cancelled.addEventListener('abort', () => reject(cancelled.reason), { once: true })
    try {
      return await promise
    } finally {
      await running.close()
    }
  })
}
