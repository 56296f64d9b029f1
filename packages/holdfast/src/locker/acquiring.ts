/**
 * One acquire from a caller's point of view: how long it may take, what ends it early, what is reported of it, and
 * what is said when it fails. How the engine is asked is in `waiting`.
 */

import { Cancellation } from '../base/cancellation.ts'
import { AcquireTimeoutError, ClosedError } from '../base/errors.ts'
import { type AboutAttempt, emit, hasListeners, outcomeOfFailure } from '../base/events.ts'
import type { Backend, Fencing } from '../spi.ts'
import { backOff } from './back-off.ts'
import { noAnswer } from './call.ts'
import type { LockerContext } from './context.ts'
import { HolderLookup, type TimedOut } from './holders.ts'
import type { LeaseRecord } from './lease.ts'
import type { Sessions } from './sessions.ts'
import { acquireChannel, type TracedAttempt, traced } from './tracing.ts'
import { Waiting, type Wanted } from './waiting.ts'

interface FailedCall {
  readonly startMs: number
  readonly signal: AbortSignal | undefined
  readonly final: boolean
}

export class Acquiring<F extends Fencing> {
  readonly #context: LockerContext
  readonly #closing: Cancellation
  readonly #holders: HolderLookup
  readonly #waiting: Waiting<F>
  readonly #attemptIds = new WeakMap<Wanted, string>()

  constructor(backend: Backend<F>, context: LockerContext, sessions: Sessions<F>, closing: Cancellation) {
    this.#context = context
    this.#closing = closing
    this.#holders = new HolderLookup(backend, context, sessions, closing)
    this.#waiting = new Waiting(sessions, context)
  }

  /** `null`: another client has it. */
  tryOnce(wanted: Wanted, signal: AbortSignal | undefined): Promise<LeaseRecord | null> {
    return this.#traced(wanted, async () => {
      const startMs = this.#context.clock.monotonicMs()
      const record = await this.#tryOnce(wanted, signal, startMs)
      if (record === null && hasListeners('busy'))
        emit('busy', { ...this.#about(wanted), waitedMs: this.#waitedMs(startMs) })
      return record
    })
  }

  /** `askedMs`: the caller's own `waitMs`, where this is what is left of it. */
  obtain(
    wanted: Wanted,
    waitMs: number,
    signal: AbortSignal | undefined,
    askedMs = waitMs,
  ): Promise<LeaseRecord> {
    return this.#traced(wanted, () => this.#obtain(wanted, waitMs, signal, askedMs))
  }

  #traced<R extends LeaseRecord | null>(wanted: Wanted, run: () => Promise<R>): Promise<R> {
    if (!acquireChannel.hasSubscribers) return run()
    const about: TracedAttempt = this.#about(wanted)
    return traced(acquireChannel, about, async () => {
      const record = await run()
      about.outcome = record === null ? 'busy' : 'granted'
      return record
    })
  }

  async #tryOnce(
    wanted: Wanted,
    signal: AbortSignal | undefined,
    startMs: number,
  ): Promise<LeaseRecord | null> {
    const stop = stopWith(this.#closing, signal)
    try {
      const record = await this.#waiting.tryOnce(wanted, stop.cancellation)
      return record === null ? null : this.#handOut(wanted, record, stop.cancellation, startMs)
    } catch (error) {
      this.#noteFailure(wanted, error, { startMs, signal, final: true })
      throw error
    } finally {
      stop.untie()
    }
  }

  async #obtain(
    wanted: Wanted,
    waitMs: number,
    signal: AbortSignal | undefined,
    askedMs: number,
  ): Promise<LeaseRecord> {
    const { clock } = this.#context
    const { name } = wanted.request
    const startMs = clock.monotonicMs()
    const timedOut = () => new AcquireTimeoutError(name, this.#waitedMs(startMs))
    if (waitMs === 0) {
      const record = await this.#tryOnce(wanted, signal, startMs)
      if (record !== null) return record
      throw await this.#timedOut(wanted, { waitMs: askedMs, waitedMs: this.#waitedMs(startMs), signal })
    }
    const stop = stopWith(this.#closing, signal)
    // The reason for a time-out: the name was taken only if the engine has said so, else what is known.
    let whyNot: () => unknown = () =>
      noAnswer(this.#context, { what: `acquire of "${name}"`, timeoutMs: waitMs })
    // This timer also keeps the process alive while a caller waits, however long that is.
    const deadline = clock.setTimer(waitMs, () => stop.cancellation.cancel(whyNot()), {
      keepsProcessAlive: true,
    })
    try {
      const record = await this.#waiting.wait(wanted, stop.cancellation, {
        untilMs: startMs + waitMs,
        onWaiting: () => {
          whyNot = timedOut
          if (hasListeners('waiting')) emit('waiting', { ...this.#about(wanted), waitMs })
        },
        onFailure: (error) => {
          whyNot = () => error
          this.#noteFailure(wanted, error, { startMs, signal, final: false })
        },
      })
      return this.#handOut(wanted, record, stop.cancellation, startMs)
    } catch (error) {
      if (error instanceof AcquireTimeoutError)
        throw await this.#timedOut(wanted, { waitMs: askedMs, waitedMs: error.waitedMs, signal })
      this.#noteFailure(wanted, error, { startMs, signal, final: true })
      throw error
    } finally {
      deadline.cancel()
      stop.untie()
    }
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
    const startMs = this.#context.clock.monotonicMs()
    const leftMs = () => waitMs - (this.#context.clock.monotonicMs() - startMs)
    const stop = stopWith(this.#closing, signal)
    try {
      for (let rounds = 0; ; rounds++) {
        const records = await this.#gather(wanted, waitMs, leftMs, signal)
        if (records.every((record) => record.isLive)) return records
        this.#giveBack(records)
        const first = wanted[0]
        if (leftMs() <= 0 && first !== undefined)
          throw await this.#timedOut(first, { waitMs, waitedMs: waitMs - leftMs(), signal })
        await backOff(this.#context, rounds, stop.cancellation, leftMs())
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
    this.#context.background.run(() => Promise.all(records.map((record) => record.giveBack())))
  }

  /** The caller may have gone in the very moment of the grant: then it is given back, and not handed out. */
  #handOut(wanted: Wanted, record: LeaseRecord, stop: Cancellation, startMs: number): LeaseRecord {
    if (stop.cancelled) {
      this.#giveBack([record])
      throw stop.reason
    }
    if (hasListeners('acquired'))
      emit('acquired', {
        ...record.about,
        ...this.#about(wanted),
        waitedMs: this.#waitedMs(startMs),
      })
    return record
  }

  #timedOut(wanted: Wanted, timedOut: TimedOut): Promise<AcquireTimeoutError> {
    const { waitedMs } = timedOut
    if (hasListeners('timed-out')) emit('timed-out', { ...this.#about(wanted), waitedMs })
    return this.#holders.timeoutError(wanted.request.name, timedOut)
  }

  #noteFailure(wanted: Wanted, error: unknown, { startMs, signal, final }: FailedCall): void {
    if (!hasListeners('failed')) return
    const outcome = outcomeOfFailure(error, signal)
    emit('failed', { ...this.#about(wanted), error, final, outcome, waitedMs: this.#waitedMs(startMs) })
  }

  #waitedMs(startMs: number): number {
    return this.#context.clock.monotonicMs() - startMs
  }

  #about(wanted: Wanted): AboutAttempt {
    const { info, holder, random } = this.#context
    // Made at the first use; it is the same for the whole call.
    let attemptId = this.#attemptIds.get(wanted)
    if (attemptId === undefined) {
      attemptId = random.id()
      this.#attemptIds.set(wanted, attemptId)
    }
    const { name, mode } = wanted.request
    return { backend: info.name, namespace: info.namespace, name, holder, attemptId, mode }
  }
}

/** Cancelled by the caller's signal, or when the locker closes. A caller with a deadline adds it. */
export function stopWith(
  closing: Cancellation,
  signal: AbortSignal | undefined,
): { readonly cancellation: Cancellation; readonly untie: () => void } {
  const cancellation = new Cancellation()
  if (closing.cancelled) throw new ClosedError()
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
