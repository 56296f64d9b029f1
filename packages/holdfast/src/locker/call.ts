/**
 * One call to an engine, bounded in time. Its caller is answered at the limit, or as soon as `stop` is cancelled, whether
 * or not the engine ever answers (T16, answers that never come). What the engine does later is resolved elsewhere.
 */
import { Cancellation } from '../base/cancellation.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { asNotApplied, BackendUnavailableError, isHoldfastError } from '../base/errors.ts'
import type { Call } from '../spi.ts'

export interface CallLimits {
  /** The operation, for the error: `acquire "sku:42"`. */
  readonly what: string
  readonly timeoutMs: number
  readonly stop?: Cancellation | undefined
  /** A caller waits for the answer, so the process must not end before it is there. */
  readonly keepsProcessAlive?: boolean
  readonly onProgress?: (left: number) => void
}

export interface Engine {
  readonly clock: Clock
  readonly backendName: string
  readonly whyUnanswered?: (() => string | undefined) | undefined
}

export function callEngine<T>(
  engine: Engine,
  limits: CallLimits,
  run: (call: Call) => Promise<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => new EngineCall(engine, limits, resolve, reject).start(run))
}

/** For a call that its caller waits for. */
export function callForCaller<T>(
  engine: Engine & { readonly callTimeoutMs: number },
  what: string,
  stop: Cancellation | undefined,
  run: (call: Call) => Promise<T>,
): Promise<T> {
  return callEngine(engine, { what, timeoutMs: engine.callTimeoutMs, stop, keepsProcessAlive: true }, run)
}

/** For calls that only read: however one fails, nothing was changed. */
export async function changingNothing<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    throw isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? asNotApplied(error) : error
  }
}

/** One object for everything about the call: every release makes one. */
class EngineCall<T> extends Cancellation implements Call {
  readonly onProgress?: (left: number) => void
  readonly #engine: Engine
  readonly #limits: CallLimits
  readonly #resolve: (answer: T) => void
  readonly #reject: (error: unknown) => void
  #timer: Timer | undefined
  #untie: (() => void) | undefined
  #settled = false

  constructor(
    engine: Engine,
    limits: CallLimits,
    resolve: (answer: T) => void,
    reject: (error: unknown) => void,
  ) {
    super()
    this.#engine = engine
    this.#limits = limits
    this.#resolve = resolve
    this.#reject = reject
    if (limits.onProgress !== undefined) this.onProgress = (left) => this.#progressed(left)
  }

  start(run: (call: Call) => Promise<T>): void {
    const { stop } = this.#limits
    this.#armTimer()
    this.#untie = stop?.onCancel(() => this.#giveUp(stop.reason))
    if (this.#settled) {
      this.#timer?.cancel()
      return
    }
    try {
      Promise.resolve(run(this)).then(
        (answer) => this.#answer(answer),
        (error: unknown) => this.#fail(error),
      )
    } catch (error) {
      // A backend that throws instead of rejecting is treated alike.
      this.#fail(error)
    }
  }

  /** Part of the work is done: the limit counts anew. */
  #progressed(left: number): void {
    if (this.#settled) return
    this.#timer?.cancel()
    this.#armTimer()
    this.#limits.onProgress?.(left)
  }

  #answer(answer: T): void {
    if (this.#settle()) this.#resolve(answer)
  }

  #giveUp(reason: unknown): void {
    if (!this.#settle()) return
    // The caller first: what the backend does on cancellation must not make the caller wait.
    this.#reject(reason)
    this.cancel(reason)
  }

  #armTimer(): void {
    const { timeoutMs, keepsProcessAlive = false } = this.#limits
    if (timeoutMs === Number.POSITIVE_INFINITY) return
    const onTimeout = () => this.#giveUp(noAnswer(this.#engine, this.#limits))
    this.#timer = this.#engine.clock.setTimer(timeoutMs, onTimeout, { keepsProcessAlive })
  }

  #fail(error: unknown): void {
    if (this.#settle()) this.#reject(asHoldfastError(this.#engine, this.#limits.what, error))
  }

  #settle(): boolean {
    if (this.#settled) return false
    this.#settled = true
    this.#timer?.cancel()
    this.#untie?.()
    return true
  }
}

export function noAnswer(
  engine: Engine,
  { what, timeoutMs }: Pick<CallLimits, 'what' | 'timeoutMs'>,
): BackendUnavailableError {
  const ms = Math.round(timeoutMs)
  const why = engine.whyUnanswered?.()
  const text = why === undefined ? `no answer within ${ms} ms` : `${why} (given up after ${ms} ms)`
  return new BackendUnavailableError(engine.backendName, `${what}: ${text}`, 'unknown')
}

export function asHoldfastError(engine: Engine, what: string, error: unknown): unknown {
  if (isHoldfastError(error)) return error
  const message = error instanceof Error ? error.message : String(error)
  return new BackendUnavailableError(engine.backendName, `${what}: ${message}`, 'unknown', { cause: error })
}
