/**
 * One process of a fleet computes a value, and the others wait and read it from the user's store.
 *
 *   look ──fresh───────────────▶ value
 *   look ──fresh, soon stale───▶ one caller tries for the lease, and refreshes; the others have the old value   [refresh]
 *   look ──absent or stale─────▶ wait for the lease, look again ──fresh──▶ value                                [run]
 *                                                    └──absent or stale──▶ compute, store, value                [produce]
 *
 * Failures in between:
 *   the process that computes dies: its lease expires, and the next waiter looks, finds nothing, and computes.
 *   it pauses, and its lease is lost: it does not store. If it pauses after that last look at the lease, its result comes late to
 *     the store, with an older fence: a store that checks fences refuses it. The caller gets what the store has by then.
 *   compute throws: its callers get the error and nothing is stored. Waiters of other processes then compute themselves, one
 *     at a time. While the old value is fresh, the error goes to `onRefreshError`, and the caller gets the old value.
 *   the store fails: the error goes to the callers. A result that was computed and not stored is computed again by the next.
 */
import { callWith, unlessAborted } from '../base/aborting.ts'
import { callSafely } from '../base/call-safely.ts'
import { InvalidArgumentError, refusedLeaseId } from '../base/errors.ts'
import { systemRandom } from '../base/ids.ts'
import { checkName } from '../base/names.ts'
import { checkFunction } from '../base/options.ts'
import { SharedWork } from '../base/shared-work.ts'
import type { Fencing, Lease, Locker, TryAcquireOptions } from '../base/types.ts'
import { checkNeeds } from './needs.ts'
import {
  checkOptions,
  type FenceOf,
  type SingleFlightOptions,
  type StoredResult,
} from './single-flight/options.ts'

export type {
  FenceOf,
  SingleFlightOptions,
  SingleFlightStore,
  StoredResult,
} from './single-flight/options.ts'

export interface ComputeContext<F extends Fencing = Fencing> {
  readonly lease: Lease<F>
  /** Aborts when the lease is lost, or when no caller waits for the result any more. */
  readonly signal: AbortSignal
}

/** The user's function that computes the value. */
export type Compute<T, F extends Fencing = Fencing> = (context: ComputeContext<F>) => Promise<T> | T

/** Calls in flight in this process, for one locker and one store. */
class Flights {
  readonly byKey = new Map<string, SharedWork<StoredResult<unknown>>>()
  readonly refreshing = new Set<string>()
}

const flights = new WeakMap<object, WeakMap<object, Flights>>()

function flightsOf(locker: object, store: object): Flights {
  const byStore = flights.get(locker) ?? new WeakMap<object, Flights>()
  flights.set(locker, byStore)
  const found = byStore.get(store) ?? new Flights()
  byStore.set(store, found)
  return found
}

/**
 * The value of the key: from the store while it is fresh, or else computed by one caller of all processes.
 *
 * Callers of this process that ask for a key at the same time share one call, with the options and `compute` of the first, and
 * with its error, if it fails. Only `signal` is each caller's own.
 *
 * @throws AcquireTimeoutError   another process was still computing after `waitMs`
 * @throws LeaseLostError        the lease was lost while this process computed, and the store has no newer result
 */
export async function singleFlight<T, F extends Fencing>(
  locker: Locker<F>,
  key: string,
  options: SingleFlightOptions<T, NoInfer<F>>,
  compute: Compute<T, NoInfer<F>>,
): Promise<T> {
  checkNeeds('Single flight', locker, [])
  checkName(key, 'key')
  checkOptions(options)
  checkFunction('compute', compute)
  const { store, signal } = options
  signal?.throwIfAborted()
  const { byKey, refreshing } = flightsOf(locker, store)
  const flight = new Flight(locker, key, options, compute)
  const found = byKey.get(key) as SharedWork<StoredResult<T>> | undefined
  // A flight that all of its callers have left ends some time later, and is not started anew with their `compute`.
  const shared = found?.started === undefined ? undefined : found
  const joined = shared ?? flight.start(byKey)
  const result = await joined.join(callWith(signal)).catch((error: unknown) => {
    throw signal?.aborted ? signal.reason : error
  })
  if (shared !== undefined || refreshing.has(key) || !flight.isDue(result)) return result.value
  refreshing.add(key)
  const refreshed = flight
    .refresh(result, signal ?? new AbortController().signal)
    .finally(() => refreshing.delete(key))
  return unlessAborted(refreshed, signal, () => signal?.reason)
}

class Flight<T, F extends Fencing> {
  readonly #locker: Locker<F>
  readonly #key: string
  readonly #options: SingleFlightOptions<T, F>
  readonly #compute: Compute<T, F>
  /** Apart from the user's own locks. */
  readonly #name: string

  constructor(locker: Locker<F>, key: string, options: SingleFlightOptions<T, F>, compute: Compute<T, F>) {
    this.#locker = locker
    this.#key = key
    this.#options = options
    this.#compute = compute
    this.#name = `single-flight/${key}`
  }

  /** While it is in flight, other callers find it in `byKey` and join it. */
  start(byKey: Flights['byKey']): SharedWork<StoredResult<T>> {
    const started = new SharedWork(this.#locker.info.name, (abandoned) =>
      this.#run(abandoned).finally(() => {
        if (byKey.get(this.#key) === started) byKey.delete(this.#key)
      }),
    )
    byKey.set(this.#key, started)
    return started
  }

  async #run(abandoned: AbortSignal): Promise<StoredResult<T>> {
    const found = await this.#look()
    if (found !== null) return found
    const { waitMs } = this.#options
    const terms = { ...this.#terms(abandoned), ...(waitMs !== undefined && { waitMs }) }
    let leaseId: string | undefined
    const producing = this.#locker.withLease(this.#name, terms, async (lease) => {
      leaseId = lease.id
      return (await this.#look()) ?? this.#produce(lease, abandoned)
    })
    return this.#orNewer(producing, () => leaseId)
  }

  /** The chance grows from 0 to 1 within `refreshBeforeMs`, so that the calls of a fleet do not all try for the lease at once. */
  isDue(found: StoredResult<T>): boolean {
    const { keepMs, refreshBeforeMs = 0, random = () => systemRandom.fraction() } = this.#options
    const intoMs = this.#ageMs(found) - (keepMs - refreshBeforeMs)
    return intoMs > 0 && random() < intoMs / refreshBeforeMs
  }

  async refresh(old: StoredResult<T>, signal: AbortSignal): Promise<T> {
    try {
      const lease = await this.#locker.tryAcquire(this.#name, this.#terms(signal))
      if (lease === null) return old.value
      try {
        const meanwhile = await this.#look()
        if (meanwhile !== null && meanwhile.storedAtMs !== old.storedAtMs) return meanwhile.value
        return (await this.#orNewer(this.#produce(lease, signal), () => lease.id)).value
      } finally {
        await lease.release()
      }
    } catch (error) {
      signal.throwIfAborted()
      callSafely(() => this.#options.onRefreshError?.(error))
      return old.value
    }
  }

  async #produce(lease: Lease<F>, abandoned: AbortSignal): Promise<StoredResult<T>> {
    const { store, keepMs } = this.#options
    const value = await this.#compute({ lease, signal: AbortSignal.any([lease.signal, abandoned]) })
    // A holder that knows that it has lost its lease must not even try.
    if (lease.state === 'lost') throw lease.signal.reason
    const result = { value, storedAtMs: this.#locker.clock.wallMs() }
    await store.set(this.#key, result, { fence: lease.fence as FenceOf<F>, keepMs })
    return result
  }

  /** A process that was overtaken has the newer result, if there is one, and not its own. */
  async #orNewer(
    producing: Promise<StoredResult<T>>,
    leaseId: () => string | undefined,
  ): Promise<StoredResult<T>> {
    try {
      return await producing
    } catch (error) {
      const refusedId = refusedLeaseId(error)
      if (refusedId === undefined || refusedId !== leaseId()) throw error
      const newer = await this.#look()
      if (newer === null) throw error
      return newer
    }
  }

  /** Null if there is none, or it is stale. */
  async #look(): Promise<StoredResult<T> | null> {
    const { store, keepMs } = this.#options
    const found = (await store.get(this.#key)) ?? null
    if (found === null) return null
    if (typeof found !== 'object' || !Number.isFinite(found.storedAtMs))
      throw new InvalidArgumentError(
        'store',
        'must return from get what set was given: { value, storedAtMs }.',
      )
    return this.#ageMs(found) < keepMs ? found : null
  }

  #ageMs({ storedAtMs }: StoredResult<T>): number {
    return this.#locker.clock.wallMs() - storedAtMs
  }

  #terms(signal: AbortSignal): TryAcquireOptions {
    const { ttlMs } = this.#options
    return { signal, ...(ttlMs !== undefined && { ttlMs }) }
  }
}
