/** Types for users: leases, permits and the locker. */
import type * as spi from '../spi.ts'
import type { BackendInfo, Fencing, Finding, Page, SessionState, WatchEvent } from '../spi.ts'
import type { Clock } from './clock.ts'
import type { Fence } from './fence.ts'

export type { BackendInfo, Fencing, Finding, Mode, Page, Scope, SessionState } from '../spi.ts'

/** A holder as `inspect` and `list` show it. `JSON.stringify` writes its token as text. */
export interface HolderState extends Omit<spi.HolderState, 'weight'> {
  /** Permits of a semaphore that it holds; absent for a lock. */
  readonly weight?: number
}

export interface WaiterState extends Omit<spi.WaiterState, 'weight'> {
  /** The permits of a semaphore that it waits for; absent for a lock. */
  readonly weight?: number
}

export interface NameState extends Omit<spi.NameState, 'capacity' | 'holders' | 'waiters'> {
  /** All permits of a semaphore; absent for a lock. */
  readonly capacity?: number
  readonly holders: readonly HolderState[]
  /** In the order in which they will be granted. */
  readonly waiters: readonly WaiterState[]
}

/**
 * held ──renewal not confirmed──▶ jeopardy ──confirmed──▶ held
 * held | jeopardy ──deadline, or told by the engine──▶ lost
 * held | jeopardy ──release──▶ released
 *
 * `lost` and `released` are final (G4).
 */
export type LeaseState = 'held' | 'jeopardy' | 'lost' | 'released'

/**
 * `released`: it was held until now. `not-held`: it had ended before. `unknown`: the engine did not answer, or its
 * answer does not say which of the two is true, because a request may have been sent twice. An unanswered release is
 * retried in the background. Calling `release` again retries it too.
 */
export type ReleaseOutcome = 'released' | 'not-held' | 'unknown'

export interface CallOptions {
  readonly signal?: AbortSignal
}

export interface LeaseBase extends AsyncDisposable {
  /** Public: shown in `inspect`, events and the fence. */
  readonly id: string
  readonly name: string
  /** The public label of the locker that holds it. */
  readonly holder: string
  /** Judged by the clock at every read (G3). */
  readonly state: LeaseState
  /** Aborts once, with a `LeaseLostError`, when the lease is lost. Releasing does not abort it. */
  readonly signal: AbortSignal
  /** How much longer this holder may believe; 0 when it may not. */
  readonly remainingMs: number
  /** Data that the holder before left with `setData`. */
  readonly previousData: string | undefined

  /** Returns with at least `ms` remaining, renewing if need be; throws `LeaseLostError` if it is lost. */
  ensure(ms: number, options?: CallOptions): Promise<void>
  /** Renews now. It happens by itself every third of the TTL. */
  renew(options?: CallOptions): Promise<void>
  /** Leaves up to 4 KiB for the next holder. */
  setData(data: string, options?: CallOptions): Promise<void>
  /** Never throws because of the engine: a failed release is `unknown`, and is tried again in the background. */
  release(options?: CallOptions): Promise<ReleaseOutcome>
}

export interface FencedLease extends LeaseBase {
  readonly fencing: 'fenced'
  /** The proof for a guard. */
  readonly fence: Fence
}

export interface UnfencedLease extends LeaseBase {
  readonly fencing: 'unfenced'
  readonly fence?: never
}

export type Lease<F extends Fencing = Fencing> = F extends 'fenced' ? FencedLease : UnfencedLease

/** One or more of a semaphore's permits. Several hold at once, so it is no proof for a guard, by type. */
export interface Permit extends LeaseBase {
  readonly fencing: 'unfenced'
  readonly fence?: never
  readonly weight: number
  readonly capacity: number
}

/** Several leases acquired as one, in the canonical order of their names. */
export interface LeaseSet<F extends Fencing = Fencing> extends AsyncDisposable {
  readonly leases: readonly Lease<F>[]
  readonly fences: F extends 'fenced' ? readonly Fence[] : readonly never[]
  get(name: string): Lease<F>
  /** Aborts when the first of them is lost. */
  readonly signal: AbortSignal
  /** The least of all. */
  readonly remainingMs: number
  /** Releases all; one outcome each, in order. */
  release(options?: CallOptions): Promise<readonly ReleaseOutcome[]>
}

/** Options that the acquiring calls have in common. */
export interface HoldOptions {
  /** How long the claim outlives its last renewal. 15,000, the default: a crashed holder's name is free after 15 s. */
  readonly ttlMs?: number
  readonly signal?: AbortSignal
  /** Shown to operators. */
  readonly note?: string
  /** The task or request that wants it. Shown beside the holder, so that tasks of one process can be told apart. */
  readonly owner?: string
  /** The lease is lost after this time, then released. 600,000: at the latest ten minutes after its grant. */
  readonly maxHoldMs?: number
  /** The name stays closed for at least this time after the grant. 5,000: a release after 2 s frees it 3 s later. */
  readonly holdAtLeastMs?: number
  /** How long the name stays closed after this holder's time ran out. 1,000: the next holder has it a second later; a release frees it at once. */
  readonly lockDelayMs?: number
  /** A `held-long` event is told after this time. Default 60,000, a minute; `Infinity` for never. */
  readonly warnHoldMs?: number
  /** Called when a renewal was not confirmed and the deadline has not come; not in the caller's `AsyncLocalStorage` context. */
  readonly onJeopardy?: (remainingMs: number) => void
}

export interface TryAcquireOptions extends HoldOptions {
  /** Default `exclusive`. */
  readonly mode?: 'exclusive' | 'shared'
}

export interface CloseOptions {
  /** How long the bodies of `withLease` are awaited after their signals have aborted. Default 10,000. */
  readonly graceMs?: number
  /**
   * How long what is held may go on before that, with signals untouched. New acquires are refused at once, so that a caller can send
   * the work to another process. 20,000: a request that has five seconds to go ends as if nothing was closing. Default 0.
   */
  readonly drainMs?: number
}

export interface WaitOptions {
  /** How long to try. Default 30,000: `ACQUIRE_TIMEOUT` after 30 s. `Infinity` is allowed. */
  readonly waitMs?: number
  /** The most waiters before this one. 10: with ten in the queue the call fails at once with `QUEUE_FULL`. Engines without a queue refuse it. */
  readonly maxWaiters?: number
}

export interface AcquireOptions extends TryAcquireOptions, WaitOptions {}

export interface TryPermitOptions extends HoldOptions {
  /** How many permits there are in all; every client must say the same. 5: five holders of one permit each, or one of 5. */
  readonly capacity: number
  /** How many to take. Default 1. */
  readonly weight?: number
}

export interface PermitOptions extends TryPermitOptions, WaitOptions {}

export interface PageOptions extends CallOptions {
  /** `next` of the page before; without it, the first page. */
  readonly cursor?: string
  /** The most items of a page. Default 1,000. */
  readonly limit?: number
}

export interface WatchOptions {
  /** The cursor of the last event that was seen. */
  readonly cursor?: string
  readonly signal?: AbortSignal
}

/**
 * Which holders to release: those with a label, one by its token, one by its id, or all. Several holders may have the same
 * label; `inspect` shows the ids.
 */
export type ForceReleaseOptions = { readonly reason: string } & (
  | { readonly holder: string; readonly token?: never; readonly id?: never; readonly all?: never }
  | { readonly token: bigint; readonly holder?: never; readonly id?: never; readonly all?: never }
  | { readonly id: string; readonly holder?: never; readonly token?: never; readonly all?: never }
  | { readonly all: true; readonly holder?: never; readonly token?: never; readonly id?: never }
)

export interface Locker<F extends Fencing = Fencing> extends AsyncDisposable {
  /** Narrow by this when the locker comes from configuration. */
  readonly fencing: F
  readonly info: BackendInfo<F>
  /** The public label of this client. */
  readonly holder: string
  /** The clock of its leases. What waits or plans beside them takes the same one, so that a test moves both. */
  readonly clock: Clock

  /** `null`: another client has it; an answer, not an error. Does not wait. */
  tryAcquire(name: string, options?: TryAcquireOptions): Promise<Lease<F> | null>
  acquire(name: string, options?: AcquireOptions): Promise<Lease<F>>
  /** All or nothing, in canonical order, with one deadline. */
  acquireAll(names: readonly string[], options?: AcquireOptions): Promise<LeaseSet<F>>
  /** Runs `body` under a lease. A loss meanwhile rejects with `LeaseLostError`, which keeps the body's outcome. */
  withLease<T>(name: string, body: (lease: Lease<F>) => Promise<T> | T): Promise<T>
  withLease<T>(name: string, options: AcquireOptions, body: (lease: Lease<F>) => Promise<T> | T): Promise<T>
  /** `acquireAll` with a body, as `withLease`. */
  withLeases<T>(names: readonly string[], body: (leases: LeaseSet<F>) => Promise<T> | T): Promise<T>
  withLeases<T>(
    names: readonly string[],
    options: AcquireOptions,
    body: (leases: LeaseSet<F>) => Promise<T> | T,
  ): Promise<T>

  tryAcquirePermits(name: string, options: TryPermitOptions): Promise<Permit | null>
  acquirePermits(name: string, options: PermitOptions): Promise<Permit>
  /** Changes a semaphore's capacity on purpose. */
  resize(name: string, capacity: number, options?: CallOptions): Promise<'resized' | 'in-use' | 'not-found'>

  /** Whether this fence is the current holder's. It may stop being so before you have read the answer. */
  check(fence: Fence, options?: CallOptions): Promise<boolean>
  inspect(name: string, options?: CallOptions): Promise<NameState | null>
  /** All names in use that start with `prefix`, in byte order, asked for page by page. */
  list(prefix?: string, options?: CallOptions): Promise<readonly NameState[]>
  /** One page of them. Engines without an ordered index show pages in no order, and may show a name on two. */
  listPage(prefix?: string, options?: PageOptions): Promise<Page<NameState>>
  /** One page of the sessions that live: one for each TTL of each client. */
  sessions(options?: PageOptions): Promise<Page<SessionState>>
  /** Findings about the engine's configuration that matter for locks; empty if there is nothing to say. */
  diagnose(options?: CallOptions): Promise<readonly Finding[]>
  /**
   * Events of names that start with the prefix, from now on; with the cursor of an event, from after that event. It
   * does not start with the current holders: `list` shows them. After a `gap` events may be missing, and an `acquired` event
   * for each current holder follows. Events of one name come in their order.
   */
  watch(prefix?: string, options?: WatchOptions): AsyncIterable<WatchEvent>

  /**
   * An operator's act: ends exactly the holders that match and returns how many. A released holder passes the
   * guard until a successor touches it.
   */
  forceRelease(name: string, options: ForceReleaseOptions & CallOptions): Promise<number>
  /** Removes the data that the last holder left, if it has no holders and no waiters. */
  forget(name: string, options?: CallOptions): Promise<'forgotten' | 'in-use' | 'not-found'>

  /**
   * Stops acquiring, aborts the signals of what is held, awaits the bodies of `withLease`, releases all. A later call without
   * `drainMs` ends the draining. Until the grace begins the `graceMs` of the latest call counts; after that 0 ends it.
   */
  close(options?: CloseOptions): Promise<void>
}

/**
 * A locker whose backend comes from configuration: narrow it by `fencing` before its leases meet a guard.
 *
 * The last part is for the compiler, which cannot call a method that is generic in both members of a union.
 */
export type AnyLocker = (Locker<'fenced'> | Locker<'unfenced'>) & WithAnyLease

interface WithAnyLease {
  withLease<T>(name: string, body: (lease: Lease) => Promise<T> | T): Promise<T>
  withLease<T>(name: string, options: AcquireOptions, body: (lease: Lease) => Promise<T> | T): Promise<T>
  withLeases<T>(names: readonly string[], body: (leases: LeaseSet) => Promise<T> | T): Promise<T>
  withLeases<T>(
    names: readonly string[],
    options: AcquireOptions,
    body: (leases: LeaseSet) => Promise<T> | T,
  ): Promise<T>
}
