/** A lease in a client's hands, as the checks see it: without touching it where that would change it. */

import { elapsedMs, type Instant, instantOf } from '../../packages/holdfast/src/base/clock.ts'
import { isHoldfastError, type LossReason } from '../../packages/holdfast/src/base/errors.ts'
import type { Fence } from '../../packages/holdfast/src/base/fence.ts'
import type { HoldOptions, LeaseBase } from '../../packages/holdfast/src/base/types.ts'
import type { SimProcess } from './machine.ts'

export class TrackedLease {
  readonly lease: LeaseBase
  readonly id: string
  readonly name: string
  /** Permits have none. */
  readonly token: bigint | undefined
  readonly process: SimProcess
  /** Options with which it was asked for. */
  readonly options: HoldOptions
  /** When it came into its client's hands; the lease itself may have counted a little longer. */
  readonly #trackedAt: Instant
  /** A body runs under it, which stops only by itself. */
  isBodyRunning = false
  abortedAtMs: number | undefined
  releasedAtMs: number | undefined
  lossReason: LossReason | undefined
  /** Called when its signal aborts. */
  onAbort: () => void = () => {}
  #wasOver = false

  constructor(lease: LeaseBase, process: SimProcess, options: HoldOptions, nowMs: () => number) {
    this.lease = lease
    this.options = options
    this.#trackedAt = instantOf(process)
    this.id = lease.id
    this.name = lease.name
    this.token = (lease as { readonly fence?: Fence }).fence?.token
    this.process = process
    const { signal } = lease
    const onAbort = () => {
      this.abortedAtMs = nowMs()
      if (isHoldfastError(signal.reason, 'LEASE_LOST')) this.lossReason = signal.reason.reason
      this.onAbort()
    }
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  }

  /** As far as anybody can tell without asking it. */
  get isOver(): boolean {
    return this.abortedAtMs !== undefined || this.releasedAtMs !== undefined
  }

  /** By how much it has been held for longer than its `maxHoldMs`; negative while it may still be held. */
  get overdueMs(): number {
    return elapsedMs(this.process, this.#trackedAt) - this.#maxHoldMs
  }

  /** The same by the clock that timers go by, which stands still in a suspended machine. */
  get timerOverdueMs(): number {
    return this.process.monotonicMs() - this.#trackedAt.monotonicMs - this.#maxHoldMs
  }

  get #maxHoldMs(): number {
    return this.options.maxHoldMs ?? Number.POSITIVE_INFINITY
  }

  /** Asks it, which makes it judge itself. `revived`: it was over, and is not any more (G4). */
  ask(): 'believes' | 'over' | 'revived' {
    const { state, remainingMs } = this.lease
    const believes = state === 'held' || state === 'jeopardy' || remainingMs > 0
    if (believes) return this.#wasOver || this.isOver ? 'revived' : 'believes'
    this.#wasOver = true
    return 'over'
  }
}
