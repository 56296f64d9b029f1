/** `holdfast schedule`: the schedule recipe for a command, in the foreground. */
import type { Locker } from 'holdfast'
import { messageOf } from './exits.ts'
import { type HoldFlags, holding } from './holding.ts'
import { say } from './terminal.ts'

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
  const recipe = await import('holdfast/recipes/schedule')
  return holding(flags, command, async ({ locker, ttlMs, signals, run }) => {
    const { cron, tz, policy, allowUnfenced = false } = flags
    const options = {
      ...{ name, cron, policy, ttlMs },
      ...(tz !== undefined && { timeZone: tz }),
      ...(allowUnfenced && { allowUnfenced: true as const }),
      onError(error: unknown) {
        // A signal came while a tick began.
        if (!signals.cancelled.aborted) say(messageOf(error))
      },
    }
    const running = await recipe.schedule(locker as Locker<'fenced'>, options, async ({ tick, lease }) => {
      const { exitCode } = await run(lease, { HOLDFAST_TICK: tick.id })
      signals.cancelIfAsked()
      if (exitCode !== 0) throw new Error(`the command of tick ${tick.id} ended with ${exitCode}`)
    })
    return await signals.unlessCancelled(new Promise<never>(() => {})).finally(() => running.close())
  })
}
