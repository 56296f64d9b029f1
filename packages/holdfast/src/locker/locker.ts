/**
 * The locker: what users call. It checks what they ask for, bounds how long they wait, and leaves the rest to the
 * sessions (`keeper`), the wait (`waiting`) and the lease.
 */

import { hostname } from 'node:os'
import { allPages } from '../base/all-pages.ts'
import { Background } from '../base/background.ts'
import { Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { afterThisTurn, type Clock, keepProcessAlive, type Timer } from '../base/clock.ts'
import { defaults, limits } from '../base/defaults.ts'
import {
  ClosedError,
  FenceForeignError,
  FenceInvalidError,
  InvalidArgumentError,
  UnsupportedError,
} from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import { type Fence, isFence, withEpoch, withoutEpoch } from '../base/fence.ts'
import type { Random } from '../base/ids.ts'
import { ignore } from '../base/ignore.ts'
import { bodyRuns, readBody, withLeases } from '../base/lease-body.ts'
import { canonicalOrder, HeldLeases } from '../base/lease-set.ts'
import { checkName, checkPrefix, checkText, compareNames } from '../base/names.ts'
import {
  checkCallOptions,
  checkInteger,
  checkKnownOptions,
  checkNumber,
  checkSignal,
} from '../base/options.ts'
import { tokensAsText } from '../base/tokens-as-text.ts'
import type {
  AcquireOptions,
  CallOptions,
  CloseOptions,
  Finding,
  ForceReleaseOptions,
  Lease,
  LeaseSet,
  Locker,
  NameState,
  Page,
  PageOptions,
  Permit,
  PermitOptions,
  SessionState,
  TryAcquireOptions,
  TryPermitOptions,
  WatchOptions,
} from '../base/types.ts'
import { settledWithin } from '../base/within.ts'
import type * as spi from '../spi.ts'
import type { Backend, BackendInfo, Call, Fencing, WatchEvent } from '../spi.ts'
import {
  type AcquireDefaults,
  checkCapacity,
  checkTtlMs,
  checkWaitMs,
  wantedLock,
  wantedPermits,
} from './acquire-options.ts'
import { Acquiring, stopWith } from './acquiring.ts'
import { callForCaller, changingNothing } from './call.ts'
import type { LockerContext } from './context.ts'
import { leaseHandle, permitHandle } from './handle.ts'
import type { LeaseRecord } from './lease.ts'
import { shownState } from './name-state.ts'
import { holdersMeantBy, Operating } from './operating.ts'
import { Sessions } from './sessions.ts'
import { keptAliveWhilePending, watchByListing } from './watch-by-listing.ts'
import { runWithLease } from './with-lease.ts'

export interface LockerOptions {
  /** The TTL of leases that do not say theirs. Default 15,000, or what is nearest to it within `info.ttlMs`. */
  readonly ttlMs?: number
  /** How long acquires wait that do not say it. Default 30,000. */
  readonly waitMs?: number
  /** The public label of this client. Default: host name, process id and four random characters. */
  readonly holder?: string
  /** How long one call to the engine may take before its outcome counts as unknown. Default 5,000. */
  readonly callTimeoutMs?: number
}

/** The locker owns its backend from here on: closing the one closes the other. */
export function createLocker<F extends Fencing>(backend: Backend<F>, options: LockerOptions = {}): Locker<F> {
  if (typeof backend?.openSession !== 'function')
    throw new InvalidArgumentError(
      'backend',
      backend instanceof Promise
        ? 'must be a backend; it is a promise: an `await` is missing, as in createLocker(await postgres({ client })).'
        : 'must be a backend, for example sqlite({ path }) of holdfast/sqlite.',
    )
  return new BackendLocker(backend, options)
}

class BackendLocker<F extends Fencing> implements Locker<F> {
  readonly fencing: F
  readonly info: BackendInfo<F>
  readonly holder: string
  readonly clock: Clock
  readonly #backend: Backend<F>
  readonly #defaults: AcquireDefaults
  readonly #context: LockerContext
  readonly #sessions: Sessions<F>
  readonly #acquiring: Acquiring<F>
  readonly #operating: Operating
  readonly #background = new Background()
  /** The bodies of `withLease` that run, with what keeps the process alive for them. */
  readonly #bodies = new Map<Promise<unknown>, Timer>()
  readonly #closing = new Cancellation()
  /** No acquire from here on: it closes, or is about to. */
  readonly #refusing = new Cancellation()
  readonly #drained = new Cancellation()
  readonly #graceIsOver = new Cancellation()
  #graceMs: number = defaults.closeGraceMs
  #closed: Promise<void> | undefined

  constructor(backend: Backend<F>, options: LockerOptions) {
    checkKnownOptions('options', options, ['ttlMs', 'waitMs', 'holder', 'callTimeoutMs'])
    const { clock, random, info } = backend
    this.#backend = backend
    this.info = info
    this.fencing = info.fencing
    this.clock = clock
    this.holder =
      options.holder === undefined
        ? defaultHolder(random)
        : checkText('holder', options.holder, limits.holderBytes)
    const { min, max } = info.ttlMs
    const { ttlMs = Math.min(Math.max(defaults.ttlMs, min), max), waitMs = defaults.waitMs } = options
    const { callTimeoutMs = defaults.callTimeoutMs } = options
    this.#defaults = { ttlMs: checkTtlMs(info, ttlMs), waitMs: checkWaitMs(waitMs) }
    this.#context = {
      clock,
      random,
      info,
      backendName: info.name,
      whyUnanswered: () => backend.whyUnanswered?.(),
      holder: this.holder,
      callTimeoutMs: checkNumber('callTimeoutMs', callTimeoutMs, { min: 1 }),
      maxSessions: defaults.maxSessions,
      maxAbandonedPerSession: defaults.maxAbandonedPerSession,
      background: this.#background,
    }
    this.#sessions = new Sessions(backend, this.#context)
    this.#acquiring = new Acquiring(backend, this.#context, this.#sessions, this.#refusing)
    this.#operating = new Operating(backend, this.#context, (what, options, run) =>
      this.#call(what, options, run),
    )
  }

  // --- acquiring -------------------------------------------------------------------------------------------

  async tryAcquire(name: string, options: TryAcquireOptions = {}): Promise<Lease<F> | null> {
    const wanted = wantedLock(this.info, name, options, this.#defaults, false)
    const record = await this.#acquiring.tryOnce(wanted, options.signal)
    return record === null ? null : leaseHandle<F>(record, this.#context)
  }

  async acquire(name: string, options?: AcquireOptions): Promise<Lease<F>> {
    return leaseHandle<F>(await this.#obtain(name, options), this.#context)
  }

  #obtain(name: string, options: AcquireOptions = {}): Promise<LeaseRecord> {
    const wanted = wantedLock(this.info, name, options, this.#defaults, true)
    return this.#acquiring.obtain(wanted, this.#waitMs(options.waitMs), options.signal)
  }

  async tryAcquirePermits(name: string, options: TryPermitOptions): Promise<Permit | null> {
    const wanted = wantedPermits(this.info, name, options, this.#defaults, false)
    const record = await this.#acquiring.tryOnce(wanted, options.signal)
    return record === null ? null : permitHandle(record, this.#context)
  }

  async acquirePermits(name: string, options: PermitOptions): Promise<Permit> {
    const wanted = wantedPermits(this.info, name, options, this.#defaults, true)
    return permitHandle(
      await this.#acquiring.obtain(wanted, this.#waitMs(options.waitMs), options.signal),
      this.#context,
    )
  }

  async acquireAll(names: readonly string[], options: AcquireOptions = {}): Promise<LeaseSet<F>> {
    const ordered = canonicalOrder(names)
    const wanted = ordered.map((name) => wantedLock(this.info, name, options, this.#defaults, true))
    const waitMs = this.#waitMs(options.waitMs)
    const records = await this.#acquiring.obtainAll(wanted, waitMs, options.signal)
    return new HeldLeases(records.map((record) => leaseHandle<F>(record, this.#context)))
  }

  async withLease<T>(
    name: string,
    optionsOrBody: AcquireOptions | ((lease: Lease<F>) => Promise<T> | T),
    maybeBody?: (lease: Lease<F>) => Promise<T> | T,
  ): Promise<T> {
    const { options, body } = readBody(optionsOrBody, maybeBody)
    const record = await this.#obtain(name, options)
    // Closing, or a blocked event loop, may have come in between: then the name is no longer kept for a body that starts now.
    if (record.state === 'lost') throw record.signal.reason
    const running = runWithLease(record, leaseHandle<F>(record, this.#context), body)
    this[bodyRuns](running.finished)
    return running.outcome
  }

  withLeases<T>(
    names: readonly string[],
    optionsOrBody: AcquireOptions | ((leases: LeaseSet<F>) => Promise<T> | T),
    maybeBody?: (leases: LeaseSet<F>) => Promise<T> | T,
  ): Promise<T> {
    return withLeases<LeaseSet<F>, T>(this, names, optionsOrBody, maybeBody)
  }

  [bodyRuns](finished: Promise<void>): void {
    const alive = keepProcessAlive(this.#context.clock)
    this.#bodies.set(finished, alive)
    finished.then(() => {
      this.#bodies.delete(finished)
      alive.cancel()
    })
  }

  #waitMs(asked: number | undefined): number {
    return asked === undefined ? this.#defaults.waitMs : checkWaitMs(asked)
  }

  #about(name: string) {
    return { backend: this.info.name, namespace: this.info.namespace, name, holder: this.holder }
  }

  // --- looking ---------------------------------------------------------------------------------------------

  async check(fence: Fence, options?: CallOptions): Promise<boolean> {
    if (!isFence(fence)) throw new FenceInvalidError('not-a-fence')
    if (fence.issuer !== this.info.issuer) throw new FenceForeignError(fence, [this.info.issuer])
    const token = withoutEpoch(this.info.epoch, fence.token)
    if (token === null) return false
    const holder = { name: fence.name, id: fence.grant, token }
    return this.#read(`check of "${fence.name}"`, options, (call) => this.#backend.check(holder, call))
  }

  async inspect(name: string, options?: CallOptions): Promise<NameState | null> {
    checkName(name)
    const state = await this.#read(`inspect of "${name}"`, options, (call) =>
      this.#backend.inspect(name, call),
    )
    return state === null ? null : shownState(state, this.info.epoch)
  }

  async list(prefix = '', options?: CallOptions): Promise<readonly NameState[]> {
    checkPrefix(prefix)
    // An engine without an ordered index may show a name on two pages: the later look counts.
    const byName = new Map<string, NameState>()
    for await (const states of this.#pages(prefix, options))
      for (const state of states) byName.set(state.name, shownState(state, this.info.epoch))
    return [...byName.values()].sort((a, b) => compareNames(a.name, b.name))
  }

  async listPage(prefix = '', options?: PageOptions): Promise<Page<NameState>> {
    checkPrefix(prefix)
    const { items, next } = await this.#callPage('list', options, (page, call) =>
      this.#backend.list(prefix, page, call),
    )
    return { items: items.map((state) => shownState(state, this.info.epoch)), next }
  }

  async sessions(options?: PageOptions): Promise<Page<SessionState>> {
    if (this.#backend.sessions === undefined)
      throw new UnsupportedError(`${this.info.name} cannot list its sessions.`)
    const { sessions } = this.#backend
    return this.#callPage('list of sessions', options, (page, call) =>
      sessions.call(this.#backend, page, call),
    )
  }

  async diagnose(options?: CallOptions): Promise<readonly Finding[]> {
    return this.#read('diagnosis', options, async (call) => (await this.#backend.diagnose?.(call)) ?? [])
  }

  async *#pages(prefix: string, options: CallOptions | undefined): AsyncGenerator<readonly spi.NameState[]> {
    yield* allPages(async (page) => {
      // An engine in this process answers without a turn of the event loop: many pages would keep it from turning.
      if (page.cursor !== undefined) await new Promise<void>(afterThisTurn)
      return this.#read('list', options, (call) => this.#backend.list(prefix, page, call))
    })
  }

  #callPage<T>(
    what: string,
    options: PageOptions = {},
    run: (page: spi.PageRequest, call: Call) => Promise<Page<T>>,
  ): Promise<Page<T>> {
    checkKnownOptions('options', options, ['cursor', 'limit', 'signal'])
    const { cursor, limit = defaults.pageItems, signal } = options
    const page = {
      limit: checkInteger('limit', limit, { min: 1, max: limits.maxPageItems }),
      ...(cursor !== undefined && { cursor: checkText('cursor', cursor, limits.cursorBytes) }),
    }
    return this.#read(what, signal === undefined ? {} : { signal }, (call) => run(page, call))
  }

  async *watch(prefix = '', options: WatchOptions = {}): AsyncGenerator<WatchEvent> {
    checkPrefix(prefix)
    checkKnownOptions('options', options, ['cursor', 'signal'])
    checkSignal(options.signal)
    const stop = stopWith(this.#closing, options.signal)
    const { signal } = stop.cancellation
    const cursor =
      options.cursor === undefined ? {} : { cursor: checkText('cursor', options.cursor, limits.cursorBytes) }
    const events =
      this.#backend.watch?.(prefix, cursor, stop.cancellation) ??
      watchByListing(() => this.#pages(prefix, { signal }), {
        clock: this.#context.clock,
        intervalMs: defaults.watchIntervalMs,
        signal,
        ...cursor,
      })
    try {
      for await (const event of keptAliveWhilePending(this.#context.clock, events)) {
        if ('token' in event && event.token !== null)
          yield tokensAsText({ ...event, token: withEpoch(this.info.epoch, event.token) })
        else yield event
      }
    } catch (error) {
      // The caller has aborted the watch: the iteration ends, it does not fail.
      if (!signal.aborted) throw error
    } finally {
      stop.untie()
    }
  }

  // --- operating -------------------------------------------------------------------------------------------

  async forceRelease(name: string, options: ForceReleaseOptions & CallOptions): Promise<number> {
    checkName(name)
    checkKnownOptions('options', options, ['holder', 'token', 'id', 'all', 'reason', 'signal'])
    const reason = checkText('reason', options?.reason, limits.noteBytes)
    const isMeant = holdersMeantBy(options, this.info.epoch)
    const call = { ...(options.signal && { signal: options.signal }) }
    const count = await this.#operating.forceRelease(name, isMeant, reason, call)
    if (count > 0 && hasListeners('force-released'))
      emit('force-released', { ...this.#about(name), reason, count })
    return count
  }

  async resize(
    name: string,
    capacity: number,
    options?: CallOptions,
  ): Promise<'resized' | 'in-use' | 'not-found'> {
    checkName(name)
    checkCapacity(capacity)
    return this.#operating.resize(name, capacity, options)
  }

  async forget(name: string, options?: CallOptions): Promise<'forgotten' | 'in-use' | 'not-found'> {
    checkName(name)
    return this.#operating.forget(name, options)
  }

  #read<T>(what: string, options: CallOptions | undefined, run: (call: Call) => Promise<T>): Promise<T> {
    return changingNothing(this.#call(what, options, run))
  }

  async #call<T>(
    what: string,
    options: CallOptions | undefined,
    run: (call: Call) => Promise<T>,
  ): Promise<T> {
    checkCallOptions(options)
    const stop = stopWith(this.#closing, options?.signal)
    try {
      return await callForCaller(this.#context, what, stop.cancellation, run)
    } finally {
      stop.untie()
    }
  }

  // --- closing ---------------------------------------------------------------------------------------------

  async close(options: CloseOptions = {}): Promise<void> {
    checkKnownOptions('options', options, ['graceMs', 'drainMs'])
    const drainMs = checkNumber('drainMs', options.drainMs ?? 0, { min: 0, max: limits.timerMs })
    const { graceMs = this.#graceMs } = options
    this.#graceMs = checkNumber('graceMs', graceMs, { min: 0, infinityAllowed: true })
    if (graceMs === 0 && this.#closed !== undefined) this.#graceIsOver.cancel(undefined)
    if (this.#closed === undefined) {
      // Set first: a listener of a lease that is lost here may close as well.
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#closed = promise
      // Without draining, all leases are lost before this returns.
      resolve(drainMs === 0 ? this.#close() : this.#drain(drainMs).then(() => this.#close()))
    }
    // Asked again without more time, say by a second SIGTERM.
    if (drainMs === 0) this.#drained.cancel(undefined)
    return this.#closed
  }

  /** No new lease; those that are there end by themselves, with signals untouched. */
  async #drain(drainMs: number): Promise<void> {
    this.#refusing.cancel(new ClosedError('The locker', 'draining'))
    const idle = Promise.all(this.#sessions.all.map((session) => session.whenIdle()))
    await this.#within(drainMs, unlessCancelled(Promise.all([idle, ...this.#bodies.keys()]), this.#drained))
  }

  async #close(): Promise<void> {
    this.#refusing.cancel(new ClosedError())
    this.#closing.cancel(new ClosedError())
    // After a drain the refusal says that it is draining, which is over.
    this.#acquiring.closing = this.#closing
    this.#sessions.stopOpening()
    // Holders are told to stop before anything is given away (T53, early releases): their leases stay renewed until the bodies
    // have ended or the grace is over.
    for (const session of this.#sessions.all) {
      for (const lease of [...session.attempts.leases()]) lease.lose('closed', 'kept')
    }
    const bodies = Promise.allSettled(this.#bodies.keys())
    await this.#within(this.#graceMs, unlessCancelled(bodies, this.#graceIsOver))
    // A body that ignores its signal must not keep the process alive after that.
    for (const alive of this.#bodies.values()) alive.cancel()
    await this.#sessions.closeAll()
    await this.#within(this.#context.callTimeoutMs, this.#background.idle())
    const alive = keepProcessAlive(this.#context.clock)
    try {
      await this.#backend[Symbol.asyncDispose]()
    } finally {
      alive.cancel()
    }
  }

  async #within(ms: number, work: Promise<unknown>): Promise<void> {
    await settledWithin(this.#context.clock, ms, work, { keepsProcessAlive: true }).catch(ignore)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

function defaultHolder(random: Random): string {
  // A host name comes from the system, not from the user: cut it rather than refuse it.
  return `${hostname().slice(0, 100)}:${process.pid}:${random.id().slice(0, 4)}`
}
