/** The body of `withLease`: how it is given, and what became of it and of its lease (G11). */
import { type BodyOutcome, InvalidArgumentError, isHoldfastError, LeaseLostError } from './errors.ts'
import type { AcquireOptions, LeaseBase, LeaseSet } from './types.ts'

type Body<L, T> = (lease: L) => Promise<T> | T

/** The arguments of `withLease(name, body)` and `withLease(name, options, body)`. */
export function readBody<L, T>(
  optionsOrBody: AcquireOptions | Body<L, T>,
  maybeBody: Body<L, T> | undefined,
): { readonly options: AcquireOptions; readonly body: Body<L, T> } {
  // `undefined` may come from a caller without types: its own options, handed on.
  const options = typeof optionsOrBody === 'function' || optionsOrBody === undefined ? {} : optionsOrBody
  const body = typeof optionsOrBody === 'function' ? optionsOrBody : maybeBody
  if (typeof body !== 'function') throw new InvalidArgumentError('body', 'must be a function.')
  if (typeof optionsOrBody === 'function' && maybeBody !== undefined)
    throw new InvalidArgumentError('body', 'must come last: after the name and the options.')
  return { options, body }
}

export async function settle(body: () => unknown): Promise<BodyOutcome> {
  try {
    return { status: 'fulfilled', value: await body() }
  } catch (reason) {
    return { status: 'rejected', reason }
  }
}

/** Tells a locker of a body that runs under its leases: its closing waits for it. */
export const bodyRuns = Symbol('a body runs')

/** Needs of `withLeases`; a wrapper of a locker is one, too. */
export interface LeasesLocker<S> {
  acquireAll(names: readonly string[], options?: AcquireOptions): Promise<S>
  readonly [bodyRuns]?: (finished: Promise<void>) => void
}

export async function withLeases<S extends LeaseSet, T>(
  locker: LeasesLocker<S>,
  names: readonly string[],
  optionsOrBody: AcquireOptions | Body<S, T>,
  maybeBody: Body<S, T> | undefined,
): Promise<T> {
  const { options, body } = readBody(optionsOrBody, maybeBody)
  const set = await locker.acquireAll(names, options)
  // As in `withLease`: a lease may have been lost before the body could begin. So the error has no outcome of a body.
  const loss = lostOf(set.leases)
  if (loss !== undefined) {
    await set.release()
    throw loss
  }
  const running = settle(() => body(set))
  locker[bodyRuns]?.(running.then(() => {}))
  return concludeAll<T>(set.leases, await running)
}

/** Releases the lease, and settles as the body did; if the lease was lost meanwhile, with that loss. */
export function conclude<T>(lease: LeaseBase, ended: BodyOutcome): Promise<T> {
  return concludeAll<T>([lease], ended)
}

function lostOf(leases: readonly LeaseBase[]): LeaseLostError | undefined {
  return leases.find(({ state }) => state === 'lost')?.signal.reason as LeaseLostError | undefined
}

async function concludeAll<T>(leases: readonly LeaseBase[], ended: BodyOutcome): Promise<T> {
  // Asked before the release: whether one was lost while the body ran.
  const loss = lostOf(leases)
  await Promise.all(leases.map((lease) => lease.release()))
  if (loss !== undefined) throw withBody(loss, ended)
  if (ended.status === 'rejected') throw ended.reason
  return ended.value as T
}

/** A new error for every body: the signal's own error is shared by all of its listeners. */
function withBody(loss: LeaseLostError, body: BodyOutcome): LeaseLostError {
  const { resource, reason, leaseId, ttlMs, detail } = loss
  // An unreachable engine has a cause of its own, which the message tells. The body's error is in `body`.
  const isBlamedOnBody =
    reason !== 'unreachable' && body.status === 'rejected' && !isHoldfastError(body.reason, 'LEASE_LOST')
  const cause = isBlamedOnBody ? body.reason : loss.cause
  const error = new LeaseLostError(resource, reason, {
    ...(cause !== undefined && { cause }),
    leaseId,
    ttlMs,
    detail,
  })
  error.body = body
  return error
}
