/** The clock that one locker is given: it knows which of the locker's timers are set, and since when (T29, late renewals). */
import type { Clock, Timer } from '../../packages/holdfast/src/base/clock.ts'
import type { SimProcess } from './machine.ts'

interface SetTimer {
  readonly sinceMs: number
  readonly keepsProcessAlive: boolean
}

export class LockerClock implements Clock {
  readonly #process: SimProcess
  readonly #set = new Set<SetTimer>()

  constructor(process: SimProcess) {
    this.#process = process
  }

  get timers(): number {
    return this.#set.size
  }

  /** When the oldest of the timers was set that keep the process alive; undefined if there is none. */
  get keepsAliveSinceMs(): number | undefined {
    for (const { keepsProcessAlive, sinceMs } of this.#set) if (keepsProcessAlive) return sinceMs
    return undefined
  }

  monotonicMs(): number {
    return this.#process.monotonicMs()
  }

  wallMs(): number {
    return this.#process.wallMs()
  }

  setTimer(delayMs: number, fire: () => void, options?: { readonly keepsProcessAlive?: boolean }): Timer {
    const { nowMs } = this.#process.machine.scheduler
    const set = { sinceMs: nowMs, keepsProcessAlive: options?.keepsProcessAlive ?? false }
    this.#set.add(set)
    const timer = this.#process.setTimer(delayMs, () => {
      this.#set.delete(set)
      fire()
    })
    return {
      cancel: () => {
        this.#set.delete(set)
        timer.cancel()
      },
    }
  }
}
