/**
 * The protected resource: a register per name behind the real guard rule, and the same register without a guard as
 * the control, which must lose updates now and then or the run shows nothing. It is a server of its own, reached
 * over the network; what the guard remembers is as durable as the register.
 */
import { FenceStaleError } from '../../packages/holdfast/src/base/errors.ts'
import type { Fence } from '../../packages/holdfast/src/base/fence.ts'
import { pass } from '../../packages/holdfast/src/guards/checkpoint.ts'
import { MapMemory } from '../../packages/holdfast/src/guards/memory/map-memory.ts'
import { Server, type ServerOptions } from './server.ts'

export interface Versions {
  /** Null for a fence that was refused. */
  readonly guarded: number | null
  readonly control: number
}

export type Visit =
  | { readonly kind: 'read'; readonly fence: Fence }
  /** Writes what was computed from what was read: lost if another client has written in between. */
  | { readonly kind: 'write'; readonly fence: Fence; readonly read: Versions }

export interface ResourceObserver {
  lostUpdate(register: 'guarded' | 'control', fence: Fence): void
  visited(visit: Visit, accepted: boolean): void
}

export interface ResourceOptions extends ServerOptions {
  readonly observer: ResourceObserver
  readonly forgetAfterMs: number
}

const VISITS_BETWEEN_FORGETTING = 10

export class ResourceServer extends Server {
  readonly #observer: ResourceObserver
  readonly #forgetAfterMs: number
  readonly #guarded = new Map<string, number>()
  readonly #control = new Map<string, number>()
  readonly #clock = {
    monotonicMs: () => this.scheduler.nowMs,
    wallMs: () => this.scheduler.nowMs,
    setTimer: () => ({ cancel: () => {} }),
  }
  #memory = new MapMemory(this.#clock)
  #visits = 0

  constructor(options: ResourceOptions) {
    super(options)
    this.#observer = options.observer
    this.#forgetAfterMs = options.forgetAfterMs
  }

  crashFor(forMs: number): void {
    this.crash(
      forMs,
      () => {},
      () => {},
    )
  }

  handle(visit: Visit, reply: (versions: Versions) => void): void {
    this.step((later) => {
      this.acted()
      const guarded = this.#guardedVisit(visit)
      this.#observer.visited(visit, guarded !== null)
      const control = this.#visitRegister(this.#control, 'control', visit)
      later(() => reply({ guarded, control }))
    })
  }

  /** The check and the effect are one step. */
  #guardedVisit(visit: Visit): number | null {
    const before = this.#memory
    const memory = new MapMemory(this.#clock, before)
    if (++this.#visits % VISITS_BETWEEN_FORGETTING === 0) memory.forget(this.#forgetAfterMs)
    try {
      const settings = {
        name: 'sim',
        issuers: null,
        forgetAfterMs: this.#forgetAfterMs,
        clock: this.#clock,
      }
      pass(memory, settings, [{ fence: visit.fence }], false)
    } catch (error) {
      if (error instanceof FenceStaleError) return null
      throw error
    }
    this.#memory = memory
    this.journal.note(() => {
      this.#memory = before
    })
    return this.#visitRegister(this.#guarded, 'guarded', visit)
  }

  #visitRegister(register: Map<string, number>, which: 'guarded' | 'control', visit: Visit): number {
    const { name } = visit.fence
    const version = register.get(name) ?? 0
    if (visit.kind === 'read') return version
    const read = visit.read[which]
    if (read === null) return version
    if (read !== version) this.#observer.lostUpdate(which, visit.fence)
    this.journal.set(register, name, version + 1)
    return version + 1
  }
}
