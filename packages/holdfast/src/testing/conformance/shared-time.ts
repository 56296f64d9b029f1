/**
 * Time for many cases that play side by side on one real server. It stands still while any of them is at work, and moves
 * when all of them wait for it, for clients and server alike. So nothing depends on how fast or how busy the machine is,
 * and many TTLs pass in a second.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Clock } from '../../base/clock.ts'
import { createFakeClock } from '../fake-clock.ts'

export interface SharedTimeOptions {
  /** Moves the server's clock, which stands still otherwise, by whole milliseconds. */
  readonly moveServer: (ms: number) => void
  /**
   * How many requests are in flight, and how many there have been, of all clients together. A push that was sent and not yet read
   * counts as in flight.
   */
  readonly traffic: () => { readonly inFlight: number; readonly sent: number }
  /**
   * A case that is at work for longer, in real time, hangs, or was given up by the runner: it has to leave, and time moves on for the
   * others. Default: two minutes. Choose less than the runner's time-out.
   */
  readonly longestWorkMs?: number
}

/** One case. */
export interface Player {
  /** Rejects if the player had to leave. */
  passTime(ms: number): Promise<void>
  leave(): void
}

const LONGEST_WORK_MS = 120_000

/** Answers may lead to more requests, and notifications take a moment to arrive. 4 ms without either count as quiet. */
const QUIET_FOR_MS = 4

interface Sleeper {
  readonly atMs: number
  readonly wake: () => void
}

export class SharedTime {
  /** The clock of all clients. */
  readonly clock: Clock
  readonly #fake = createFakeClock()
  readonly #options: SharedTimeOptions
  readonly #timers = new Set<number[]>()
  readonly #players = new Set<Set<Sleeper>>()
  readonly #startMs = this.#fake.monotonicMs()
  #serverMs = 0
  #isMoving = false

  constructor(options: SharedTimeOptions) {
    this.#options = options
    this.clock = {
      monotonicMs: () => this.#fake.monotonicMs(),
      wallMs: () => this.#fake.wallMs(),
      setTimer: (delayMs, fire, how) => this.#setTimer(delayMs, fire, how),
    }
  }

  /** From now on time does not move unless this one waits for it, or has left. */
  enter(): Player {
    const { longestWorkMs = LONGEST_WORK_MS } = this.#options
    const sleepers = new Set<Sleeper>()
    this.#players.add(sleepers)
    const leave = () => {
      clearTimeout(limit)
      this.#players.delete(sleepers)
      void this.#move()
    }
    const work = () => setTimeout(() => sleepers.size === 0 && leave(), longestWorkMs).unref()
    let limit = work()
    return {
      passTime: async (ms) => {
        if (!this.#players.has(sleepers))
          throw new Error(
            `this case has left: it was at work for more than ${longestWorkMs} ms, or has ended`,
          )
        clearTimeout(limit)
        await new Promise<void>((wake) => {
          sleepers.add({ atMs: this.#fake.monotonicMs() + ms, wake })
          void this.#move()
        })
        limit = work()
      },
      leave,
    }
  }

  async #move(): Promise<void> {
    if (this.#isMoving) return
    this.#isMoving = true
    while (this.#allWait()) {
      await this.#untilQuiet()
      if (!this.#allWait()) break
      // To the next thing that happens: a client's timer, or the end of a wait.
      const sleepers = [...this.#players].flatMap((each) => [...each].map(({ atMs }) => atMs))
      const timers = [...this.#timers].map(([dueMs = Infinity]) => dueMs)
      const stepMs = Math.max(0, Math.min(...sleepers, ...timers) - this.#fake.monotonicMs())
      await this.#fake.advance(stepMs)
      this.#moveServer()
      await this.#untilQuiet()
      this.#wake()
      await this.#fake.settle()
    }
    this.#isMoving = false
  }

  /**
   * In whole milliseconds, and never behind the clients. A server that stands still a microsecond before one of its own
   * alarms is due would ring it, see that it is early, set it for a microsecond later, and do nothing else any more.
   */
  #moveServer(): void {
    const serverMs = Math.ceil(this.#fake.monotonicMs() - this.#startMs)
    this.#options.moveServer(serverMs - this.#serverMs)
    this.#serverMs = serverMs
  }

  #allWait(): boolean {
    return this.#players.size > 0 && [...this.#players].every((sleepers) => sleepers.size > 0)
  }

  #wake(): void {
    for (const sleepers of this.#players) {
      for (const sleeper of [...sleepers]) {
        if (sleeper.atMs > this.#fake.monotonicMs()) continue
        sleepers.delete(sleeper)
        sleeper.wake()
      }
    }
  }

  async #untilQuiet(): Promise<void> {
    for (let before = -1; ; ) {
      const { inFlight, sent } = this.#options.traffic()
      if (inFlight === 0 && sent === before) return
      before = sent
      await sleep(QUIET_FOR_MS)
    }
  }

  #setTimer(delayMs: number, fire: () => void, how?: { readonly keepsProcessAlive?: boolean }) {
    const due = [this.#fake.monotonicMs() + Math.max(0, delayMs)]
    this.#timers.add(due)
    const forget = () => this.#timers.delete(due)
    const timer = this.#fake.setTimer(
      delayMs,
      () => {
        forget()
        fire()
      },
      how,
    )
    return {
      cancel: () => {
        forget()
        timer.cancel()
      },
    }
  }
}
