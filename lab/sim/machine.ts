/**
 * A machine with its two clocks, and the processes that run on it.
 *
 *   running ──stop──▶ paused      both clocks go on, nothing is run (SIGSTOP, a long collection, a stalled hypervisor)
 *   running ──stop──▶ suspended   the monotonic clock stands still, the wall clock goes on
 *   running ──stop──▶ blocked     as paused, but the code that blocked is the first to go on (T8)
 *   … ──its time is up──▶ running what was held back runs now, late and in order
 */
import type { Clock, Timer } from '../../packages/holdfast/src/base/clock.ts'
import type { Stream } from './random.ts'
import type { Scheduler } from './scheduler.ts'

export interface MachineClock {
  readonly monotonicOffsetMs: number
  readonly wallOffsetMs: number
  /** How fast its oscillator runs: 1.004 gains 4 ms a second. */
  readonly rate: number
}

export type StopKind = 'paused' | 'suspended' | 'blocked'

const WALL_EPOCH_MS = 1_790_000_000_000
/** Less than a clock tick: what floating point makes of equal times. */
const EPSILON_MS = 1e-6

export class Machine {
  readonly scheduler: Scheduler
  readonly #clock: MachineClock
  readonly #dice: Stream
  #stop: { kind: StopKind; sinceMs: number; untilMs: number } | undefined
  #suspendedMs = 0
  #steppedMs = 0
  #held: (() => void)[] = []
  #heldTimers: ProcessTimer[] = []
  #onUnblocked: (() => void) | undefined
  /** When it last ran on after a stop; nothing can be asked of it in the same instant. */
  resumedAtMs = Number.NEGATIVE_INFINITY
  /** When it was last seen standing still. */
  lastStopMs = Number.NEGATIVE_INFINITY
  wasSuspended = false

  constructor(scheduler: Scheduler, clock: MachineClock, dice: Stream) {
    this.scheduler = scheduler
    this.#clock = clock
    this.#dice = dice
  }

  get isStopped(): boolean {
    return this.#stop !== undefined
  }

  get rate(): number {
    return this.#clock.rate
  }

  monotonicMs(): number {
    const standingMs = this.#stop?.kind === 'suspended' ? this.scheduler.nowMs - this.#stop.sinceMs : 0
    const ranMs = this.scheduler.nowMs - this.#suspendedMs - standingMs
    return this.#clock.monotonicOffsetMs + ranMs * this.#clock.rate
  }

  wallMs(): number {
    const { wallOffsetMs, rate } = this.#clock
    return Math.floor(WALL_EPOCH_MS + wallOffsetMs + this.scheduler.nowMs * rate + this.#steppedMs)
  }

  stepWall(byMs: number): void {
    this.#steppedMs += byMs
  }

  /** Nothing of it runs for `forMs`; a second stop only prolongs the first. */
  stop(kind: StopKind, forMs: number, onUnblocked?: () => void): void {
    const untilMs = this.scheduler.nowMs + forMs
    if (this.#stop !== undefined) {
      this.#stop.untilMs = Math.max(this.#stop.untilMs, untilMs)
      this.lastStopMs = this.#stop.untilMs
      return
    }
    this.#stop = { kind, sinceMs: this.scheduler.nowMs, untilMs }
    if (kind === 'suspended') this.wasSuspended = true
    this.#onUnblocked = onUnblocked
    this.lastStopMs = untilMs
    this.scheduler.at(untilMs, () => this.#resume())
  }

  /** Runs `work` now, or when the machine runs on. */
  whenRunning(work: () => void): void {
    if (this.#stop === undefined) work()
    else this.#held.push(work)
  }

  timerIsDue(timer: ProcessTimer): void {
    if (this.#stop === undefined) timer.fire()
    else this.#heldTimers.push(timer)
  }

  #resume(): void {
    const stop = this.#stop
    if (stop === undefined) return
    if (stop.untilMs > this.scheduler.nowMs) {
      this.scheduler.at(stop.untilMs, () => this.#resume())
      return
    }
    if (stop.kind === 'suspended') this.#suspendedMs += this.scheduler.nowMs - stop.sinceMs
    this.#stop = undefined
    this.resumedAtMs = this.scheduler.nowMs
    const timers = this.#heldTimers.sort((a, b) => a.dueMs - b.dueMs).map((timer) => () => timer.fire())
    // Whether a process that goes on looks at its timers or at its sockets first depends on where it stood.
    const held = this.#dice.chance(0.7) ? [...timers, ...this.#held] : [...this.#held, ...timers]
    this.#heldTimers = []
    this.#held = []
    this.#onUnblocked?.()
    this.#onUnblocked = undefined
    for (const work of held) this.scheduler.at(this.scheduler.nowMs, () => this.whenRunning(work))
  }
}

interface ProcessTimer {
  readonly dueMs: number
  fire(): void
}

/** One process: its timers die with it. */
export class SimProcess implements Clock {
  readonly machine: Machine
  readonly #dice: Stream
  #alive = true
  /** Timers that are set, for the check that closing leaves none behind. */
  timers = 0

  constructor(machine: Machine, dice: Stream) {
    this.machine = machine
    this.#dice = dice
  }

  get isAlive(): boolean {
    return this.#alive
  }

  kill(): void {
    this.#alive = false
  }

  monotonicMs(): number {
    return this.machine.monotonicMs()
  }

  wallMs(): number {
    return this.machine.wallMs()
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    if (!this.#alive || delayMs === Number.POSITIVE_INFINITY) return { cancel: () => {} }
    const { machine } = this
    // Node's timers take at least 1 ms, are late by a little, and now and then early by a fraction of a millisecond.
    const dueMs = machine.monotonicMs() + Math.max(1, delayMs) + this.#dice.between(-0.4, 1)
    let isSet = true
    this.timers++
    const unset = () => {
      if (!isSet) return
      isSet = false
      this.timers--
    }
    const timer: ProcessTimer = {
      dueMs,
      fire: () => {
        if (!isSet || !this.#alive) return
        const leftMs = dueMs - machine.monotonicMs()
        // A suspension has pushed it back.
        if (leftMs > EPSILON_MS) arm(leftMs)
        else {
          unset()
          fire()
        }
      },
    }
    let scheduled = { cancel: () => {} }
    const arm = (leftMs: number) => {
      scheduled = machine.scheduler.after(leftMs / machine.rate, () => machine.timerIsDue(timer))
    }
    arm(dueMs - machine.monotonicMs())
    return {
      cancel: () => {
        unset()
        scheduled.cancel()
      },
    }
  }

  /** Something arrives from outside: handled when the process runs, never when it is dead. */
  deliver(work: () => void): void {
    this.machine.whenRunning(() => {
      if (this.#alive) work()
    })
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.setTimer(ms, resolve))
  }
}
