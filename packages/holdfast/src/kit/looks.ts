/**
 * When the waiters of this process look at the engine by themselves. The engine pushes grants, but nothing is pushed when time
 * alone changes something (a holder's time is over, a closed name opens), and a push can get lost. One timer serves all names.
 */
import type { Clock, Timer } from '../base/clock.ts'
import type { Random } from '../base/ids.ts'

export interface LooksOptions {
  readonly clock: Clock
  readonly random: Random
  /** The shortest pause between two looks at intervals: 200 means pauses of 200 to 400 ms. */
  readonly pollMs: number
  /** Whether pushes arrive. While they do not, all waiters look at intervals. Default: they do. */
  readonly isTold?: () => boolean
  /** Whether there is a reason to look. */
  readonly isNeeded: () => boolean
  /** Whether the process stays alive for the next look. Default: it does not. */
  readonly keepsProcessAlive?: boolean
  /**
   * Looks at the names that are due, or at all. What it does not call `due` for is not looked at again. Until it has settled,
   * no other look begins. If it rejects, the same look is made once more, one poll later.
   */
  readonly look: (names: ReadonlySet<string>, isForAll: boolean) => Promise<void>
}

export class Looks {
  readonly #options: LooksOptions
  /** When each name is worth a look, on the monotonic clock. */
  readonly #dueMs = new Map<string, number>()
  #allDueMs: number | undefined
  #timer: { readonly handle: Timer; readonly dueMs: number } | undefined
  #isLooking = false
  #isClosed = false

  constructor(options: LooksOptions) {
    this.#options = options
  }

  /** Time alone may change something at this name in so many milliseconds. Of two times the earlier one counts. */
  due(name: string, inMs: number): void {
    const dueMs = this.#nowMs() + inMs
    if ((this.#dueMs.get(name) ?? Infinity) > dueMs) this.#dueMs.set(name, dueMs)
    this.#arm(dueMs)
  }

  /** News may have been missed: looks at all names now. */
  lookAtAll(): void {
    this.#allDueMs = this.#nowMs()
    this.#arm()
  }

  /** A waiter has come for which nothing is due. It polls if news does not arrive. */
  expectNews(): void {
    this.#arm()
  }

  /** No waiter is left. */
  stop(): void {
    this.#dueMs.clear()
    this.#allDueMs = undefined
    this.#timer?.handle.cancel()
    this.#timer = undefined
  }

  close(): void {
    this.#isClosed = true
    this.stop()
  }

  /** One poll from now, with up to as much again at random: not all processes look at the same moment. */
  pollInMs(): number {
    const { pollMs, random } = this.#options
    return pollMs * (1 + random.fraction())
  }

  /** Sets the timer for the next look. While it is set, only the name that is due at `newMs` can make it earlier, and no other is read. */
  #arm(newMs?: number): void {
    const { clock, isTold, isNeeded, keepsProcessAlive = false } = this.#options
    if (this.#isLooking || this.#isClosed || !isNeeded()) return
    if (this.#allDueMs === undefined && isTold?.() === false) this.#allDueMs = this.#nowMs() + this.pollInMs()
    const nextMs = this.#timer === undefined ? this.#firstDueMs() : (newMs ?? Infinity)
    const dueMs = Math.min(this.#allDueMs ?? Infinity, nextMs)
    if (dueMs === Infinity || (this.#timer !== undefined && this.#timer.dueMs <= dueMs)) return
    this.#timer?.handle.cancel()
    const onDue = () => {
      this.#timer = undefined
      void this.#look()
    }
    const handle = clock.setTimer(Math.max(0, dueMs - this.#nowMs()), onDue, { keepsProcessAlive })
    this.#timer = { handle, dueMs }
  }

  async #look(): Promise<void> {
    const nowMs = this.#nowMs()
    const names = new Set<string>()
    for (const [name, dueMs] of this.#dueMs) if (dueMs <= nowMs) names.add(name)
    for (const name of names) this.#dueMs.delete(name)
    const isForAll = this.#allDueMs !== undefined && this.#allDueMs <= nowMs
    if (isForAll) this.#allDueMs = undefined
    if (names.size > 0 || isForAll) {
      this.#isLooking = true
      try {
        await this.#options.look(names, isForAll)
      } catch {
        for (const name of names) this.due(name, this.pollInMs())
        if (isForAll) this.#allDueMs = this.#nowMs() + this.pollInMs()
      }
      this.#isLooking = false
    }
    this.#arm()
  }

  #firstDueMs(): number {
    let firstMs = Infinity
    for (const dueMs of this.#dueMs.values()) firstMs = Math.min(firstMs, dueMs)
    return firstMs
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs()
  }
}
