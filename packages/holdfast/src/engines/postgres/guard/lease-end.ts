/**
 * A run ends when one of its leases is lost: a holder that hangs in its transaction would keep the name's row from its
 * successor (T86, frozen transactions). A release does not end it: that is the holder's own choice.
 */
import { onAborted } from '../../../base/aborting.ts'
import { isHoldfastError, LeaseLostError } from '../../../base/errors.ts'
import { ttlMsOf } from '../../../base/granted-ttl.ts'
import type { CheckedProof } from '../../../guards/proofs.ts'

/** Below it, the pauses of a healthy process and network would end its transactions. */
const LEAST_IDLE_MS = 1_000

export class LeaseEnd {
  readonly #leases: readonly NonNullable<CheckedProof['lease']>[]
  readonly #ended = new AbortController()
  readonly #stops: (() => void)[] = []

  constructor(proofs: readonly CheckedProof[]) {
    this.#leases = proofs.flatMap(({ lease }) => lease ?? [])
    for (const lease of this.#leases) {
      const { signal } = lease
      this.#stops.push(onAborted(signal, () => this.#ended.abort(signal.reason)))
    }
  }

  /** Aborts with the lease's own reason. The clock is asked, because a timer may be late after a pause. */
  get signal(): AbortSignal {
    for (const lease of this.#leases) void lease.state
    return this.#ended.signal
  }

  /** So that the server ends a frozen holder's transaction about when the engine ends its lease. */
  get maxIdleMs(): number {
    const ttls = this.#leases.length > 0 ? this.#leases.map(ttlMsOf) : [ttlMsOf(undefined)]
    return Math.max(LEAST_IDLE_MS, Math.min(...ttls))
  }

  /** The error of a run whose lease was lost during the effect. */
  get error(): unknown {
    const { reason: cause } = this.#ended.signal
    if (!isHoldfastError(cause, 'LEASE_LOST')) return cause
    const { resource, reason, leaseId, ttlMs } = cause
    const advice =
      'Its guarded run was in progress and was ended: nothing was applied. Acquire again if the work is still needed.'
    return new LeaseLostError(resource, reason, { cause, leaseId, ttlMs, advice })
  }

  stop(): void {
    for (const stop of this.#stops) stop()
  }
}
