/**
 * Every failure is a typed error with a code (G11). Messages say what happened, to which resource, and what to
 * do; they never contain an attempt's secret or a connection's password.
 */
import './node-version.ts'
import { LOCK_CAPACITY } from '../spi.ts'
import type { Fence } from './fence.ts'
import { tokensAsText } from './tokens-as-text.ts'
import type { HolderState } from './types.ts'

export type ErrorCode =
  | 'ACQUIRE_TIMEOUT'
  | 'QUEUE_FULL'
  | 'LEASE_LOST'
  | 'FENCE_STALE'
  | 'FENCE_FOREIGN'
  | 'FENCE_INVALID'
  | 'BACKEND_UNAVAILABLE'
  | 'CAPACITY_MISMATCH'
  | 'INVALID_ARGUMENT'
  | 'UNSUPPORTED'
  | 'CLOSED'
  | 'CONFLICT'
  | 'KEY_REUSED'
  | 'STORED_FAILURE'
  | 'NOT_COMMITTED'

/** Shared by all copies of Holdfast in a process, so that `isHoldfastError` works across duplicate installs. */
const brand = Symbol.for('holdfast.error')

export abstract class HoldfastError extends Error {
  abstract readonly code: ErrorCode
  /** Whether the same call may succeed when it is simply made again. */
  abstract readonly retryable: boolean

  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    Object.defineProperty(this, brand, { value: true })
  }

  /** From the code, because minifiers rename classes: `LeaseLostError` of `LEASE_LOST`. */
  override get name(): string {
    const words = (this.code ?? 'HOLDFAST').split('_')
    return `${words.map((word) => word.charAt(0) + word.slice(1).toLowerCase()).join('')}Error`
  }
}

/** The wait budget ran out while others had the name. */
export class AcquireTimeoutError extends HoldfastError {
  readonly code = 'ACQUIRE_TIMEOUT'
  readonly retryable = true
  readonly resource: string
  readonly waitedMs: number
  /** Who held it when the time was up; undefined where that is not known, as with a `waitMs` of less than 50. */
  readonly holders: readonly HolderState[] | undefined
  /** Whether the locker that waited held it itself. Locks are not re-entrant. */
  readonly heldByThisLocker: boolean
  /** Of `idempotent`: the database had not answered whether another caller is at the work. */
  readonly isBlocked: boolean

  constructor(
    resource: string,
    waitedMs: number,
    advice = 'locker.inspect(name) shows its holders and waiters; raise waitMs to wait longer.',
    found: {
      readonly holders?: readonly HolderState[]
      readonly heldByThisLocker?: boolean
      readonly isBlocked?: boolean
    } = {},
  ) {
    super(`${quote(resource)} was not free within ${Math.round(waitedMs)} ms. ${advice}`)
    this.resource = resource
    this.waitedMs = waitedMs
    this.holders = found.holders
    this.heldByThisLocker = found.heldByThisLocker ?? false
    this.isBlocked = found.isBlocked ?? false
  }
}

/** The queue is full: as many wait already as the call allows (`maxWaiters`). Nothing is held, and nothing stays queued. */
export class QueueFullError extends HoldfastError {
  readonly code = 'QUEUE_FULL'
  readonly retryable = true
  readonly resource: string
  readonly maxWaiters: number

  constructor(resource: string, maxWaiters: number) {
    super(
      `${quote(resource)} is taken, and ${maxWaiters === 0 ? 'maxWaiters allows no waiting' : `${maxWaiters} or more are waiting for it`}. ` +
        'Try again later, do the work elsewhere, or raise maxWaiters.',
    )
    this.resource = resource
    this.maxWaiters = maxWaiters
  }
}

export type LossReason =
  | 'expired'
  | 'taken-over'
  | 'session-gone'
  | 'unreachable'
  | 'deleted'
  | 'force-released'
  | 'max-hold'
  | 'closed'
  | 'dropped'
  | 'released'

const lossMeaning: Record<LossReason, string> = {
  expired:
    'its time ran out before a renewal was confirmed (a paused process or a blocked event loop does this)',
  'taken-over': 'the engine says that another holder has it',
  'session-gone': 'the engine no longer knows the session',
  unreachable: 'the engine did not confirm a renewal in time',
  deleted: 'its record was removed from the engine',
  'force-released': 'an operator released it',
  'max-hold': 'it was held for maxHoldMs',
  closed: 'its locker was closed',
  dropped: 'it was garbage collected without having been released',
  released: 'its own holder has released it (is an await missing before what still uses it?)',
}

/** The end of the body of `withLease` when its lease was lost meanwhile. */
export type BodyOutcome =
  | { readonly status: 'fulfilled'; readonly value: unknown }
  | { readonly status: 'rejected'; readonly reason: unknown }

/** The lease ended before it was released. Also the reason of an aborted `lease.signal`. */
export class LeaseLostError extends HoldfastError {
  readonly code = 'LEASE_LOST'
  readonly retryable = false
  readonly resource: string
  readonly reason: LossReason
  /** The public id of the lease (`lease.id`): other leases may have the same name. Undefined for a claim that is no lease. */
  readonly leaseId: string | undefined
  /** How long the engine had granted it for, where that is known. */
  readonly ttlMs: number | undefined
  /** With `force-released`: the reason that the operator gave, where the engine could tell. */
  readonly detail: string | undefined
  /** Set by `withLease`: what the body returned or threw although the lease was gone. */
  body?: BodyOutcome

  constructor(
    resource: string,
    reason: LossReason,
    options: ErrorOptions & {
      readonly leaseId?: string | undefined
      readonly ttlMs?: number | undefined
      readonly detail?: string | undefined
      readonly advice?: string
    } = {},
  ) {
    const {
      leaseId,
      ttlMs,
      detail,
      advice = 'Stop the work, and acquire again if it is still needed.',
      ...rest
    } = options
    const ranOut = ttlMs !== undefined && (reason === 'expired' || reason === 'unreachable')
    const failure = reason === 'unreachable' && rest.cause instanceof Error ? rest.cause.message : ''
    super(
      `The lease on ${quote(resource)} is lost: ${lossMeaning[reason]}${detail === undefined ? '' : ` (${quote(detail)})`}. ` +
        (ranOut ? `Its TTL was ${ttlMs} ms. ` : '') +
        (failure === '' ? '' : `The last renewal failed: ${failure} `) +
        advice,
      rest,
    )
    this.resource = resource
    this.reason = reason
    this.leaseId = leaseId
    this.ttlMs = ttlMs
    this.detail = detail
  }
}

/** The guard has seen a newer fence: this holder was overtaken. */
export class FenceStaleError extends HoldfastError {
  readonly code = 'FENCE_STALE'
  readonly retryable = false
  readonly fence: Fence
  /** The highest token that the guard remembers for the name (or its issuer's floor). */
  readonly highest: bigint

  constructor(fence: Fence, highest: bigint, why = 'a newer holder has been here') {
    super(
      `${quote(fence.name)}: token ${fence.token} is refused, ${why} (highest token seen: ${highest}). ` +
        'The work done under this lease must not be repeated blindly: acquire again and read the current state.',
    )
    this.fence = fence
    this.highest = highest
    tokensAsText(this)
  }
}

/** The fence comes from an issuer whose tokens this guard or locker cannot compare with its own. */
export class FenceForeignError extends HoldfastError {
  readonly code = 'FENCE_FOREIGN'
  readonly retryable = false
  readonly fence: Fence
  readonly expected: readonly string[]

  constructor(fence: Fence, expected: readonly string[]) {
    super(
      `${quote(fence.name)}: the fence was issued by ${quote(fence.issuer)}, but only ` +
        `${expected.map(quote).join(', ')} is trusted here. Tokens of two issuers are not comparable; give both ` +
        'lockers the same issuer (and raise the epoch when you move), or name it in `issuers`.',
    )
    this.fence = fence
    this.expected = expected
  }
}

export type FenceProblem =
  | 'malformed'
  | 'unsigned'
  | 'unknown-key'
  | 'bad-signature'
  | 'not-a-fence'
  | 'missing'
  | 'wrong-name'

const fenceAdvice: Record<FenceProblem, string> = {
  malformed: 'the text is not a fence; pass on what formatFence returned, unchanged',
  unsigned: 'a signed fence is required here; format it with a signing key',
  'unknown-key': 'it is signed with a key that is not known here; add the key id to the verifying keys',
  'bad-signature': 'its signature does not match; it was changed or forged',
  'not-a-fence': 'the proof is not a fence; pass lease.fence, a fenced lease, or what parseFence returned',
  missing: 'the request has none; send the text of formatFence in the header Holdfast-Fence',
  'wrong-name': 'it is for another name than the request; acquire the name that the request is about',
}

/** The proof is malformed, forged, or unsigned where a signature is required. */
export class FenceInvalidError extends HoldfastError {
  readonly code = 'FENCE_INVALID'
  readonly retryable = false
  readonly problem: FenceProblem

  constructor(problem: FenceProblem, detail?: string) {
    super(`Fence refused: ${fenceAdvice[problem]}${detail === undefined ? '' : ` (${detail})`}.`)
    this.problem = problem
  }
}

/** Whether a failed call took effect: `unknown` means that it may have, or may yet. */
export type CallOutcome = 'not-applied' | 'unknown'

/** The engine could not be reached, did not answer, or answered with a failure of its own. */
export class BackendUnavailableError extends HoldfastError {
  readonly code = 'BACKEND_UNAVAILABLE'
  readonly retryable = true
  readonly backend: string
  readonly outcome: CallOutcome

  constructor(backend: string, what: string, outcome: CallOutcome, options?: ErrorOptions) {
    const effect = outcome === 'unknown' ? 'It may or may not have taken effect.' : 'It has not taken effect.'
    super(`${backend}: ${what}. ${effect}`, options)
    this.backend = backend
    this.outcome = outcome
    failures.set(this, what)
  }
}

/** The message of a failure, without the outcome. */
const failures = new WeakMap<BackendUnavailableError, string>()

/** The same failure where it is known that nothing was changed. An error of another copy of Holdfast stays as it is. */
export function asNotApplied(error: BackendUnavailableError): BackendUnavailableError {
  return withOutcome(error, 'not-applied')
}

export function withOutcome(error: BackendUnavailableError, outcome: CallOutcome): BackendUnavailableError {
  return error.outcome === outcome ? error : again(error, outcome)
}

/** The same failure with more to say. */
export function withNote(error: BackendUnavailableError, note: string): BackendUnavailableError {
  return again(error, error.outcome, `; ${note}`)
}

function again(error: BackendUnavailableError, outcome: CallOutcome, note = ''): BackendUnavailableError {
  const { backend, cause } = error
  const what = failures.get(error)
  if (what === undefined) return error
  return new BackendUnavailableError(backend, what + note, outcome, cause === undefined ? {} : { cause })
}

/** Clients disagree about what a name is: a lock, or a semaphore of a certain capacity. */
export class CapacityMismatchError extends HoldfastError {
  readonly code = 'CAPACITY_MISMATCH'
  readonly retryable = false
  readonly resource: string

  /** Both as `capacity` of the request: `LOCK_CAPACITY`, or a number of permits. */
  constructor(resource: string, asked: number, inUse: number) {
    super(
      `${quote(resource)} is in use as ${describeCapacity(inUse)}, and was asked for as ` +
        `${describeCapacity(asked)}. All clients must agree; ` +
        'locker.resize(name, …) changes the capacity of a semaphore on purpose.',
    )
    this.resource = resource
  }
}

function describeCapacity(capacity: number): string {
  return capacity === LOCK_CAPACITY ? 'a lock' : `a semaphore of ${capacity} permits`
}

export class InvalidArgumentError extends HoldfastError {
  readonly code = 'INVALID_ARGUMENT'
  readonly retryable = false
  readonly argument: string

  constructor(argument: string, rule: string, options?: ErrorOptions) {
    super(`${argument} ${rule}`, options)
    this.argument = argument
  }
}

/** The backend, file or platform cannot do what was asked, and says so instead of pretending (G12). */
export class UnsupportedError extends HoldfastError {
  readonly code = 'UNSUPPORTED'
  readonly retryable = false
}

/** The locker has been closed, or is closing. */
export class ClosedError extends HoldfastError {
  readonly code = 'CLOSED'
  readonly retryable = false
  constructor(what = 'The locker', state: 'closed' | 'draining' = 'closed') {
    super(
      state === 'closed'
        ? `${what} is closed. Create a new one to go on.`
        : `${what} is draining: it takes no new leases, and closes when what it holds has ended. Send the work to another process.`,
    )
  }
}

/** The update lost to others each time that it was tried. Nothing has been applied. */
export class ConflictError extends HoldfastError {
  readonly code = 'CONFLICT'
  readonly retryable = true

  /** `what` is a sentence that says what collided. */
  constructor(what: string, options?: ErrorOptions) {
    super(`${what} Nothing has been applied: read the current state, and try again.`, options)
  }
}

/** An idempotency key came again with another payload: it belongs to another request. */
export class KeyReusedError extends HoldfastError {
  readonly code = 'KEY_REUSED'
  readonly retryable = false
  readonly scope: string
  readonly key: string

  constructor(scope: string, key: string) {
    super(
      `The key ${quote(key)} of ${quote(scope)} was used with another payload before, so this is not the same request. ` +
        'Give every request a key of its own.',
    )
    this.scope = scope
    this.key = key
  }
}

/** The work of an idempotency key has failed before, and its failure was stored as the answer. */
export class StoredFailureError extends HoldfastError {
  readonly code = 'STORED_FAILURE'
  readonly retryable = false
  readonly scope: string
  readonly key: string
  /** The failure that `storeError` made of the error that the work threw. */
  readonly failure: unknown

  constructor(scope: string, key: string, failure: unknown) {
    super(
      `The work for the key ${quote(key)} of ${quote(scope)} has failed before, and \`failure\` says how. ` +
        'It is not done again for this key.',
    )
    this.scope = scope
    this.key = key
    this.failure = failure
  }
}

/** The work of an idempotency key called `store`, but no transaction with a result was committed before it returned. */
export class NotCommittedError extends HoldfastError {
  readonly code = 'NOT_COMMITTED'
  readonly retryable = true
  readonly scope: string
  readonly key: string

  constructor(scope: string, key: string) {
    super(
      `The work for the key ${quote(key)} of ${quote(scope)} called store and returned, but no transaction with its ` +
        'result was committed. There is no result, and the next call does the work again. Let the work throw when its ' +
        'transaction fails, or store another result in a new transaction.',
    )
    this.scope = scope
    this.key = key
  }
}

export interface ErrorByCode {
  ACQUIRE_TIMEOUT: AcquireTimeoutError
  QUEUE_FULL: QueueFullError
  LEASE_LOST: LeaseLostError
  FENCE_STALE: FenceStaleError
  FENCE_FOREIGN: FenceForeignError
  FENCE_INVALID: FenceInvalidError
  BACKEND_UNAVAILABLE: BackendUnavailableError
  CAPACITY_MISMATCH: CapacityMismatchError
  INVALID_ARGUMENT: InvalidArgumentError
  UNSUPPORTED: UnsupportedError
  CLOSED: ClosedError
  CONFLICT: ConflictError
  KEY_REUSED: KeyReusedError
  STORED_FAILURE: StoredFailureError
  NOT_COMMITTED: NotCommittedError
}

/** The union of all error classes: `switch (error.code)` narrows it. */
export type AnyHoldfastError = ErrorByCode[ErrorCode]

/** Tells Holdfast's errors from others, and one from another, also when two copies of the package are loaded. */
export function isHoldfastError(error: unknown): error is AnyHoldfastError
export function isHoldfastError<C extends ErrorCode>(error: unknown, code: C): error is ErrorByCode[C]
export function isHoldfastError(error: unknown, code?: ErrorCode): boolean {
  if (!(error instanceof Error) || !(brand in error)) return false
  return code === undefined || ('code' in error && error.code === code)
}

/** Whether a call that failed with `error` may have taken effect, or may yet. */
export function outcomeOf(error: unknown): CallOutcome {
  if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) return error.outcome
  return isHoldfastError(error) ? 'not-applied' : 'unknown'
}

/** The public id of the lease that was lost, or whose fence is stale; undefined for other errors. */
export function refusedLeaseId(error: unknown): string | undefined {
  if (isHoldfastError(error, 'LEASE_LOST')) return error.leaseId
  return isHoldfastError(error, 'FENCE_STALE') ? error.fence.grant : undefined
}

/** Describes anything that was thrown, and never throws. */
export function textOf(thrown: unknown): string {
  return textFrom(() => thrown)
}

/** The same, of an error without its name. Users set `message` to anything. */
export function messageOf(thrown: unknown): string {
  return textFrom(() => (thrown instanceof Error ? thrown.message : thrown))
}

function textFrom(read: () => unknown): string {
  try {
    return String(read())
  } catch {
    return 'something that has no text was thrown'
  }
}

/** Names come from users: shown quoted, with control characters escaped and huge ones cut. */
export function quote(text: string): string {
  const quoted = JSON.stringify(text)
  // The cut may go through a character of two halves; half of one would break a reader of the log.
  return quoted.length > 120 ? `${quoted.slice(0, 117).toWellFormed()}…"` : quoted
}
