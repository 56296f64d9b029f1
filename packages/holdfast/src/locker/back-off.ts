/** The pause before the next of several rounds: longer each time, and different for clients that failed together. */

import { type Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { sleep } from '../base/clock.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type { LockerContext } from './context.ts'

const PAUSES = { firstMs: 10, longestMs: 2_000 }

/** For a caller that waits: rejects with the reason of `stop` as soon as that is cancelled. */
export async function backOff(
  { clock, random }: Pick<LockerContext, 'clock' | 'random'>,
  rounds: number,
  stop: Cancellation,
  atMostMs = PAUSES.longestMs,
): Promise<void> {
  const ms = growingPauseMs(rounds, PAUSES) * (0.5 + random.fraction() / 2)
  const pause = sleep(clock, Math.min(ms, atMostMs), { signal: stop.signal, keepsProcessAlive: true })
  await unlessCancelled(pause, stop)
}
