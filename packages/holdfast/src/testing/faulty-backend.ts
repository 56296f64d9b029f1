/**
 * Any backend, over a wire on which things go wrong: by script, by a plan, or by a seeded source of misfortune.
 *
 * ```ts
 * const faults = faultyBackend(memory())
 * const locker = createLocker(faults)
 * const lease = await locker.acquire('sku:42')
 * faults.next('release', { kind: 'lost-reply' })
 * await lease.release() // 'unknown', and cleaned up in the background
 * ```
 *
 * Time comes from the clock only; nothing is printed. What happened is in `log`.
 */
import { callWith } from '../base/aborting.ts'
import type { Clock } from '../base/clock.ts'
import type { Random } from '../base/ids.ts'
import { answering } from '../kit/answering.ts'
import type {
  AcquireRequest,
  AcquireResult,
  AttachedSession,
  Attempt,
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  Claim,
  Fencing,
  ForgetResult,
  GrantedClaim,
  HolderKey,
  InspectCall,
  Instant,
  KeepAliveResult,
  ListedClaims,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  ReleaseResult,
  ReleaseTerms,
  ResizeResult,
  SessionHandle,
  SessionRequest,
} from '../spi.ts'
import { enqueued } from './enqueued.ts'
import type { CallKind, Fault, FaultPlan } from './faults.ts'
import { FaultyWire, type LoggedCall } from './faulty-wire.ts'

export interface FaultyBackendOptions {
  /** Times what is late. Default: the backend's own. */
  readonly clock?: Clock
  /** Asked for every call that `next` says nothing about. Default: nothing goes wrong. */
  readonly plan?: FaultPlan
}

export function faultyBackend<F extends Fencing>(
  backend: Backend<F>,
  options: FaultyBackendOptions = {},
): FaultyBackend<F> {
  return new FaultyBackend(backend, options)
}

export class FaultyBackend<F extends Fencing = Fencing> implements Backend<F> {
  readonly info: BackendInfo<F>
  readonly clock: Clock
  readonly random: Random
  declare readonly watch?: NonNullable<Backend<F>['watch']>
  declare readonly sessions?: NonNullable<Backend<F>['sessions']>
  declare readonly diagnose?: NonNullable<Backend<F>['diagnose']>
  readonly #inner: Backend<F>
  readonly #wire: FaultyWire

  constructor(inner: Backend<F>, options: FaultyBackendOptions = {}) {
    this.info = inner.info
    this.clock = inner.clock
    this.random = inner.random
    this.#inner = inner
    this.#wire = new FaultyWire({
      clock: options.clock ?? inner.clock,
      backendName: inner.info.name,
      plan: options.plan ?? (() => null),
    })
    if (inner.watch !== undefined) this.watch = inner.watch.bind(inner)
    const { sessions, diagnose } = inner
    if (sessions !== undefined)
      this.sessions = (page, call) =>
        this.#send('sessions', null, call, (innerCall) => sessions.call(inner, page, innerCall))
    if (diagnose !== undefined)
      this.diagnose = (call) =>
        this.#send('diagnose', null, call, (innerCall) => diagnose.call(inner, innerCall))
  }

  // --- what goes wrong -------------------------------------------------------------------------------------

  /** The next call of this kind goes wrong in this way. Several faults are used one after the other, one for each call. */
  next(kind: CallKind, fault: Fault): void {
    this.#wire.next(kind, fault)
  }

  /** From now on nothing arrives, in either direction, and nothing fails. */
  freeze(): void {
    this.#wire.freeze()
  }

  /** Requests that were sent meanwhile arrive now, in their order, whether or not their callers still wait. */
  unfreeze(): void {
    this.#wire.unfreeze()
  }

  /** The connection breaks: what is in flight ends as unknown, and new calls are refused until `restore`. */
  cutOff(): void {
    this.#wire.cutOff()
  }

  restore(): void {
    this.#wire.restore()
  }

  /** Nothing goes wrong any more, except by the plan: forgets what `next` has announced, unfreezes and restores. */
  calm(): void {
    this.#wire.calm()
  }

  get isFrozen(): boolean {
    return this.#wire.state === 'frozen'
  }

  // --- what happened ---------------------------------------------------------------------------------------

  /** Every call so far, in order. */
  get log(): readonly LoggedCall[] {
    return this.#wire.log
  }

  /** How many calls were made, of one kind or of all. */
  count(kind?: CallKind): number {
    return kind === undefined ? this.log.length : this.log.filter((call) => call.kind === kind).length
  }

  // --- the backend -----------------------------------------------------------------------------------------

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<F>> {
    const session = await this.#send('openSession', null, call, (inner) =>
      this.#inner.openSession(request, inner),
    )
    return Object.assign(new FaultySession(session, this.#wire), { since: session.since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<AttachedSession<F> | null> {
    const attach = (inner: Call) => this.#inner.attachSession(handle, inner)
    const session = await this.#send('attachSession', null, call, attach)
    return session === null ? null : new FaultySession(session, this.#wire)
  }

  inspect(name: string, call: InspectCall): Promise<NameState | null> {
    const { holdersOnly = false } = call
    return this.#send('inspect', name, call, (inner) =>
      this.#inner.inspect(name, callWith(inner.signal, { holdersOnly })),
    )
  }

  list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    return this.#send('list', null, call, (inner) => this.#inner.list(prefix, page, inner))
  }

  check(holder: HolderKey, call: Call): Promise<boolean> {
    return this.#send('check', holder.name, call, (inner) => this.#inner.check(holder, inner))
  }

  forceRelease(name: string, ids: readonly string[], reason: string, call: OperatorCall): Promise<number> {
    return this.#operate('forceRelease', name, call, (inner) =>
      this.#inner.forceRelease(name, ids, reason, inner),
    )
  }

  resize(name: string, capacity: CapacityChange, call: OperatorCall): Promise<ResizeResult> {
    return this.#operate('resize', name, call, (inner) => this.#inner.resize(name, capacity, inner))
  }

  forget(name: string, data: string, call: OperatorCall): Promise<ForgetResult> {
    return this.#operate('forget', name, call, (inner) => this.#inner.forget(name, data, inner))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#inner[Symbol.asyncDispose]()
    this.#wire.close()
  }

  #operate<T>(
    kind: CallKind,
    name: string,
    call: OperatorCall,
    make: (call: OperatorCall) => Promise<T>,
  ): Promise<T> {
    const { notAfterMs } = call
    return this.#send(kind, name, call, ({ signal }) => make(callWith(signal, { notAfterMs })))
  }

  #send<T>(kind: CallKind, name: string | null, call: Call, make: (call: Call) => Promise<T>): Promise<T> {
    return this.#wire.send(kind, name, call, make)
  }
}

class FaultySession<F extends Fencing> implements AttachedSession<F> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant | null
  readonly handle: SessionHandle
  declare readonly enqueue?: NonNullable<BackendSession<F>['enqueue']>
  declare readonly setData?: NonNullable<BackendSession<F>['setData']>
  readonly #inner: AttachedSession<F>
  readonly #wire: FaultyWire
  readonly #asked = new Map<string, Attempt<F>>()

  constructor(inner: AttachedSession<F>, wire: FaultyWire) {
    this.#inner = inner
    this.#wire = wire
    this.id = inner.id
    this.ttlMs = inner.ttlMs
    this.since = inner.since
    this.handle = inner.handle
    if (inner.enqueue !== undefined) this.enqueue = (request, attempt) => this.#enqueue(request, attempt)
    const setData = inner.setData?.bind(inner)
    if (setData !== undefined)
      this.setData = (claim, data, call) =>
        wire.send('setData', claim.name, call, (innerCall) => setData(claim, data, innerCall))
  }

  get isFull(): boolean {
    return this.#inner.isFull === true
  }

  #enqueue(request: AcquireRequest, attempt: Attempt<F>): void {
    const answer = this.#wire.send('enqueue', request.name, attempt, (call) =>
      enqueued(this.#inner, request, call),
    )
    this.#asked.set(request.attempt, attempt)
    answering(
      attempt,
      answer.finally(() => this.#asked.delete(request.attempt)),
    )
  }

  async keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<F>> {
    const kept = await this.#wire.send('keepAlive', null, call, (inner) =>
      this.#inner.keepAlive(claims, inner),
    )
    // The answer of the engine may have been lost on the wire.
    if (kept.kind === 'alive')
      for (const grant of kept.granted) this.#asked.get(grant.attempt)?.answer({ kind: 'granted', grant })
    return kept
  }

  tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<F>> {
    return this.#wire.send('tryAcquire', request.name, call, (inner) =>
      this.#inner.tryAcquire(request, inner),
    )
  }

  abandon(claim: Claim, call: Call): Promise<void> {
    return this.#wire.send('abandon', claim.name, call, (inner) => this.#inner.abandon(claim, inner))
  }

  release(claim: GrantedClaim, options: ReleaseTerms, call: Call): Promise<ReleaseResult> {
    const release = (inner: Call) => this.#inner.release(claim, options, inner)
    return this.#wire.send('release', claim.name, call, release)
  }

  close(call: Call): Promise<void> {
    return this.#wire.send('close', null, call, (inner) => this.#inner.close(inner))
  }
}
