/** How long a caller waits: for the work of another caller, and for a database that does not answer. */
import { Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { type Clock, sleep, type Timer } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import { settledWithin } from '../base/within.ts'

/** The time was over before the work had settled. */
export class OutOfPatience extends Error {}

export class Patience {
  readonly #clock: Clock
  readonly #waitMs: number
  readonly #startMs: number
  readonly #stop = new Cancellation()
  readonly #timer: Timer | undefined
  readonly #untie: () => void

  /** A caller that does not wait (`waitMs` 0) asks once all the same, and that may take as long as any call. */
  constructor(clock: Clock, waitMs: number, signal?: AbortSignal) {
    this.#clock = clock
    this.#waitMs = waitMs
    this.#startMs = clock.monotonicMs()
    this.#untie = this.#stop.follow(signal)
    const limitMs = waitMs === 0 ? defaults.callTimeoutMs : waitMs
    const end = () => this.#stop.cancel(new OutOfPatience())
    this.#timer = Number.isFinite(limitMs)
      ? clock.setTimer(limitMs, end, { keepsProcessAlive: true })
      : undefined
  }

  get waitedMs(): number {
    return this.#clock.monotonicMs() - this.#startMs
  }

  get isOver(): boolean {
    return this.waitedMs >= this.#waitMs
  }

  /** Aborts with the reason of the caller's signal, or with `OutOfPatience`. */
  get signal(): AbortSignal {
    return this.#stop.signal
  }

  /** Settles with `work`, or rejects as soon as `signal` aborts; `work` is left to itself then. */
  limit<T>(work: Promise<T>): Promise<T> {
    return unlessCancelled(work, this.#stop)
  }

  /** At most until the time is over. */
  async pause(ms: number): Promise<void> {
    const leftMs = Math.max(0, this.#waitMs - this.waitedMs)
    await sleep(this.#clock, Math.min(ms, leftMs), { signal: this.signal, keepsProcessAlive: true }).catch(
      (error: unknown) => {
        if (!(error instanceof OutOfPatience)) throw error
      },
    )
  }

  end(): void {
    this.#timer?.cancel()
    this.#untie()
  }
}

/** Rejects with `OutOfPatience` if `work` has not settled within `ms`. */
export function within<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  return settledWithin(clock, ms, work, { reason: () => new OutOfPatience(), keepsProcessAlive: true })
}
