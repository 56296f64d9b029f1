/**
 * The Web Locks API (https://w3c.github.io/web-locks/) over a fleet: what `navigator.locks` and `worker_threads.locks` are to one
 * machine, on any locker. `docs/web-locks.md` has the differences.
 *
 *   requested ──granted──▶ held ──callback settles, then release──▶ settled as the callback
 *    │  │  │                └──lease lost──▶ rejected at once: AbortError   (the callback runs on, its outcome is not used)
 *    │  │  └──ifAvailable, and taken──▶ callback(null), settled as that
 *    │  └──signal aborts──▶ rejected with its reason, and nothing stays queued
 *    ├──steal, and taken──▶ holders force-released, requested anew
 *    └──engine or locker fails──▶ rejected with their error
 *
 * Failures in between:
 *   the signal aborts between the grant and the callback: the callback is not called, and the lease is released.
 *   the lease is lost between the grant and the callback: the callback is not called.
 *   the process pauses in the callback, and its lease ends: the callback goes on and does not know. A guard refuses what it writes
 *     after its successor (`lock.lease.fence`).
 *   the callback never settles, and nothing refers to its promise: the lock is held all the same. The lease is kept from the garbage
 *     collector by the listener on its own signal.
 *   an engine that cannot be reached is asked with `ifAvailable`: an error and not null, which would say that the lock is taken.
 *   a thief dies between its force release and its own request: the next waiter has the lock, or it is free.
 *   a holder comes between the thief's look and its force release: it keeps the lock, because its id was not seen.
 */
import { onAborted } from './base/aborting.ts'
import { isHoldfastError, quote } from './base/errors.ts'
import { checkKnownOptions, checkLocker, checkNumber } from './base/options.ts'
import type { Fencing, HolderState, Lease, Locker, WaiterState } from './base/types.ts'

export type WebLockMode = 'exclusive' | 'shared'

/** The `Lock` of the standard, with its lease. */
export interface WebLock<F extends Fencing = Fencing> {
  readonly name: string
  readonly mode: WebLockMode
  /** Belief and proof: `signal` aborts when the lock is lost, and a guard takes the `fence`. */
  readonly lease: Lease<F>
}

export interface WebLockOptions {
  /** Default `exclusive`. */
  mode?: WebLockMode
  /** Do not wait: the callback gets null if the lock is taken. */
  ifAvailable?: boolean
  /** Force-release the present holders, then queue. Needs `allowSteal`. */
  steal?: boolean
  /** Ends the wait. It has no effect on a lock that is held. */
  signal?: AbortSignal
}

export interface WebLockInfo {
  name: string
  mode: WebLockMode
  /** The label of the holder's locker. */
  clientId: string
}

export interface WebLockSnapshot {
  held: WebLockInfo[]
  /** Empty on engines that poll. */
  pending: WebLockInfo[]
}

/** Assignable to `LockManager` of lib.dom and of `node:worker_threads`. */
export interface WebLockManager<F extends Fencing = Fencing> {
  request<T>(name: string, callback: (lock: WebLock<F>) => T): Promise<Awaited<T>>
  request<T>(
    name: string,
    options: WebLockOptions & { ifAvailable?: false },
    callback: (lock: WebLock<F>) => T,
  ): Promise<Awaited<T>>
  request<T>(
    name: string,
    options: WebLockOptions,
    callback: (lock: WebLock<F> | null) => T,
  ): Promise<Awaited<T>>
  query(): Promise<WebLockSnapshot>
}

export interface WebLocksOptions {
  /** The TTL of every lock: with 10,000 the lock of a process that has died is free after ten seconds. Default: that of the locker. */
  readonly ttlMs?: number
  /** Whether `steal` is allowed. Without it, a request with `steal` is rejected with `NotSupportedError`. Default false. */
  readonly allowSteal?: boolean
}

/** A `LockManager` whose locks are leases of this locker. They end when the locker is closed. */
export function webLocks<F extends Fencing>(
  locker: Locker<F>,
  options: WebLocksOptions = {},
): WebLockManager<F> {
  checkLocker(locker)
  checkKnownOptions('options', options, ['ttlMs', 'allowSteal'])
  const { ttlMs, allowSteal } = options
  if (ttlMs !== undefined) checkNumber('ttlMs', ttlMs, locker.info.ttlMs)
  const request = async (...given: readonly unknown[]) => {
    const asked = readRequest<F>(given)
    checkRequest(asked, allowSteal === true)
    if (!asked.steal) return hold(locker, asked, ttlMs)
    const callback = async (lock: WebLock<F> | null) => {
      if (lock !== null) return asked.callback(lock)
      await forceRelease(locker, asked.name)
      return hold(locker, asked, ttlMs)
    }
    // A locker that grants nothing, for example because it drains, refuses here, before the holder loses its lock.
    return hold(locker, { ...asked, ifAvailable: true, callback }, ttlMs)
  }
  const query = async () => {
    const states = await locker.list()
    return {
      held: states.flatMap(({ name, holders }) => locksOf(name, holders)),
      pending: states.flatMap(({ name, waiters }) => locksOf(name, waiters)),
    }
  }
  return { request: request as WebLockManager<F>['request'], query }
}

interface Request<F extends Fencing> {
  readonly name: string
  readonly mode: WebLockMode
  readonly ifAvailable: boolean
  readonly steal: boolean
  readonly signal: AbortSignal | undefined
  readonly callback: (lock: WebLock<F> | null) => unknown
}

/** The arguments as Web IDL converts them: from left to right, and unknown options are ignored. */
function readRequest<F extends Fencing>(given: readonly unknown[]): Request<F> {
  // A template throws on a symbol, as the standard wants.
  const name = `${given[0]}`
  const options = (given.length === 2 ? undefined : given[1]) ?? {}
  if (typeof options !== 'object' && typeof options !== 'function')
    throw new TypeError('The options of a request must be an object.')
  const { ifAvailable, mode: asked = 'exclusive', signal, steal } = options as Record<string, unknown>
  const mode = `${asked}`
  if (mode !== 'exclusive' && mode !== 'shared')
    throw new TypeError(`mode must be 'exclusive' or 'shared', not ${quote(mode)}.`)
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new TypeError('signal must be an AbortSignal.')
  const last = given[given.length === 2 ? 1 : 2]
  if (typeof last !== 'function') throw new TypeError('The callback of a request must be a function.')
  const callback = last as Request<F>['callback']
  return { name, mode, ifAvailable: Boolean(ifAvailable), steal: Boolean(steal), signal, callback }
}

/** The steps of `request()` in the standard's order. The locker checks what else a name must be. */
function checkRequest(
  { name, mode, ifAvailable, steal, signal }: Request<Fencing>,
  allowSteal: boolean,
): void {
  const refuse = (why: string) => {
    throw new DOMException(why, 'NotSupportedError')
  }
  if (name.startsWith('-')) refuse(`${quote(name)}: names that begin with a hyphen are reserved.`)
  if (steal && ifAvailable) refuse('steal and ifAvailable exclude each other.')
  if (steal && mode !== 'exclusive') refuse('steal is for exclusive locks only.')
  if (signal && (steal || ifAvailable)) refuse('signal goes with neither steal nor ifAvailable.')
  signal?.throwIfAborted()
  if (steal && !allowSteal)
    refuse('Holders elsewhere learn of a steal late. webLocks(locker, { allowSteal: true }) allows it.')
}

/** Permits of a semaphore are not touched: the request that follows is refused. */
async function forceRelease(locker: Locker, name: string): Promise<void> {
  const { holders = [] } = (await locker.inspect(name)) ?? {}
  const reason = `stolen by ${locker.holder} (Web Locks)`
  const locks = holders.filter(({ mode }) => mode !== 'permits')
  await Promise.all(locks.map(({ id }) => locker.forceRelease(name, { id, reason })))
}

async function hold<F extends Fencing>(
  locker: Locker<F>,
  { name, mode, ifAvailable, signal, callback }: Request<F>,
  ttlMs: number | undefined,
): Promise<unknown> {
  const lost = Promise.withResolvers<never>()
  const waitMs = ifAvailable ? 0 : Number.POSITIVE_INFINITY
  const terms = { mode, waitMs, ...(ttlMs !== undefined && { ttlMs }), ...(signal && { signal }) }
  let isHeld = false
  const held = locker.withLease(name, terms, (lease) => {
    signal?.throwIfAborted()
    isHeld = true
    onAborted(lease.signal, () => lost.reject(brokenLock(lease.name, lease.signal.reason)))
    return callback({ name, mode, lease })
  })
  try {
    return await Promise.race([held, lost.promise])
  } catch (error) {
    if (isHeld || error === signal?.reason) throw error
    if (ifAvailable && isHoldfastError(error, 'ACQUIRE_TIMEOUT')) return callback(null)
    throw isHoldfastError(error, 'LEASE_LOST') ? brokenLock(name, error) : error
  }
}

function brokenLock(name: string, cause: unknown): DOMException {
  const message = `The lock ${quote(name)} was lost before its callback had ended.`
  return new DOMException(message, { name: 'AbortError', cause })
}

function locksOf(name: string, claims: readonly (HolderState | WaiterState)[]): WebLockInfo[] {
  return claims.flatMap(({ mode, holder }) => (mode === 'permits' ? [] : [{ name, mode, clientId: holder }]))
}
