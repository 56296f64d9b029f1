/**
 * Cases in real time rest on a premise: a step of theirs takes less than the world's `resolutionMs`. On an overloaded machine a
 * request may take seconds, leases run out meanwhile, and a case fails that shows nothing. So cases begin one by one, while the
 * machine keeps up, and one that has failed while it did not is played again. A case that fails on a machine that keeps up
 * fails at once.
 */
import { setTimeout as sleep } from 'node:timers/promises'

const EVERY_MS = 50
const MAX_TRIES = 5
/** A machine that never keeps up must not stop the tests. */
const LONGEST_TURN_MS = 5_000

export class Lateness implements Disposable {
  readonly #allowedMs: number
  readonly #measured: { readonly atMs: number; readonly lateMs: number }[] = []
  readonly #turns: { readonly sinceMs: number; readonly begin: () => void }[] = []
  #isOver = false

  /** `ask`: a short request to the engine. How late this process and the engine are shows in its duration. */
  constructor(allowedMs: number, ask: () => Promise<unknown>) {
    this.#allowedMs = allowedMs
    void this.#measure(ask)
  }

  /** When a case may begin. */
  turn(): Promise<void> {
    return new Promise((begin) => this.#turns.push({ sinceMs: performance.now(), begin }))
  }

  /** The longest that anything took since then. */
  since(fromMs: number): number {
    return Math.max(0, ...this.#measured.filter(({ atMs }) => atMs >= fromMs).map(({ lateMs }) => lateMs))
  }

  /** Plays a case, and again if it has failed while the machine was late. */
  async play(body: () => Promise<void>): Promise<void> {
    for (let tries = 1; ; tries++) {
      await this.turn()
      const fromMs = performance.now()
      try {
        return await body()
      } catch (error) {
        const lateMs = this.since(fromMs)
        if (tries === MAX_TRIES || lateMs <= this.#allowedMs) throw error
        console.warn(`played again, because the machine was late by ${Math.round(lateMs)} ms: ${error}`)
      }
    }
  }

  [Symbol.dispose](): void {
    this.#isOver = true
  }

  async #measure(ask: () => Promise<unknown>): Promise<void> {
    while (!this.#isOver) {
      const fromMs = performance.now()
      await ask().catch(() => {})
      await sleep(EVERY_MS)
      const atMs = performance.now()
      const lateMs = atMs - fromMs - EVERY_MS
      this.#measured.push({ atMs, lateMs })
      const [next] = this.#turns
      if (next === undefined || (lateMs > this.#allowedMs && atMs - next.sinceMs < LONGEST_TURN_MS)) continue
      this.#turns.shift()
      next.begin()
    }
  }
}
