import type { Clock } from 'holdfast'

/** Keeps the process alive meanwhile. */
export function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimer(ms, resolve, { keepsProcessAlive: true }))
}
