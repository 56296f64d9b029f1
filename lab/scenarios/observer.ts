/** The clock of the observer: the machine's monotonic one, which all processes of a run read alike. */
import { systemClock } from '../../packages/holdfast/src/base/clock.ts'

export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

/**
 * The library counts on the same clock from a zero of its own making; this is how far that is off in this process. If
 * the process is interrupted between the two readings, the difference comes out too small, so the largest is right.
 */
const offMs = Math.max(...Array.from({ length: 50 }, () => nowMs() - systemClock.monotonicMs()))

/** A moment on the library's clock, as the observer's clock has it. */
export function observed(libraryMs: number): number {
  return libraryMs + offMs
}
