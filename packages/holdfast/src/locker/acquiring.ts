/**
 * One acquire from a caller's point of view: the tries, what is reported of it, and what is said when it fails. One try is an
 * `Attempt`.
 *
 *   queue    enqueue ─────────────────────────────────────────▶ granted
 *   poll     try ─busy─▶ wait for the next poll, or for a hint that the name is free ─▶ try …
 *
 * When the session or the position in the queue is lost, the next try is made in a new session. An engine that fails is
 * tried again with backoff until the time is over, if this locker has ever had a session there; else the failure is reported at
 * once.
 */

import { Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { defaults } from '../base/defaults.ts'
import { AcquireTimeoutError, BackendUnavailableError, isHoldfastError } from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import type { Backend, Fencing } from '../spi.ts'
import { Attempt, type Busy, type Wanted } from './attempt.ts'
import { backOff } from './back-off.ts'
import type { LockerContext } from './context.ts'
import { HolderLookup, type TimedOut } from './holders.ts'
import type { KeptSession } from './keeper.ts'
import type { LeaseRecord } from './lease.ts'
import type { Sessions } from './sessions.ts'
import { acquireChannel, type TracedAttempt, traced } from './tracing.ts'

/** Several sessions in a row that die before they can be used mean that the engine is not well. */
const MAX_SESSIONS_PER_TRY = 3

/** `last`: the try that was not granted. All tries of a call have one id for events, made at the first event. */
type TimedOutAfter = (last: Attempt<Fencing>, waitedMs: number) => Promise<AcquireTimeoutError>

export class Acquiring<F extends Fencing> {
  readonly context: LockerContext
  closing: Cancellation
  readonly #sessions: Sessions<F>
  readonly #holders: HolderLookup

  constructor(backend: Backend<F>, context: LockerContext, sessions: Sessions<F>, closing: Cancellation) {
    this.context = context
    this.closing = closing
    this.#sessions = sessions
    this.#holders = new HolderLookup(backend, context, sessions, closing)
  }

  /** `null`: another client has it. */
  tryOnce(wanted: Wanted, signal: AbortSignal | undefined): Promise<LeaseRecord | null> {
    const first = new Attempt<F>(this, wanted, signal, 0)
    const run = async () => {
      const record = await this.#tryOnce(first)
      if (record === null && hasListeners('busy')) emit('busy', { ...first.about, waitedMs: first.waitedMs })
      return record
    }
    return acquireChannel.hasSubscribers ? tracedAttempt(first, run) : run()
  }

  /** `askedMs`: the caller's own `waitMs`, where this is what is left of it. */
  obtain(
    wanted: Wanted,
    waitMs: number,
    signal: AbortSignal | undefined,
    askedMs = waitMs,
  ): Promise<LeaseRecord> {
    const first = new Attempt<F>(this, wanted, signal, waitMs)
    const timedOut: TimedOutAfter = (last, waitedMs) =>
      this.#timedOut(last, { waitMs: askedMs, waitedMs, signal })
    const wait = waitMs > 0 ? this.#wait : this.#tryWithoutWait
    return acquireChannel.hasSubscribers
      ? tracedAttempt(first, () => wait.call(this, first, timedOut))
      : wait.call(this, first, timedOut)
  }

  async #tryWithoutWait(first: Attempt<F>, timedOut: TimedOutAfter): Promise<LeaseRecord> {
    const record = await this.#tryOnce(first)
    if (record !== null) return record
    throw await timedOut(first, first.waitedMs)
  }

  async #tryOnce(first: Attempt<F>): Promise<LeaseRecord | null> {
    let attempt = first
    try {
      for (let tries = 1; ; tries++) {
        const session = this.#sessions.ready(first.wanted) ?? (await this.#sessionFor(attempt))
        const outcome = await attempt.askIn(session, 'trying')
        if (outcome !== null) return 'kind' in outcome ? null : this.#handOut(attempt, outcome)
        if (tries === MAX_SESSIONS_PER_TRY) throw this.#sessionsEnd(first.wanted)
        attempt = attempt.next()
      }
    } catch (error) {
      attempt.noteFailure(error, true)
      throw error
    } finally {
      attempt.end()
    }
  }

  /** Waits until granted. */
  async #wait(first: Attempt<F>, timedOut: TimedOutAfter): Promise<LeaseRecord> {
    let attempt = first
    const how = this.context.info.waiting === 'queue' ? 'asked' : 'trying'
    try {
      for (let failures = 0; ; ) {
        let pause: (() => Promise<void>) | undefined
        try {
          const session = this.#sessions.ready(first.wanted) ?? (await this.#sessionFor(attempt))
          const outcome = await attempt.askIn(session, how)
          if (outcome !== null && 'kind' in outcome) {
            attempt.noteTaken()
            pause = () => this.#pollPause(session, outcome, attempt)
          } else if (outcome !== null) return this.#handOut(attempt, outcome)
        } catch (error) {
          // The engine may have failed just before.
          if (attempt.isStopped) throw attempt.reason
          if (!this.#sessions.hasReached || !isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
          attempt.noteFailure(error, false)
        }
        attempt = attempt.next()
        await (pause?.() ?? backOff(this.context, failures++, attempt))
      }
    } catch (error) {
      if (error instanceof AcquireTimeoutError) throw await timedOut(attempt, error.waitedMs)
      attempt.noteFailure(error, true)
      throw error
    } finally {
      attempt.end()
    }
  }

  #sessionFor(attempt: Attempt<F>): Promise<KeptSession<F>> {
    return unlessCancelled(this.#sessions.take(attempt.wanted), attempt)
  }

  /** Until the next poll, or until the engine tells that the name may be free. */
  async #pollPause(
    { engineSession }: KeptSession<F>,
    { retryAfterMs }: Busy,
    next: Attempt<F>,
  ): Promise<void> {
    const { clock, random } = this.context
    const pollMs = defaults.pollMs + random.fraction() * defaults.pollJitterMs
    const pause = Promise.withResolvers<void>()
    const timer = clock.setTimer(Math.min(pollMs, retryAfterMs ?? pollMs), pause.resolve)
    const takeBack = engineSession.onceFree?.(next.wanted.request.name, pause.resolve)
    const untie = next.onCancel(() => pause.reject(next.reason))
    await pause.promise.finally(() => {
      untie()
      takeBack?.()
      timer.cancel()
    })
  }

  #sessionsEnd({ request, ttlMs }: Wanted): BackendUnavailableError {
    return new BackendUnavailableError(
      this.context.backendName,
      `acquire of "${request.name}": sessions end before they can be used (is the TTL of ${ttlMs} ms too short for this engine?)`,
      'not-applied',
    )
  }

  /**
   * All or nothing, in the given order, with one deadline for all (T54, several names, one deadline). The earlier ones are renewed while the later
   * ones are awaited; should one be lost all the same, nothing is handed out, and everything is tried again, after a
   * pause, in what is left of the time.
   */
  async obtainAll(
    wanted: readonly Wanted[],
    waitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<LeaseRecord[]> {
    const startMs = this.context.clock.monotonicMs()
    const leftMs = () => waitMs - (this.context.clock.monotonicMs() - startMs)
    const stop = stopWith(this.closing, signal)
    try {
      for (let rounds = 0; ; rounds++) {
        const records = await this.#gather(wanted, waitMs, leftMs, signal)
        if (records.every((record) => record.isLive)) return records
        this.#giveBack(records)
        await backOff(this.context, rounds, stop.cancellation, leftMs())
        // The pause may have used up what was left: then no further round begins.
        const [first] = wanted
        if (leftMs() <= 0 && first !== undefined) {
          const attempt = new Attempt<F>(this, first, undefined, 0)
          attempt.end()
          throw await this.#timedOut(attempt, { waitMs, waitedMs: waitMs - leftMs(), signal })
        }
      }
    } finally {
      stop.untie()
    }
  }

  async #gather(
    wanted: readonly Wanted[],
    waitMs: number,
    leftMs: () => number,
    signal: AbortSignal | undefined,
  ): Promise<LeaseRecord[]> {
    const records: LeaseRecord[] = []
    try {
      for (const each of wanted) records.push(await this.obtain(each, Math.max(0, leftMs()), signal, waitMs))
    } catch (error) {
      this.#giveBack(records)
      throw error
    }
    return records
  }

  #giveBack(records: readonly LeaseRecord[]): void {
    // They were never handed out and so not held: there is nothing to hold at least.
    this.context.background.run(() => Promise.all(records.map((record) => record.release(0))))
  }

  /** The caller may have gone in the very moment of the grant: then it is given back, and not handed out. */
  #handOut(attempt: Attempt<F>, record: LeaseRecord): LeaseRecord {
    if (attempt.cancelled) {
      this.#giveBack([record])
      throw attempt.reason
    }
    record.tellAcquired(attempt)
    return record
  }

  #timedOut(attempt: Attempt<Fencing>, timedOut: TimedOut): Promise<AcquireTimeoutError> {
    const { waitedMs } = timedOut
    if (hasListeners('timed-out')) emit('timed-out', { ...attempt.about, waitedMs })
    return this.#holders.timeoutError(attempt.wanted.request.name, timedOut)
  }
}

function tracedAttempt<R extends LeaseRecord | null>(
  first: Attempt<Fencing>,
  run: () => Promise<R>,
): Promise<R> {
  const about: TracedAttempt = first.about
  return traced(acquireChannel, about, async () => {
    const record = await run()
    about.outcome = record === null ? 'busy' : 'granted'
    return record
  })
}

/** Cancelled by the caller's signal, or when the locker closes. A caller with a deadline adds it. */
export function stopWith(
  closing: Cancellation,
  signal: AbortSignal | undefined,
): { readonly cancellation: Cancellation; readonly untie: () => void } {
  const cancellation = new Cancellation()
  if (closing.cancelled) throw closing.reason
  if (signal?.aborted) throw signal.reason
  const untieClosing = closing.onCancel(() => cancellation.cancel(closing.reason))
  if (signal === undefined) return { cancellation, untie: untieClosing }
  const untieSignal = cancellation.follow(signal)
  const untie = () => {
    untieSignal()
    untieClosing()
  }
  return { cancellation, untie }
}
