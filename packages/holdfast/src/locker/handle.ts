/**
 * Handles of leases for callers: thin objects over a `LeaseRecord`. The session knows only the record, so a
 * lease that its caller dropped without releasing can be found by the garbage collector and given back.
 */

import { onAborted } from '../base/aborting.ts'
import { Cancellation } from '../base/cancellation.ts'
import { BackendUnavailableError, InvalidArgumentError, UnsupportedError } from '../base/errors.ts'
import { type Fence, makeFence } from '../base/fence.ts'
import { grantedTtlMs } from '../base/granted-ttl.ts'
import { checkCallOptions, checkData, checkNumber } from '../base/options.ts'
import type {
  CallOptions,
  FencedLease,
  Lease,
  LeaseBase,
  LeaseState,
  Permit,
  ReleaseOutcome,
  UnfencedLease,
} from '../base/types.ts'
import type { Fencing } from '../spi.ts'
import { callForCaller } from './call.ts'
import type { LockerContext } from './context.ts'
import { forgetHandle } from './dropped.ts'
import type { KeptSession } from './keeper.ts'
import type { LeaseRecord } from './lease.ts'

abstract class Handle implements LeaseBase {
  readonly #record: LeaseRecord
  readonly #context: LockerContext

  constructor(record: LeaseRecord, context: LockerContext) {
    this.#record = record
    this.#context = context
    record.handle = this
  }

  get id(): string {
    return this.#record.id
  }

  get name(): string {
    return this.#record.claim.name
  }

  get holder(): string {
    return this.#context.holder
  }

  get state(): LeaseState {
    return this.#record.state
  }

  get signal(): AbortSignal {
    return this.#record.signal
  }

  get remainingMs(): number {
    return this.#record.remainingMs
  }

  get [grantedTtlMs](): number {
    return this.#record.ttlMs
  }

  get previousData(): string | undefined {
    return this.#record.previousData
  }

  async ensure(ms: number, options?: CallOptions): Promise<void> {
    const { ttlMs, maxHoldLeftMs } = this.#record
    const mostMs = Math.min(ttlMs - this.#context.info.driftMs(ttlMs), maxHoldLeftMs)
    checkNumber('ms', ms, { min: 0 })
    if (ms > mostMs && this.#record.isLive)
      throw new InvalidArgumentError(
        'ms',
        `must be at most what a renewal can give: the TTL less drift, or what is left of maxHoldMs; that is ${mostMs} ms ` +
          `for this lease now, not ${ms}.`,
      )
    if (this.remainingMs >= ms && this.#record.isLive) return
    await this.renew(options)
    if (this.remainingMs >= ms) return
    throw (
      this.#record.ended ??
      new BackendUnavailableError(
        this.#context.backendName,
        `the renewal of "${this.name}" took so long that less than ${ms} ms remain`,
        'not-applied',
      )
    )
  }

  async renew(options?: CallOptions): Promise<void> {
    checkCallOptions(options)
    await this.#session.renew(this.#record, options)
  }

  async setData(data: string, options?: CallOptions): Promise<void> {
    checkCallOptions(options)
    const { engineSession } = this.#session
    const store = engineSession.setData?.bind(engineSession)
    if (store === undefined)
      throw new UnsupportedError(
        `${this.#context.backendName} cannot carry data from one holder to the next (info.data).`,
      )
    checkData(data)
    if (this.#record.ended !== undefined) throw this.#record.ended
    const stop = new Cancellation()
    const untie = stop.follow(options?.signal)
    try {
      const outcome = await callForCaller(this.#context, `setData of "${this.name}"`, stop, (call) =>
        store(this.#record.claim, data, call),
      )
      if (outcome === 'not-held') this.#record.lose('deleted', 'gone')
      if (outcome === 'not-held') throw this.#record.ended
    } finally {
      untie()
    }
  }

  release(options?: CallOptions): Promise<ReleaseOutcome> {
    if (options !== undefined) return this.#releaseWith(options)
    forgetHandle(this.#record)
    return this.#record.release()
  }

  async #releaseWith(options: CallOptions): Promise<ReleaseOutcome> {
    checkCallOptions(options)
    // The caller's signal ends the caller's wait, never the release itself (T14, cleanup after cancelling).
    const left = Promise.withResolvers<'unknown'>()
    const untie = onAborted(options.signal, () => left.resolve('unknown'))
    return Promise.race([this.release(), left.promise]).finally(untie)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }

  /** For logs. The fence is left out: whoever has it may write. */
  toJSON(): object {
    const { id, name, holder, state, remainingMs } = this
    return { id, name, holder, state, remainingMs, token: this.#record.token?.toString() ?? null }
  }

  get #session(): KeptSession {
    return this.#record.host as KeptSession
  }

  protected fenceOf(): Fence {
    const { claim, terms, token, id } = this.#record
    const mode = terms.request.mode === 'shared' ? 'shared' : 'exclusive'
    return makeFence({
      issuer: this.#context.info.issuer,
      name: claim.name,
      mode,
      token: token as bigint,
      grant: id,
    })
  }

  get [Symbol.toStringTag](): string {
    return 'Lease'
  }
}

class FencedHandle extends Handle implements FencedLease {
  readonly fencing = 'fenced'
  #fence: Fence | undefined

  get fence(): Fence {
    this.#fence ??= this.fenceOf()
    return this.#fence
  }
}

class UnfencedHandle extends Handle implements UnfencedLease {
  readonly fencing = 'unfenced'
}

class PermitHandle extends Handle implements Permit {
  readonly fencing = 'unfenced'
  readonly weight: number
  readonly capacity: number

  constructor(record: LeaseRecord, context: LockerContext) {
    super(record, context)
    this.weight = record.terms.request.weight
    this.capacity = record.terms.request.capacity
  }
}

export function leaseHandle<F extends Fencing>(record: LeaseRecord, context: LockerContext): Lease<F> {
  const handle =
    record.token === null ? new UnfencedHandle(record, context) : new FencedHandle(record, context)
  return handle as unknown as Lease<F>
}

export function permitHandle(record: LeaseRecord, context: LockerContext): Permit {
  return new PermitHandle(record, context)
}
