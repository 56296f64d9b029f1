/** The pause before the next of several rounds: longer each time, and different for clients that failed together. */
import { type Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { sleep } from '../base/clock.ts'
import type { LockerContext } from './context.ts'

const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 2_000

/** For a caller that waits: rejects with the reason of `stop` as soon as that is cancelled. */
export async function backOff(
  { clock, random }: Pick<LockerContext, 'clock' | 'random'>,
  rounds: number,
  stop: Cancellation,
  atMostMs = LONGEST_PAUSE_MS,
): Promise<void> {
  const ms = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** rounds) * (0.5 + random.fraction() / 2)
  const pause = sleep(clock, Math.min(ms, atMostMs), { signal: stop.signal, keepsProcessAlive: true })
  await unlessCancelled(pause, stop)
}
