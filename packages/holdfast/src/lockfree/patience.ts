/** For how long a caller waits: for somebody else's work, and for a database that does not answer. */
import { type Clock, sleep } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'

/** `work` had not settled when the time was over. */
export class OutOfPatience extends Error {}

export class Patience {
  readonly #clock: Clock
  readonly #waitMs: number
  readonly #signal: AbortSignal | undefined
  readonly #startMs: number

  constructor(clock: Clock, waitMs: number, signal: AbortSignal | undefined) {
    this.#clock = clock
    this.#waitMs = waitMs
    this.#signal = signal
    this.#startMs = clock.monotonicMs()
  }

  get waitedMs(): number {
    return this.#clock.monotonicMs() - this.#startMs
  }

  get isOver(): boolean {
    return this.waitedMs >= this.#waitMs
  }

  /**
   * Settles with `work`, or rejects as soon as the signal aborts, with its reason, or the time is over, with
   * `OutOfPatience`; `work` is left to itself then. Who does not want to wait for anybody asks once all the same, and
   * that may take as long as any call.
   */
  limit<T>(work: Promise<T>): Promise<T> {
    const leftMs = this.#waitMs === 0 ? defaults.callTimeoutMs : this.#waitMs - this.waitedMs
    return new Promise<T>((resolve, reject) => {
      const onAbort = () => leave(() => reject(this.#signal?.reason))
      const timer = Number.isFinite(leftMs)
        ? this.#clock.setTimer(leftMs, () => leave(() => reject(new OutOfPatience())), {
            keepsProcessAlive: true,
          })
        : undefined
      const leave = (settle: () => void) => {
        timer?.cancel()
        this.#signal?.removeEventListener('abort', onAbort)
        settle()
      }
      this.#signal?.addEventListener('abort', onAbort, { once: true })
      work.then(
        (value) => leave(() => resolve(value)),
        (error: unknown) => leave(() => reject(error)),
      )
      if (this.#signal?.aborted) onAbort()
    })
  }

  /** At most until the time is over. */
  pause(ms: number): Promise<void> {
    const leftMs = Math.max(0, this.#waitMs - this.waitedMs)
    return sleep(this.#clock, Math.min(ms, leftMs), {
      ...(this.#signal !== undefined && { signal: this.#signal }),
      keepsProcessAlive: true,
    })
  }
}
