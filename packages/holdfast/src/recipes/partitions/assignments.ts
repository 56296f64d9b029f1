/**
 * The assignments of a member. Each partition is started and stopped by the user's callbacks, one after the other, and its lease is
 * released only when the work has stopped (T53, early releases).
 */
import { onAborted } from '../../base/aborting.ts'
import type { Clock } from '../../base/clock.ts'
import type { Fencing, Lease } from '../../base/types.ts'
import type { PartitionsOptions, RevokeReason } from '../partitions.ts'

interface Held<F extends Fencing> {
  readonly lease: Lease<F>
  /** Whether `onAssigned` worked. */
  readonly started: Promise<boolean>
  /** Set once, when the work is to stop. */
  stopped: Promise<void> | undefined
}

export interface AssignmentsHost {
  readonly clock: Clock
  readonly ttlMs: number
  failed(error: unknown, partition: number): void
  warn(what: string): void
  /** A partition has been released or is lost, and may be assigned again. */
  ended(): void
}

export class Assignments<F extends Fencing> {
  readonly #options: Pick<PartitionsOptions<F>, 'onAssigned' | 'onRevoked'>
  readonly #host: AssignmentsHost
  /** Partitions in the order in which they were assigned. */
  readonly #held = new Map<number, Held<F>>()
  /** Partitions whose `onAssigned` failed, and when to try them again. */
  readonly #retryAtMs = new Map<number, number>()

  constructor(options: Pick<PartitionsOptions<F>, 'onAssigned' | 'onRevoked'>, host: AssignmentsHost) {
    this.#options = options
    this.#host = host
  }

  /** Partitions that are being worked on and are not about to stop. */
  get working(): ReadonlyMap<number, Lease<F>> {
    const working = new Map<number, Lease<F>>()
    for (const [partition, { lease, stopped }] of this.#held)
      if (stopped === undefined) working.set(partition, lease)
    return working
  }

  mayTake(partition: number): boolean {
    const nowMs = this.#host.clock.monotonicMs()
    return !this.#held.has(partition) && (this.#retryAtMs.get(partition) ?? nowMs) <= nowMs
  }

  start(partition: number, lease: Lease<F>): void {
    const { onAssigned } = this.#options
    const started = this.#call(partition, () => onAssigned(partition, lease))
    this.#held.set(partition, { lease, started, stopped: undefined })
    this.#retryAtMs.delete(partition)
    onAborted(lease.signal, () => void this.stop(partition, 'lost'))
    void started.then((isStarted) => {
      if (isStarted) return
      this.#retryAtMs.set(partition, this.#host.clock.monotonicMs() + this.#host.ttlMs)
      void this.stop(partition, 'moved')
    })
  }

  stop(partition: number, reason: RevokeReason): Promise<void> {
    const held = this.#held.get(partition)
    if (held === undefined) return Promise.resolve()
    held.stopped ??= this.#stop(partition, held, reason)
    return held.stopped
  }

  async stopAll(reason: RevokeReason): Promise<void> {
    await Promise.all([...this.#held.keys()].map((partition) => this.stop(partition, reason)))
  }

  async #stop(partition: number, { lease, started }: Held<F>, reason: RevokeReason): Promise<void> {
    const { clock, ttlMs } = this.#host
    const { onRevoked } = this.#options
    const isLost = () => lease.signal.aborted
    let pending = 'onAssigned'
    const tooLong = clock.setTimer(ttlMs, () =>
      this.#host.warn(`${pending} of partition ${partition} has not settled, and the partition cannot move`),
    )
    if (await started) {
      pending = 'onRevoked'
      await this.#call(partition, () => onRevoked(partition, isLost() ? 'lost' : reason))
    }
    tooLong.cancel()
    if (!isLost()) await lease.release()
    this.#held.delete(partition)
    this.#host.ended()
  }

  async #call(partition: number, callback: () => Promise<void> | void): Promise<boolean> {
    // A callback may close the member, which then has to know of this partition.
    await undefined
    try {
      await callback()
      return true
    } catch (error) {
      this.#host.failed(error, partition)
      return false
    }
  }
}
