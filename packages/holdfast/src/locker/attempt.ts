/**
 * One attempt to hold a name, from its request to the end of its lease: the call that the engine gets, the one whom it answers, the
 * waiter that keep-alives list, and the place of the lease in its session. `SessionAttempts` has it under its id.
 *
 *   new ──ask──▶ asked ──queued──▶ waiting ──granted──▶ held ──release──▶ releasing ──▶ over
 *    │            ├──────granted───────────────────────▶ held ──lost, its body runs──▶ lingering ──▶ over
 *    │            └──refused, failed, given up──▶ over          (also from waiting)
 *    └──given up──▶ over
 *
 * The first of these settles it, and later ones do nothing: an answer, a failure, the deadline, the caller's signal, the closing of
 * the locker, the loss of its position, the end of its session. Where the engine may still have the claim, or may get it by a
 * request that lands late, a `Leftover` takes its place in the session until it is abandoned (G6).
 *
 * A try that must be repeated (session lost, name busy, engine away) is another attempt under another id (`next`): an answer that
 * comes late to the first cannot be taken for one to the second.
 */
import { onAborted } from '../base/aborting.ts'
import { Cancellation } from '../base/cancellation.ts'
import type { Timer } from '../base/clock.ts'
import { AcquireTimeoutError, outcomeOf, QueueFullError } from '../base/errors.ts'
import { type AboutAttempt, emit, hasListeners, outcomeOfFailure } from '../base/events.ts'
import { newAttempt } from '../base/ids.ts'
import type * as spi from '../spi.ts'
import type { AcquireRequest, AcquireResult, EnqueueResult, Fencing } from '../spi.ts'
import { asHoldfastError, noAnswer } from './call.ts'
import type { LockerContext } from './context.ts'
import type { KeptSession } from './keeper.ts'
import type { LeaseRecord } from './lease.ts'

/** A caller's wish: the request as the engine is told, without the id of an attempt, and the terms of the lease. */
export interface Wanted {
  readonly ttlMs: number
  readonly request: Omit<AcquireRequest, 'attempt'>
  readonly maxHoldMs: number
  readonly holdAtLeastMs: number
  readonly warnHoldMs: number
  readonly onJeopardy: ((remainingMs: number) => void) | undefined
  /** The call site in the user's program, if it was noted (`dropped.ts`). */
  readonly site?: string | undefined
}

/** Shared by all attempts of a locker. */
export interface AttemptHost {
  readonly context: LockerContext
  readonly closing: Cancellation
}

export type Busy = Extract<AcquireResult, { kind: 'busy' }>

/** The lease; or that the name is busy; or null: its session or its position was lost, or the grant came too late to be of use. */
export type Outcome = LeaseRecord | Busy | null

/** `trying`: asked for by `tryAcquire`. The keep-alive does not list it, for it has no position. */
type State = 'new' | 'trying' | 'asked' | 'waiting' | 'held' | 'releasing' | 'lingering' | 'over'

/** The reason of a time-out: the engine has said that the name is taken. Or the last failure. */
const TAKEN = Symbol('taken')

export class Attempt<F extends Fencing = Fencing> extends Cancellation implements spi.Attempt<F> {
  readonly wanted: Wanted
  readonly startMs: number
  state: State = 'new'
  lease: LeaseRecord | undefined
  /** Ended from outside: the caller has gone, or its time is over. */
  isStopped = false
  readonly #host: AttemptHost
  readonly #waitMs: number
  readonly #untilMs: number
  #signal: AbortSignal | undefined
  #claim: spi.Claim | undefined
  #session: KeptSession<F> | undefined
  #resolve: (outcome: Outcome | Promise<Outcome>) => void = doNothing
  #reject: (error: unknown) => void = doNothing
  #timer: Timer | undefined
  #untieClosing: () => void
  #untieSignal: (() => void) | undefined
  /** Why there is no grant yet: `TAKEN`, the last failure, or undefined while nothing is known. */
  #whyNot: unknown
  #isToldAsTaken = false
  #eventId: string | undefined

  /**
   * Throws if the caller has gone. `waitMs` 0: the name is asked for once, and only the limit of a call counts. `before`: the try
   * that this one repeats, in what is left of the time.
   */
  constructor(
    host: AttemptHost,
    wanted: Wanted,
    signal: AbortSignal | undefined,
    waitMs: number,
    before?: Attempt<F>,
  ) {
    super()
    const { context, closing } = host
    if (closing.cancelled) throw closing.reason
    if (signal?.aborted) throw signal.reason
    this.#host = host
    this.wanted = wanted
    this.#signal = signal
    this.#waitMs = waitMs
    this.startMs = before?.startMs ?? context.clock.monotonicMs()
    this.#untilMs = this.startMs + waitMs
    if (before !== undefined) {
      this.#whyNot = before.#whyNot
      this.#isToldAsTaken = before.#isToldAsTaken
      this.#eventId = before.#eventId
    }
    this.#untieClosing = closing.onCancel(() => this.#stop(closing.reason))
    if (signal !== undefined) this.#untieSignal = onAborted(signal, ({ reason }) => this.#stop(reason))
    // Timers of the same length share one of the system's.
    if (waitMs > 0) this.#setLimit(before === undefined ? waitMs : this.#leftMs)
  }

  /** The same once more. */
  next(): Attempt<F> {
    const after = new Attempt<F>(this.#host, this.wanted, this.#signal, this.#waitMs, this)
    this.end()
    return after
  }

  get claim(): spi.Claim {
    return this.#claim as spi.Claim
  }

  // --- asking ----------------------------------------------------------------------------------------------

  /** Asks the engine to queue it (`asked`), which is answered with the grant, however long that takes; or asks once (`trying`). */
  askIn(session: KeptSession<F>, state: 'asked' | 'trying'): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      // It may have been stopped in the very moment in which the session was there, and the session may have ended.
      if (this.cancelled) throw this.reason
      if (session.ended.cancelled) return resolve(null)
      const { clock, random } = this.#host.context
      const attempt = newAttempt(random)
      const leftMs = Math.max(0, this.#untilMs - clock.monotonicMs())
      const isBounded = state === 'asked' && leftMs < Number.POSITIVE_INFINITY
      const { request } = this.wanted
      const asked = isBounded ? { ...request, attempt, waitMs: leftMs } : { ...request, attempt }
      this.#claim = asked
      this.#resolve = resolve
      this.#reject = reject
      this.#session = session
      this.state = state
      // Before the request leaves: a keep-alive may bring word of it before its own answer is there.
      session.attempts.set(attempt, this)
      try {
        // `Sessions` has checked that the method is there.
        if (state === 'asked') session.engineSession.enqueue?.(asked, this)
        else this.#try(session, asked, leftMs)
      } catch (error) {
        // A backend that throws instead of answering is treated alike.
        this.fail(error)
      }
    })
  }

  #try({ engineSession }: KeptSession<F>, asked: AcquireRequest, leftMs: number): void {
    const { context } = this.#host
    const { callTimeoutMs: timeoutMs } = context
    if (this.#waitMs === 0 || timeoutMs < leftMs)
      this.#setLimit(timeoutMs, () => this.#giveUp(noAnswer(context, { what: this.#what, timeoutMs })))
    engineSession.tryAcquire(asked, this).then(
      (result) => this.answer(result),
      (error: unknown) => this.fail(error),
    )
  }

  /** No more limits and signals: it is over, or its lease is handed out. */
  end(): void {
    this.#timer?.cancel()
    this.#untieClosing()
    this.#untieSignal?.()
    // The attempt stays for as long as its lease, and should not keep more than it needs.
    if (this.lease !== undefined) this.#claim = this.lease.claim
    this.#untieClosing = this.#resolve = this.#reject = doNothing
    this.#timer = this.#untieSignal = this.#signal = undefined
  }

  // --- what the engine says --------------------------------------------------------------------------------

  queued(): void {
    if (this.state !== 'asked') return
    this.state = 'waiting'
    this.noteTaken()
  }

  answer(result: EnqueueResult<F> | AcquireResult<F>): void {
    const session = this.#settle()
    if (session === undefined) return
    try {
      this.#conclude(session, result)
    } catch (error) {
      // An answer that cannot be used: what the engine may have granted with it is abandoned.
      session.resolve(this.claim)
      this.#reject(error)
    }
  }

  #conclude(session: KeptSession<F>, result: EnqueueResult<F> | AcquireResult<F>): void {
    if (result.kind === 'granted') {
      const outcome = session.adopt(this, result.grant)
      // It is being confirmed, in what is left of the time.
      if (outcome instanceof Promise && this.#waitMs > 0) this.#setLimit(this.#leftMs)
      this.#resolve(outcome)
      return
    }
    session.forget(this)
    if (result.kind === 'session-gone') session.end('session-gone')
    if (result.kind === 'queue-full') {
      const { name, maxWaiters = 0 } = this.wanted.request
      this.#reject(new QueueFullError(name, maxWaiters))
    } else this.#resolve(result.kind === 'busy' ? result : null)
  }

  fail(error: unknown): void {
    const session = this.#settle()
    if (session === undefined) return
    if (outcomeOf(error) === 'unknown') session.resolve(this.claim)
    else session.forget(this)
    this.#reject(asHoldfastError(this.#host.context, this.#what, error))
  }

  /** Its position or its session is lost: it is to start again. */
  lose(): void {
    const session = this.#settle()
    if (session === undefined) return
    this.#resolve(null)
    this.#leave(session, undefined)
  }

  // --- given up --------------------------------------------------------------------------------------------

  #stop(reason: unknown): void {
    this.isStopped = true
    this.#giveUp(reason)
  }

  #giveUp(reason: unknown): void {
    const session = this.#settle()
    // The caller first: what the backend does on cancellation must not make it wait.
    this.#reject(reason)
    if (session === undefined) this.cancel(reason)
    else this.#leave(session, reason)
  }

  /** The engine may have it, or get it. */
  #leave(session: KeptSession<F>, reason: unknown): void {
    this.cancel(reason)
    session.resolve(this.claim)
  }

  /** Its session, if it was asked for and is not settled. From then on it is, and the limit does not count any more. */
  #settle(): KeptSession<F> | undefined {
    const { state } = this
    if (state !== 'trying' && state !== 'asked' && state !== 'waiting') return undefined
    this.state = 'over'
    this.#timer?.cancel()
    return this.#session
  }

  /** By default the deadline of the wait. It also keeps the process alive: a caller waits, however long that is. */
  #setLimit(ms: number, onOver = () => this.#stop(this.#timeoutError())): void {
    this.#timer?.cancel()
    this.#timer = this.#host.context.clock.setTimer(ms, onOver, { keepsProcessAlive: true })
  }

  // --- how long, and why not -------------------------------------------------------------------------------

  get waitedMs(): number {
    return this.#host.context.clock.monotonicMs() - this.startMs
  }

  get #leftMs(): number {
    return this.#untilMs - this.#host.context.clock.monotonicMs()
  }

  get #what(): string {
    return `acquire of "${this.wanted.request.name}"`
  }

  /** The name was taken only if the engine has said so. */
  #timeoutError(): unknown {
    const { context } = this.#host
    const timeoutMs = this.#waitMs
    if (this.#whyNot === undefined) return noAnswer(context, { what: this.#what, timeoutMs })
    return this.#whyNot === TAKEN
      ? new AcquireTimeoutError(this.wanted.request.name, this.waitedMs)
      : this.#whyNot
  }

  /** The engine has said that the name is not free. Told once, however often it says so, also after a failure. */
  noteTaken(): void {
    this.#whyNot = TAKEN
    if (this.#isToldAsTaken) return
    this.#isToldAsTaken = true
    if (hasListeners('waiting')) emit('waiting', { ...this.about, waitMs: this.#waitMs })
  }

  /** `final`: no further try follows. */
  noteFailure(error: unknown, final: boolean): void {
    if (!final) this.#whyNot = error
    if (!hasListeners('failed')) return
    const outcome = outcomeOfFailure(error, this.#signal)
    emit('failed', { ...this.about, error, final, outcome, waitedMs: this.waitedMs })
  }

  /** For events. The id is made at the first use, and is that of all tries of a call. */
  get about(): AboutAttempt {
    const { info, holder, random } = this.#host.context
    this.#eventId ??= random.id()
    const { name: backend, namespace } = info
    return { backend, namespace, ...aboutRequest(this.wanted), holder, attemptId: this.#eventId }
  }
}

/** The caller's request, as events show it. */
export function aboutRequest({ request }: Wanted): Pick<AboutAttempt, 'name' | 'mode' | 'owner' | 'note'> {
  const { name, mode, owner, note } = request
  return { name, mode, ...(owner !== undefined && { owner }), ...(note !== undefined && { note }) }
}

function doNothing(): void {}
