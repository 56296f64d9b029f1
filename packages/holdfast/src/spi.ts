/**
 * The interface that a backend implements. A backend makes one attempt per call and tells the truth about it; core owns time,
 * retries and belief. `describeBackend` in `holdfast/testing` is the definition of "works".
 *
 * Rules that the types cannot say:
 *
 * - Every call has three outcomes. A rejection with `BackendUnavailableError` says which of the two bad ones it
 *   is (`not-applied` or `unknown`); any other rejection that is not a HoldfastError counts as `unknown`.
 * - A call that is cancelled settles soon; what was already sent may still land, so the outcome is unknown.
 * - `since` is the send time of a request that the engine is known to have applied and that prolonged the claim,
 *   on `backend.clock`; it never comes from a receipt. Where leases ride on a session it is the session's.
 * - `tryAcquire` and `enqueue` are idempotent in the attempt: asked again, they answer with the same grant while it
 *   lasts. A copy of the request that arrives after the grant was deleted may be granted once more, under another
 *   `grantId`. So everything that a holder does names its grant, not only its attempt (T84, late duplicates).
 * - An operator's call names what the operator saw and carries an expiry. A copy that arrives late, or after the name
 *   has changed, does nothing (T78, late operators).
 * - A request for an attempt that was abandoned is refused: `tryAcquire` answers `busy`, or rejects as `not-applied`;
 *   `enqueue` fails the attempt as `not-applied`. If a request may still land late, a mark at the engine refuses it (ADR 0022).
 * - A request in a session that has ended is answered `session-gone`, also when the name is busy.
 * - A claim that the engine no longer has is lost as `taken-over` if a claim of another attempt holds the name at that
 *   moment, else as `deleted`. The engine's own reason (`force-released`) comes first.
 * - Where waiters promote themselves, a lost wake-up delays `granted` by up to one renewal interval (G10). Everywhere else
 *   the grant is there when the predecessor ends.
 * - After `[Symbol.asyncDispose]` every call rejects with code `CLOSED`, and pending waits and watches end with it. A
 *   second dispose is harmless.
 * - A `Call` is not copied with `...`: that would copy `cancelled` as it is now. `callWith` makes one with further fields.
 * - No retries of a write, unless a second copy does no harm however late it lands (ADR 0022); a read inside `enqueue` may be
 *   retried. No logging. Time, timers and randomness come from `backend.clock` and `backend.random` only.
 */
import type { Clock, Instant } from './base/clock.ts'
import type { LossReason } from './base/errors.ts'
import type { Random } from './base/ids.ts'

export type { Clock, Instant, Timer } from './base/clock.ts'
export type { Random } from './base/ids.ts'

export type Fencing = 'fenced' | 'unfenced'
export type Scope = 'process' | 'machine' | 'cluster'
export type Mode = 'exclusive' | 'shared' | 'permits'

export interface BackendInfo<F extends Fencing = Fencing> {
  readonly name: string
  /** How far exclusion reaches: the processes of one program, of one machine, or of all that reach the engine. */
  readonly scope: Scope
  readonly fencing: F
  readonly namespace: string
  /** Who issues the tokens; tokens of two issuers are not comparable. */
  readonly issuer: string
  /** The top 11 bits of every token (0–2047); core adds them, backends return the engine's own number. */
  readonly epoch: number
  readonly modes: readonly Mode[]
  /** `queue`: waiters are granted in order, and are told. `poll`: core tries again at intervals. */
  readonly waiting: 'queue' | 'poll'
  /**
   * Who enforces a lock-delay. `session`: the engine does, with one lock-delay for all claims of a session; core opens a
   * session for each lock-delay in use.
   */
  readonly lockDelay: 'server' | 'session' | 'none'
  /** Who enforces a hold-at-least. */
  readonly holdAtLeast: 'server' | 'waiter' | 'none'
  /** Whether a name can carry data from one holder to the next. */
  readonly data: boolean
  readonly ttlMs: { readonly min: number; readonly max: number; readonly step: number }
  /** How much earlier than the engine a holder must stop believing. */
  driftMs(ttlMs: number): number
  /**
   * How much later than the end of a claim the engine, or the first waiter, may act on it. Consul may expire a session at
   * twice its TTL: its slack is one TTL more.
   */
  expirySlackMs(ttlMs: number): number
  /**
   * How durable a confirmed keep-alive is. `committed`: it survives a failover, as far as `assumptions` hold.
   * `leader-local`: a deposed leader may still confirm one (T63, resumed old leaders; T88, renewals after a loss). Then two clients may
   * believe at once, and only a guard that checks fencing tokens makes that harmless.
   */
  readonly prolongation: 'committed' | 'leader-local'
  /** Assumptions about clocks, disks and operators without which the guarantees do not hold, in sentences. */
  readonly assumptions: readonly string[]
  /** The confirmation that counts as a prolongation, in a sentence. */
  readonly confirmed: string
}

/** The caller's side of every call. A cancelled call has no caller any more: it settles soon, and its outcome is unknown. */
export interface Call {
  readonly cancelled: boolean
  /** Runs `callback` when the call is cancelled (now, if it already is); the returned function takes it back. */
  onCancel(callback: () => void): () => void
  /** The same as a signal, for client libraries that take one. It is made at the first read; `onCancel` is cheaper. */
  readonly signal: AbortSignal
  /**
   * `close` calls it after each part that the engine confirms, with the number of claims that remain. The call limit
   * applies to each part.
   */
  readonly onProgress?: (left: number) => void
}

export interface SessionRequest {
  /** Secret and unguessable, chosen by core so that a repeated request opens one session. */
  readonly id: string
  readonly ttlMs: number
  /** The public label of the client, shown to others. */
  readonly holder: string
  /** Only with `lockDelay: 'session'`: the lock-delay of every claim of this session. */
  readonly lockDelayMs?: number
}

/** Plain data that can be carried to another process, which goes on with `attachSession`. It is a secret. */
export type SessionHandle = { readonly [key: string]: string | number }

/** One attempt to hold a name. */
export interface Claim {
  readonly name: string
  readonly attempt: string
}

/** One grant of an attempt. */
export interface GrantedClaim extends Claim {
  /**
   * Tells this grant from every other of the same attempt: the token where there is one, else an id that the engine
   * stores with the claim.
   */
  readonly grantId: string
}

/** Claims that a keep-alive is asked to prolong. */
export interface ListedClaims {
  readonly held: readonly GrantedClaim[]
  /** Asked for with `enqueue`, and not granted yet. The request may be in flight: then the engine may not know the claim, and it is not lost. */
  readonly waiting: readonly Claim[]
}

export interface AcquireRequest extends Claim {
  readonly mode: Mode
  /** Granted when it is first in the queue and the holders' weights leave room: `held + weight <= capacity`. */
  readonly weight: number
  /** `LOCK_CAPACITY` for locks (exclusive weighs all of it, shared weighs 1), the number of permits otherwise. */
  readonly capacity: number
  readonly note?: string
  /** The task or request that wants it, as its caller labels it. Several owners may share one client. */
  readonly owner?: string
  /** How long the name stays closed to others when this holder's time runs out. */
  readonly lockDelayMs: number
  /**
   * Only for `enqueue`, and only with `waiting: 'queue'`: if the request cannot be granted now and that many waiters are
   * queued, the answer is `queue-full`, and nothing stays queued. Never more than that many stay queued. The same attempt
   * asked again finds its own position. Where waiters serve themselves, a call may join, count and withdraw: then of two
   * calls at once both may be refused.
   */
  readonly maxWaiters?: number
  /**
   * Only for `enqueue`: how long the caller waits at most, counted from now; without it there is no limit. When this time is
   * over, and never before, an engine may take the waiter off its queue, so that no grant goes to a caller that has gone.
   * The attempt then stays unanswered until it is cancelled. This is optional: core abandons the attempt anyway.
   */
  readonly waitMs?: number
}

/**
 * The capacity of every name that is locked rather than counted. An exclusive lease weighs all of it and a shared
 * one weighs 1, so exclusive and shared requests for one name always understand each other.
 */
export const LOCK_CAPACITY = 2 ** 30

export interface Grant<F extends Fencing = Fencing> extends GrantedClaim {
  /** The engine's own number, without the epoch. */
  readonly token: F extends 'fenced' ? bigint : null
  readonly since: Instant
  readonly ttlMs: number
  /** Data that the last holder left, if any. */
  readonly previousData?: string
}

export type AcquireResult<F extends Fencing = Fencing> =
  | { readonly kind: 'granted'; readonly grant: Grant<F> }
  /** Another claim holds it, or is first in the queue. */
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  /** The engine no longer knows this session; nothing was granted. */
  | { readonly kind: 'session-gone' }

export type EnqueueResult<F extends Fencing = Fencing> =
  | Exclude<AcquireResult<F>, { kind: 'busy' }>
  /** The queue is full: as many wait as the request allows. The attempt holds nothing and has no position. */
  | { readonly kind: 'queue-full' }

/**
 * The caller's side of `enqueue`. It is the call (when to stop), and takes the outcome: one `answer` or one `fail`. The first of them
 * counts, and later ones do nothing. What holds for a rejection holds for the error of `fail`.
 */
export interface Attempt<F extends Fencing = Fencing> extends Call {
  answer(result: EnqueueResult<F>): void
  fail(error: unknown): void
  /** It is in the queue and has to wait. Called at most once, and before the answer. */
  queued(): void
}

export interface ReleaseTerms {
  /** The name stays closed to all clients for that much longer (hold-at-least). */
  readonly keepForMs: number
}

export type ReleaseResult = 'released' | 'not-held'

export interface LostClaim {
  readonly attempt: string
  readonly reason: LossReason
  /** With `force-released`: the reason that the operator gave. */
  readonly detail?: string
}

export type KeepAliveResult<F extends Fencing = Fencing> =
  | {
      readonly kind: 'alive'
      readonly since: Instant
      readonly ttlMs: number
      readonly lost: readonly LostClaim[]
      /**
       * Listed as waiting, but granted by now: so a push that got lost costs one interval, not the lock. Attempts that the session has
       * not answered are answered with it.
       */
      readonly granted: readonly Grant<F>[]
      /**
       * Claims that the session holds or waits for besides, also under another grant than the listed one. Core abandons what
       * it does not know: the late copy of a request whose answer came in time, which would otherwise be held for as
       * long as the session lives (T73, late originals; T84).
       */
      readonly unlisted: readonly Claim[]
    }
  | { readonly kind: 'gone' }

export interface BackendSession<F extends Fencing = Fencing> {
  readonly id: string
  /** The TTL that was *granted*: what was asked for, raised to `info.ttlMs.min` and to a multiple of its `step`. */
  readonly ttlMs: number
  /** The send time of the request that opened it, or of one that is known to have prolonged it. */
  readonly since: Instant
  readonly handle: SessionHandle
  /** The session has at least half of the claims that the engine allows in one. Core puts new leases on another session, if it may open one. */
  readonly isFull?: boolean

  /**
   * Prolongs the session and everything that is listed. Says which of the listed claims it no longer has; never
   * removes one that was not listed. A claim that is held under another grant is lost. A session whose time is up is
   * gone, even if the engine has not removed it yet.
   */
  keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<F>>

  tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<F>>

  /**
   * Only with `waiting: 'queue'`: joins the engine's queue, and answers the attempt when it is granted. An engine that is written
   * with promises hands its promise to `answering`.
   */
  enqueue?(request: AcquireRequest, attempt: Attempt<F>): void

  /**
   * Only with `waiting: 'poll'`: calls `tell` once, as soon as the name may have become free, also between a try that was answered
   * `busy` and this call. The returned function ends it. It is a hint: a wrong one costs a try, and after a lost one core
   * tries at its next poll.
   */
  onceFree?(name: string, tell: () => void): () => void

  /**
   * Afterwards this attempt neither holds nor waits. A request for it that is still on its way does not land. Or, where the engine
   * takes deletions and nothing else (it is full), it lands and is `unlisted` in the next keep-alive.
   */
  abandon(claim: Claim, call: Call): Promise<void>

  /** Only with `info.data`. Refused by the engine when the claim is no longer the holder's. */
  setData?(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'>

  /**
   * `not-held` means that this grant had ended before. If a client library may have sent the request twice, the answer to the second copy says
   * nothing about the first: the outcome is unknown.
   */
  release(claim: GrantedClaim, options: ReleaseTerms, call: Call): Promise<ReleaseResult>

  /** Gives up everything that the session holds or waits for. */
  close(call: Call): Promise<void>
}

/**
 * A session that another process opened. `since` is null where the engine cannot tell when it was last prolonged: then
 * nothing of it may be believed until the first keep-alive is confirmed, and `tryAcquire` and `enqueue` make a keep-alive
 * of their own first.
 */
export type AttachedSession<F extends Fencing = Fencing> = Omit<BackendSession<F>, 'since'> & {
  readonly since: Instant | null
}

/** A claim as it is shown, whether it holds or waits. */
export interface ClaimState {
  /** The public half of the attempt. */
  readonly id: string
  readonly holder: string
  readonly owner?: string
  readonly mode: Mode
  readonly weight: number
  readonly note?: string
  /** The public half of its session's id. */
  readonly session: string
  /** The TTL of its session. */
  readonly ttlMs: number
}

export interface HolderState extends ClaimState {
  readonly token: bigint | null
  readonly heldForMs: number
  /** The rest of its time, at most its TTL. Missing where the engine cannot tell. */
  readonly expiresInMs?: number
}

export interface WaiterState extends ClaimState {
  readonly waitingForMs: number
}

export interface SessionState {
  /** The public half of its id. */
  readonly id: string
  readonly holder: string
  readonly ttlMs: number
  /** Missing where the engine cannot tell. */
  readonly expiresInMs?: number
}

export interface PageRequest {
  /** `next` of the page before; without it, the first page. */
  readonly cursor?: string
  /** The most items of a page. A page may have fewer, and even none, before the last one. */
  readonly limit: number
}

/**
 * Items in use from the first page to the last are on one of them. What comes or goes in between may be missing, and an
 * engine without an ordered index may show an item on two pages.
 */
export interface Page<T> {
  readonly items: readonly T[]
  /** Null after the last page. */
  readonly next: string | null
}

/**
 * Something about the engine's configuration that matters for locks; the texts are sentences. A setting that may not be read
 * is a finding of its own, with severity `warning`.
 */
export interface Finding {
  /** Stable, in capitals: `HOLDFAST_REDIS_EVICTION`. */
  readonly code: string
  /** `danger`: a guarantee does not hold. `warning`: it holds under conditions that deserve a look. `note`: good to know. */
  readonly severity: 'danger' | 'warning' | 'note'
  readonly what: string
  readonly why: string
  readonly fix: string
}

export interface NameState {
  readonly name: string
  readonly capacity: number
  readonly holders: readonly HolderState[]
  /** In the order in which they will be granted. */
  readonly waiters: readonly WaiterState[]
  readonly data?: string
  /**
   * How much longer the name is closed to all clients by a lock-delay or a hold-at-least; 0 if it is not. Missing where the
   * engine cannot tell.
   */
  readonly closedForMs?: number
  /** When this was read, on the engine's own clock. */
  readonly atMs: number
}

/** A look at one name. */
export interface InspectCall extends Call {
  /** The waiters are not needed. A backend may leave them out, and should where reading thousands of them costs time. */
  readonly holdersOnly?: boolean
}

/** A holder as others know it: the public id of its attempt, and its raw token. */
export interface HolderKey {
  readonly name: string
  readonly id: string
  readonly token: bigint
}

/** From the capacity that the operator saw to the one that is wanted. */
export interface CapacityChange {
  readonly from: number
  readonly to: number
}

export type ResizeResult = 'resized' | 'in-use' | 'changed'
export type ForgetResult = 'forgotten' | 'in-use' | 'changed'

/** The call of an operator who has looked at the name before. */
export interface OperatorCall extends Call {
  /**
   * The engine refuses the call from this time on, on the clock of `NameState.atMs`, with outcome `not-applied`.
   * Otherwise a cancelled or resent call could still take effect later.
   */
  readonly notAfterMs: number
}

/** `ended`: it was held and is not any more, and the engine cannot tell why. `data`: its holder has stored data. */
export type WatchEventKind =
  | 'acquired'
  | 'released'
  | 'expired'
  | 'force-released'
  | 'ended'
  | 'waiting'
  | 'gave-up'
  | 'data'

export type WatchEvent =
  | {
      readonly kind: WatchEventKind
      readonly name: string
      /** The lease's id. */
      readonly id: string
      readonly holder: string
      readonly owner?: string
      readonly token: bigint | null
      /** Hand this to `watch` to go on after this event. */
      readonly cursor: string
    }
  /** Events may be missing here. An `acquired` event for each current holder follows. */
  | { readonly kind: 'gap'; readonly cursor: string }

export interface Backend<F extends Fencing = Fencing> extends AsyncDisposable {
  readonly info: BackendInfo<F>
  /** The clock of all its instants, and the source of its randomness; core uses the same ones. */
  readonly clock: Clock
  readonly random: Random

  /** Why the client itself may be the cause of an unanswered call, as a clause (pool exhausted). It is printed after a colon. */
  whyUnanswered?(): string | undefined

  /** Idempotent in the id. A repetition prolongs the session, or answers with the earlier `since`. */
  openSession(request: SessionRequest, call: Call): Promise<BackendSession<F>>
  /** Goes on with a session that another process opened; null if it is gone. Prolongs nothing. */
  attachSession(handle: SessionHandle, call: Call): Promise<AttachedSession<F> | null>

  inspect(name: string, call: InspectCall): Promise<NameState | null>
  /** Names in use (held, waited for, closed, or carrying data) that start with `prefix`; a page is in byte order. */
  list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>>
  /** Sessions that live. Without it, the engine cannot list them. */
  sessions?(page: PageRequest, call: Call): Promise<Page<SessionState>>
  /** Looks at the configuration of the engine. An empty list: nothing to say. */
  diagnose?(call: Call): Promise<readonly Finding[]>
  /** Whether it holds the name now. */
  check(holder: HolderKey, call: Call): Promise<boolean>
  /** Ends the holders with these public ids, and no others; returns how many. Their sessions learn why. */
  forceRelease(name: string, ids: readonly string[], reason: string, call: OperatorCall): Promise<number>
  /** Changes a semaphore's capacity; `in-use` if the holders or a waiter would not fit; `changed` if it is not `from`. */
  resize(name: string, capacity: CapacityChange, call: OperatorCall): Promise<ResizeResult>
  /** Removes the data of a name without holders and waiters; `changed` if it is not `data`. */
  forget(name: string, data: string, call: OperatorCall): Promise<ForgetResult>
  /**
   * Events of names that start with `prefix`; without it, core compares lists at intervals.
   *
   * - Without a cursor it starts now, without a gap and without the current holders. With one it goes on after that event.
   *   A cursor that the engine does not know, or no longer has the events of, is answered with a gap, never with an error.
   * - After a gap come `acquired` events for the current holders, and none for waiters. Until the last of them has come, a
   *   cursor leads to another gap.
   * - Without a gap every event comes exactly once. A backend whose engine can lose a message unnoticed says so on its page. Events of one
   *   name come in their order; those of two names may overtake each other.
   * - A cursor is text of at most `limits.cursorBytes`.
   * - It ends quietly when the call is cancelled, and rejects with `CLOSED` when the backend is disposed. While the engine is
   *   away it may retry, and tells a gap if it missed something, or reject as other calls do.
   */
  watch?(prefix: string, options: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent>
}
