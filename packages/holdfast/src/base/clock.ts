/**
 * Time, injected. Core and backends never ask the system for the time or for a timer themselves: they take a
 * `Clock`, so that tests and the simulation can drive every deadline. This is the one file that may touch the
 * system's clocks and timers.
 */

import { setImmediate as setImmediateOfSystem } from 'node:timers'
import { callSafely } from './call-safely.ts'
import { ignore } from './ignore.ts'
import { inNeutralContext } from './neutral-context.ts'

/** A point in time on both of a process's clocks; only `elapsedMs` can turn it into a duration. */
export interface Instant {
  readonly monotonicMs: number
  readonly wallMs: number
}

export interface Timer {
  cancel(): void
}

export interface Clock {
  /**
   * Milliseconds on a clock that never goes back. The zero is shared by all processes of one machine; on Bun and Deno,
   * which have no such clock, it is that of the process (`hasSharedZero`).
   */
  monotonicMs(): number
  /** Milliseconds since 1970, as the machine's settable clock says. */
  wallMs(): number
  /**
   * Calls `fire` once after `delayMs` (any length; at least one turn of the event loop later).
   * Timers do not keep a process alive unless asked to: renewals must not, a caller that waits for a lock must.
   * The system's clock calls it in a neutral context: of callers that share a timer, none sees what another has in an
   * `AsyncLocalStorage`.
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
  return elapsedUntil(instantOf(clock), since)
}

/** The same for a caller that has read the clock already. */
export function elapsedUntil(now: Instant, since: Instant): number {
  return Math.max(now.monotonicMs - since.monotonicMs, now.wallMs - since.wallMs)
}

/** Which of two requests was sent later; while the machine slept only the wall clock moved. */
export function laterOf(a: Instant, b: Instant): Instant {
  if (b.monotonicMs === a.monotonicMs) return b.wallMs > a.wallMs ? b : a
  return b.monotonicMs > a.monotonicMs ? b : a
}

/**
 * Which of two is less long ago. Of two confirmations both may be believed, and usually the later one gives more time; after
 * a step of the wall clock it may be the earlier one.
 */
export function fresherOf(now: Instant, a: Instant, b: Instant): Instant {
  return elapsedUntil(now, b) <= elapsedUntil(now, a) ? b : a
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

/** The same, but an abort only ends it: the caller looks at its signal next. */
export async function pause(
  clock: Clock,
  delayMs: number,
  options: { readonly signal?: AbortSignal | undefined; readonly keepsProcessAlive?: boolean },
): Promise<void> {
  const { signal, keepsProcessAlive = false } = options
  await sleep(clock, delayMs, { ...(signal && { signal }), keepsProcessAlive }).catch(ignore)
}

/** For interfaces that take or show a date. It reads no clock. */
export function dateOf(wallMs: number): Date {
  return new Date(wallMs)
}

/** Keeps the process alive while a caller waits. Connections and renewal timers are unref'd. */
export function keepProcessAlive(clock: Clock): Timer {
  return clock.setTimer(Number.MAX_SAFE_INTEGER, () => {}, { keepsProcessAlive: true })
}

// Test runners fake timers by replacing globals, and the functions of node:timers. A turn of the event loop is not time,
// so it must come all the same.
const realSetImmediate = setImmediateOfSystem

/**
 * Judges after `delayMs` whether something is late. A process that was busy or paused finds the timer due before it has read
 * the answers that arrived meanwhile: they are read first, and may cancel it. `firedMs`: when the timer fired, on the
 * monotonic clock. What became due after that instant gets a judgement of its own.
 */
export function judgeLate(
  clock: Clock,
  delayMs: number,
  judge: (firedMs: number) => void,
  options?: { readonly keepsProcessAlive?: boolean },
): Timer {
  let isCancelled = false
  const fire = () => {
    const firedMs = clock.monotonicMs()
    afterThisTurn(() => {
      if (!isCancelled) judge(firedMs)
    })
  }
  const timer = clock.setTimer(delayMs, fire, options)
  return {
    cancel() {
      isCancelled = true
      timer.cancel()
    },
  }
}

/** Runs `work` when this turn of the event loop has written what it had to write. */
export function afterThisTurn(work: () => void): void {
  realSetImmediate(work)
}

// Node fires a timer of more than 2^31 - 1 ms at once, so longer ones are armed in pieces.
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1

/**
 * `performance.now()` leaves no garbage, but counts from the start of the process; `process.hrtime()` counts from a zero
 * that all processes of the machine share. The difference is constant. It is taken between two readings of the second,
 * and from the pair that was closest together: a preemption in between would make it wrong for ever.
 */
function sharedZeroMs(): number {
  let zeroMs = 0
  let closestMs = Number.POSITIVE_INFINITY
  for (let tries = 0; tries < 1_000 && closestMs > CLOSE_ENOUGH_MS; tries++) {
    const beforeMs = hrtimeMs()
    const nowMs = performance.now()
    const apartMs = hrtimeMs() - beforeMs
    if (apartMs >= closestMs) continue
    closestMs = apartMs
    zeroMs = beforeMs + apartMs / 2 - nowMs
  }
  return zeroMs
}

const CLOSE_ENOUGH_MS = 0.005

/** Whether readings of the system's monotonic clock mean something to other processes. Bun and Deno count `hrtime` from their own start. */
export const hasSharedZero = process.versions.bun === undefined && process.versions.deno === undefined

function hrtimeMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1_000 + nanoseconds / 1e6
}

const zeroMs = sharedZeroMs()

export const systemClock: Clock = {
  monotonicMs: () => zeroMs + performance.now(),
  wallMs: () => Date.now(),
  setTimer(delayMs, fire, { keepsProcessAlive = false } = {}) {
    const list = timerListFor(delayMs)
    return list === undefined
      ? new SingleTimer(delayMs, fire, keepsProcessAlive)
      : list.add(fire, keepsProcessAlive)
  },
}

class SingleTimer implements Timer {
  #handle: NodeJS.Timeout | undefined

  constructor(delayMs: number, fire: () => void, keepsProcessAlive: boolean) {
    // Node prints a warning for a negative delay.
    this.#arm(Math.max(0, delayMs), fire, keepsProcessAlive)
  }

  #arm(delayMs: number, fire: () => void, keepsProcessAlive: boolean): void {
    const leftMs = delayMs - LONGEST_TIMEOUT_MS
    const next = leftMs > 0 ? () => this.#arm(leftMs, fire, keepsProcessAlive) : fire
    this.#handle = inNeutralContext(() => setTimeout(next, Math.min(delayMs, LONGEST_TIMEOUT_MS)))
    if (!keepsProcessAlive) this.#handle.unref()
  }

  cancel(): void {
    clearTimeout(this.#handle)
  }
}

/**
 * Timers of one length, in the order in which they are due. Every acquire and every release has a limit, nearly all of
 * them the same, and nearly none comes to its end: one timer of Node's for all of them saves a tenth of the time of an
 * uncontended pair.
 */
class TimerList {
  readonly madeWith = setTimeout
  readonly #delayMs: number
  readonly #head = new ListedTimer()
  #handle: NodeJS.Timeout | undefined
  #keepingAlive = 0

  constructor(delayMs: number) {
    this.#delayMs = delayMs
    this.#head.before = this.#head.after = this.#head
  }

  add(fire: () => void, keepsProcessAlive: boolean): Timer {
    const timer = new ListedTimer()
    timer.list = this
    timer.fire = fire
    timer.dueMs = performance.now() + this.#delayMs
    timer.keepsProcessAlive = keepsProcessAlive
    timer.before = this.#head.before
    timer.after = this.#head
    timer.before.after = this.#head.before = timer
    if (this.#handle === undefined) this.#arm(this.#delayMs)
    if (keepsProcessAlive && this.#keepingAlive++ === 0) this.#handle?.ref()
    return timer
  }

  remove(timer: ListedTimer): void {
    timer.before.after = timer.after
    timer.after.before = timer.before
    // A collected neighbour must not keep those alive that came after it.
    timer.before = timer.after = timer
    if (timer.keepsProcessAlive && --this.#keepingAlive === 0) this.#handle?.unref()
  }

  #arm(delayMs: number): void {
    this.#handle = inNeutralContext(() => setTimeout(() => this.#fireDue(), delayMs))
    if (this.#keepingAlive === 0) this.#handle.unref()
  }

  #fireDue(): void {
    this.#handle = undefined
    const due: ListedTimer[] = []
    // Node's own timers may also come up to a millisecond early.
    const nowMs = performance.now() + 1
    for (let timer = this.#head.after; timer !== this.#head && timer.dueMs <= nowMs; timer = timer.after)
      due.push(timer)
    // From here on the list is in order, whatever the callbacks do.
    const next = due.at(-1)?.after ?? this.#head.after
    if (next !== this.#head) this.#arm(Math.max(1, next.dueMs - nowMs))
    else if (timerLists.get(this.#delayMs) === this) timerLists.delete(this.#delayMs)
    for (const timer of due) timer.fireUnlessCancelled()
  }
}

class ListedTimer implements Timer {
  before: ListedTimer = this
  after: ListedTimer = this
  list: TimerList | undefined
  fire: (() => void) | undefined
  dueMs = 0
  keepsProcessAlive = false

  cancel(): void {
    if (this.fire === undefined) return
    this.fire = undefined
    this.list?.remove(this)
  }

  fireUnlessCancelled(): void {
    const { fire } = this
    this.cancel()
    if (fire !== undefined) callSafely(fire)
  }
}

const timerLists = new Map<number, TimerList>()
/** Shorter timers do fire, and timers of odd lengths have none to share with. */
const SHORTEST_LISTED_MS = 1_000
const MOST_LISTS = 16

function timerListFor(delayMs: number): TimerList | undefined {
  const list = timerLists.get(delayMs)
  // Tests replace the system's timers for a while. A timer that was armed then may never fire.
  if (list?.madeWith === setTimeout) return list
  const isSuited = delayMs >= SHORTEST_LISTED_MS && delayMs <= LONGEST_TIMEOUT_MS && Number.isInteger(delayMs)
  if (!isSuited || timerLists.size >= MOST_LISTS) return undefined
  const made = new TimerList(delayMs)
  timerLists.set(delayMs, made)
  return made
}
