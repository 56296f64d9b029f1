/** A clock that stands still until a test moves it: deadlines, renewals and expiries happen when told to. */
import { afterThisTurn, type Clock, type Timer } from '../base/clock.ts'

export interface FakeClock extends Clock {
  /** Moves both clocks, fires every timer that falls due in its order, and lets promises settle in between. */
  advance(ms: number): Promise<void>
  /** Moves both clocks but fires nothing: a blocked event loop or a stopped process. What is due fires at the next `advance`. */
  block(ms: number): void
  /** Moves the wall clock by `ms`, forward or back, as if somebody had set it. The monotonic clock stays. */
  stepWall(ms: number): void
  /** The machine sleeps: the wall clock moves on, the monotonic clock does not. */
  suspend(ms: number): void
  /** Lets promises, and what the event loop has ready, settle. Time stands still. */
  settle(): Promise<void>
  readonly pendingTimers: number
}

interface ArmedTimer {
  readonly dueMs: number
  readonly order: number
  readonly fire: () => void
}

export function createFakeClock(
  start: { readonly monotonicMs?: number; readonly wallMs?: number } = {},
): FakeClock {
  let monotonicMs = start.monotonicMs ?? 1_000_000
  /** The wall clock is this much ahead. Added up by itself, it would lose steps that are too small for its large numbers. */
  let aheadMs = (start.wallMs ?? 1_700_000_000_000) - monotonicMs
  let order = 0
  const timers = new Set<ArmedTimer>()

  const nextDueBy = (limitMs: number): ArmedTimer | undefined => {
    let next: ArmedTimer | undefined
    for (const timer of timers) {
      if (timer.dueMs > limitMs) continue
      if (
        next === undefined ||
        timer.dueMs < next.dueMs ||
        (timer.dueMs === next.dueMs && timer.order < next.order)
      )
        next = timer
    }
    return next
  }

  const settle = async () => {
    // A turn of the event loop drains all microtasks; a few turns also let sockets of this process deliver.
    for (let turn = 0; turn < 4; turn++) await new Promise<void>((resolve) => afterThisTurn(resolve))
  }

  return {
    monotonicMs: () => monotonicMs,
    wallMs: () => monotonicMs + aheadMs,
    setTimer(delayMs, fire): Timer {
      const timer: ArmedTimer = { dueMs: monotonicMs + Math.max(0, delayMs), order: order++, fire }
      timers.add(timer)
      return { cancel: () => void timers.delete(timer) }
    },
    async advance(ms) {
      const endMs = monotonicMs + ms
      await settle()
      for (let timer = nextDueBy(endMs); timer !== undefined; timer = nextDueBy(endMs)) {
        monotonicMs = Math.max(monotonicMs, timer.dueMs)
        timers.delete(timer)
        timer.fire()
        await settle()
      }
      monotonicMs = Math.max(monotonicMs, endMs)
      await settle()
    },
    block(ms) {
      monotonicMs += ms
    },
    stepWall(ms) {
      aheadMs += ms
    },
    suspend(ms) {
      aheadMs += ms
    },
    settle,
    get pendingTimers() {
      return timers.size
    },
  }
}
