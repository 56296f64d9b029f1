/**
 * Time, injected. Core and backends never ask the system for the time or for a timer themselves: they take a
 * `Clock`, so that tests and the simulation can drive every deadline. This is the one file that may touch the
 * system's clocks and timers.
 */

/** A point in time on both of a process's clocks; only `elapsedMs` can turn it into a duration. */
export interface Instant {
  readonly monotonicMs: number
  readonly wallMs: number
}

export interface Timer {
  cancel(): void
}

export interface Clock {
  /** Milliseconds on a clock that never goes back. The zero is shared by all processes of one machine. */
  monotonicMs(): number
  /** Milliseconds since 1970, as the machine's settable clock says. */
  wallMs(): number
  /**
   * Calls `fire` once after `delayMs` (any length; at least one turn of the event loop later).
   * Timers do not keep a process alive unless asked to: renewals must not, a caller who waits for a lock must.
   */
  setTimer(delayMs: number, fire: () => void, options?: { readonly keepsProcessAlive?: boolean }): Timer
}

export function instantOf(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() }
}

/**
 * How long ago `since` was: the larger of the two clocks' answers (G3). A suspended machine stops the
 * monotonic clock and a step moves the wall clock; believing the larger can only end a lease early.
 */
export function elapsedMs(clock: Clock, since: Instant): number {
  return Math.max(clock.monotonicMs() - since.monotonicMs, clock.wallMs() - since.wallMs)
}

/** Which of two requests was sent later; while the machine slept only the wall clock moved. */
export function laterOf(a: Instant, b: Instant): Instant {
  if (b.monotonicMs === a.monotonicMs) return b.wallMs > a.wallMs ? b : a
  return b.monotonicMs > a.monotonicMs ? b : a
}

/** Resolves after `delayMs`, or rejects with the signal's reason as soon as it aborts. */
export function sleep(
  clock: Clock,
  delayMs: number,
  options: { readonly signal?: AbortSignal; readonly keepsProcessAlive?: boolean } = {},
): Promise<void> {
  const { signal, keepsProcessAlive = false } = options
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const onAbort = () => {
      timer.cancel()
      reject(signal?.reason)
    }
    const timer = clock.setTimer(
      delayMs,
      () => {
        signal?.removeEventListener('abort', onAbort)
        resolve()
      },
      { keepsProcessAlive },
    )
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}

// Node fires a timer of more than 2^31 - 1 ms at once, so longer ones are armed in pieces.
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1

export const systemClock: Clock = {
  // Read anew each time: performance.now() is cheaper but counts from the start of the process, and an offset between
  // the two that was taken once would be wrong for ever if the process was preempted while taking it.
  monotonicMs: () => {
    const [seconds, nanoseconds] = process.hrtime()
    return seconds * 1_000 + nanoseconds / 1e6
  },
  wallMs: () => Date.now(),
  setTimer(delayMs, fire, options) {
    // Node prints a warning for a negative delay.
    let leftMs = Math.max(0, delayMs)
    let handle: NodeJS.Timeout
    const arm = () => {
      const pieceMs = Math.min(leftMs, LONGEST_TIMEOUT_MS)
      leftMs -= pieceMs
      handle = setTimeout(() => (leftMs > 0 ? arm() : fire()), pieceMs)
      if (!options?.keepsProcessAlive) handle.unref()
    }
    arm()
    return { cancel: () => clearTimeout(handle) }
  },
}
