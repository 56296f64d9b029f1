/** Several machines over one engine, everything that their callers hold or wait for, and what must be true of it. */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../../src/base/errors.ts'
import type { LeaseBase, LeaseState } from '../../../src/base/types.ts'
import { MemoryEngine } from '../../../src/engines/memory/engine.ts'
import { createFakeClock, type FakeClock } from '../../../src/testing/fake-clock.ts'
import { seededRandom } from '../../../src/testing/seeded-random.ts'
import { MACHINES } from './commands.ts'
import { History } from './history.ts'
import { Machine, type Planted, waitings } from './machine.ts'
import { MachineClock } from './machine-clock.ts'

export const NAMESPACE = 'default'

export interface HeldLease {
  readonly lease: LeaseBase
  readonly ttlMs: number
  readonly number: number
  last: LeaseState
}

/** A call that somebody makes, from its start to its end. */
export interface PendingCall {
  readonly what: string
  readonly caller: AbortController
  readonly machine: Machine | undefined
  readonly startedMs: number
  readonly waitMs: number
}

export class LockerWorld {
  readonly clock: FakeClock = createFakeClock()
  readonly engine: MemoryEngine
  readonly history: History
  readonly machines: readonly Machine[]
  readonly pending = new Set<PendingCall>()
  readonly #leases: HeldLease[] = []

  constructor(seed: number, planted: Planted = {}) {
    const random = seededRandom(seed)
    const engineClock =
      planted.engineRate === undefined ? this.clock : new MachineClock(this.clock, planted.engineRate)
    this.engine = new MemoryEngine({ clock: engineClock, random })
    this.history = new History(this.engine, this.clock)
    this.history.onHolderChange = (name) => this.#judgeBelief(name)
    const parts = { world: this.clock, engine: this.engine, history: this.history, random, planted }
    this.machines = Array.from({ length: MACHINES }, (_, number) => {
      const waiting = waitings[Math.floor(random.fraction() * waitings.length)] ?? 'queue'
      return new Machine(number, { ...parts, waiting })
    })
  }

  machine(number: number): Machine {
    const machine = this.machines[number % this.machines.length]
    assert(machine !== undefined)
    return machine
  }

  // --- what callers do -------------------------------------------------------------------------------------

  /**
   * Follows a call to its end. Its rejection must be one of these codes, the caller's own reason, or `own` (G11).
   * Nobody awaits it: it may take until time has passed.
   */
  follow<T>(
    call: Pick<PendingCall, 'what' | 'caller'> & Partial<PendingCall>,
    allowed: readonly string[],
    run: () => Promise<T>,
    onResult: (result: T) => void = () => {},
    own?: unknown,
  ): void {
    const machine = call.machine
    const startedMs = machine?.clock.monotonicMs() ?? this.clock.monotonicMs()
    const pending: PendingCall = { machine, startedMs, waitMs: Number.POSITIVE_INFINITY, ...call }
    this.pending.add(pending)
    const noted = (check: () => void) => {
      this.pending.delete(pending)
      try {
        check()
      } catch (error) {
        this.history.violations.push(`${call.what}: ${(error as Error).message}`)
      }
    }
    run().then(
      (result) => noted(() => onResult(result)),
      (error: unknown) => noted(() => this.#judgeRejection(pending, allowed, own, error)),
    )
  }

  #judgeRejection(call: PendingCall, allowed: readonly string[], own: unknown, error: unknown): void {
    if (error === own && own !== undefined) return
    if (call.caller.signal.aborted && error === call.caller.signal.reason) return
    assert(isHoldfastError(error), `G11 rejected with ${String(error)}`)
    assert(allowed.includes(error.code), `G11 rejected with ${error.code}`)
    const waitedMs = (call.machine?.clock ?? this.clock).monotonicMs() - call.startedMs
    if (error.code === 'ACQUIRE_TIMEOUT')
      assert(waitedMs >= call.waitMs - 1e-6, `T26 gave up after ${waitedMs} of ${call.waitMs} ms`)
  }

  hold(lease: LeaseBase, ttlMs: number): void {
    const number = this.#leases.length
    this.#leases.push({ lease, ttlMs, number, last: 'held' })
    assert(isLive(lease.state), `T6 handed out ${lease.state}`)
    const token = this.history.tokenOf(lease.name, lease.id)
    const shown = 'fence' in lease ? (lease.fence as { token: bigint } | undefined)?.token : undefined
    if (token !== undefined && shown !== undefined) assert.equal(shown, token, "G2 the token is the engine's")
    // Half of the holders listen from the start, the others look when it is over: both must see the same.
    if (number % 2 === 0) assert(!lease.signal.aborted)
  }

  /** One of those that are still held, the latest first, or undefined. */
  lease(number: number): HeldLease | undefined {
    const live = this.#leases.filter(({ lease }) => isLive(lease.state))
    return live[live.length - 1 - (number % Math.max(1, live.length))]
  }

  /** One of the latest, held or not. */
  anyLease(number: number): HeldLease | undefined {
    return this.#leases[this.#leases.length - 1 - (number % Math.max(1, Math.min(6, this.#leases.length)))]
  }

  get liveLeases(): LeaseBase[] {
    return this.#leases.map(({ lease }) => lease).filter((lease) => isLive(lease.state))
  }

  // --- what must be true -----------------------------------------------------------------------------------

  check(): void {
    assert.deepEqual(this.history.violations, [])
    for (const held of this.#leases) this.#checkLease(held)
    for (const { name, capacity, holders, waiters, closedForMs } of this.engine.list(NAMESPACE, '').items) {
      const weight = holders.reduce((sum, holder) => sum + holder.weight, 0)
      assert(weight <= capacity, `G1 ${name} is held by ${weight} of ${capacity}`)
      const first = waiters[0]
      const waitsForNothing = first !== undefined && closedForMs === 0 && weight + first.weight <= capacity
      assert(!waitsForNothing, `G10 the first in line for ${name} waits for nothing`)
    }
  }

  #checkLease(held: HeldLease): void {
    const { lease } = held
    const problem = this.#problemOf(held)
    assert(problem === null, problem ?? '')
    const { state } = lease
    held.last = state
    assert.equal(lease.remainingMs > 0, isLive(state), `G3 ${state} with ${lease.remainingMs} ms left`)
    if (held.number % 2 === 0 || !isLive(state))
      assert.equal(lease.signal.aborted, state === 'lost', `the signal of a lease that is ${state}`)
    if (state === 'lost') assert(isHoldfastError(lease.signal.reason, 'LEASE_LOST'))
  }

  #judgeBelief(name: string): void {
    for (const held of this.#leases) {
      const problem = held.lease.name === name ? this.#problemOf(held) : null
      if (problem !== null) this.history.violations.push(problem)
    }
  }

  #problemOf({ lease, last }: HeldLease): string | null {
    const { state, id, name } = lease
    if (!isLive(last) && state !== last) return `G4 ${id} on ${name} was ${last} and is ${state}`
    if (!isLive(state)) return null
    // Who believes, holds: unless others have ended it and no keep-alive has told yet (G3).
    if (this.history.endedByOthers.has(id)) return null
    const holders = this.engine.inspect(NAMESPACE, name)?.holders ?? []
    if (holders.some((holder) => holder.id === id)) return null
    return `G3 ${id} on ${name} believes for ${lease.remainingMs} ms more and does not hold`
  }
}

export function isLive(state: LeaseState): boolean {
  return state === 'held' || state === 'jeopardy'
}
