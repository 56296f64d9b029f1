/** One machine with a locker on it: its clocks, its network, and its locker's lives. */

import type { Random } from '../../../src/base/ids.ts'
import type { Locker } from '../../../src/base/types.ts'
import { type MemoryEngine, memory } from '../../../src/engines/memory/index.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import type { Backend } from '../../../src/spi.ts'
import type { FakeClock } from '../../../src/testing/fake-clock.ts'
import { type Fault, type FaultPlan, randomFaults } from '../../../src/testing/faults.ts'
import { type FaultyBackend, faultyBackend } from '../../../src/testing/faulty-backend.ts'
import { weakenWaiting } from '../../../src/testing/weaken-waiting.ts'
import { LATEST_MS } from './commands.ts'
import type { History } from './history.ts'
import { MachineClock } from './machine-clock.ts'

/** A bug of the bank, to see that the checks notice: of the engine, of its client (beyond the network), or of the locker. */
export interface Planted {
  readonly engine?: (backend: Backend<'fenced'>) => Backend<'fenced'>
  readonly client?: (backend: Backend<'fenced'>) => Backend<'fenced'>
  readonly locker?: (locker: Locker<'fenced'>) => Locker<'fenced'>
  /** How fast the engine's clock runs. */
  readonly engineRate?: number
}

export interface MachineParts {
  readonly world: FakeClock
  readonly engine: MemoryEngine
  readonly history: History
  readonly random: Random
  readonly planted: Planted
  readonly waiting: (typeof waitings)[number]
}

/** How the machines wait: in the engine's line, when notified, or by polling. */
export const waitings = ['queue', 'queue', 'poll'] as const
/** More calls than this without any time passing are a loop. */
const MANY_CALLS = 2_000
/** Within what 1 % of drift allows. */
const rates = [1, 0.993, 1.007]
export const CALL_TIMEOUT_MS = 250

export class Machine {
  readonly number: number
  readonly clock: MachineClock
  readonly #parts: MachineParts
  #faults: FaultyBackend<'fenced'>
  #locker: Locker<'fenced'>
  #plan: FaultPlan = () => null
  #callsSinceMs = 0
  #calls = 0

  constructor(number: number, parts: MachineParts) {
    this.number = number
    this.#parts = parts
    this.clock = new MachineClock(parts.world, rates[number % rates.length] ?? 1)
    this.#faults = this.#connect()
    this.#locker = this.#start()
  }

  get locker(): Locker<'fenced'> {
    return this.#locker
  }

  get faults(): FaultyBackend<'fenced'> {
    return this.#faults
  }

  /** Clocks that can be set back do not sleep: together the two would deceive any client (see G3). */
  get maySleep(): boolean {
    return this.number % 2 === 0
  }

  /** Closes the locker and starts another one, as a restarted process does. */
  restart(graceMs: number): Promise<void> {
    const closing = this.#locker.close({ graceMs })
    this.#faults = this.#connect()
    this.#locker = this.#start()
    return closing
  }

  storm(seed: number): void {
    this.#plan = randomFaults({ rate: 0.2, seed, maxLateMs: LATEST_MS })
  }

  calm(): void {
    this.#plan = () => null
  }

  #connect(): FaultyBackend<'fenced'> {
    const { engine, random, history, planted, world, waiting } = this.#parts
    const direct = memory({ engine, random, clock: this.clock })
    const recorded = history.recording(planted.engine?.(direct) ?? direct)
    const weakened = waiting === 'queue' ? recorded : weakenWaiting(recorded)
    // Requests in flight on the network arrive also while the machine sleeps.
    return faultyBackend(weakened, { clock: world, plan: (call) => this.#loop() ?? this.#plan(call) })
  }

  /** A loop that lets no time pass would never end: it is reported and cut short (T28, one wake-up a release; T32, hot renewals). */
  #loop(): Fault | null {
    const nowMs = this.#parts.world.monotonicMs()
    if (nowMs !== this.#callsSinceMs) this.#calls = 0
    this.#callsSinceMs = nowMs
    if (++this.#calls < MANY_CALLS) return null
    this.#parts.history.violations.push(`T28 ${this.#calls} calls in no time`)
    return { kind: 'lost-request' }
  }

  #start(): Locker<'fenced'> {
    const options = { holder: `machine ${this.number}`, callTimeoutMs: CALL_TIMEOUT_MS }
    const { planted } = this.#parts
    const locker = createLocker(planted.client?.(this.#faults) ?? this.#faults, options)
    return planted.locker?.(locker) ?? locker
  }
}
