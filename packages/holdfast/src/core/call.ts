/**
 * One call to an engine, bounded in time. Whoever waits for it is answered at the limit, or as soon as `stop` is
 * raised, whether or not the engine ever answers (T16); what the engine does later is resolved elsewhere.
 */
import type { Call } from '../spi.ts'
import { Cancellation } from './cancellation.ts'
import type { Clock } from './clock.ts'
import { BackendUnavailableError, isHoldfastError } from './errors.ts'

export interface CallLimits {
  /** What is being done, for the error: `acquire "sku:42"`. */
  readonly what: string
  readonly timeoutMs: number
  readonly stop?: Cancellation
  /** A caller waits for the answer, so the process must not end before it is there. */
  readonly keepsProcessAlive?: boolean
  readonly onQueued?: () => void
}

export interface Engine {
  readonly clock: Clock
  readonly backendName: string
}

export function callEngine<T>(
  engine: Engine,
  limits: CallLimits,
  run: (call: Call) => Promise<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const cancellation = new EngineCall(limits.onQueued)
    let settled = false
    const settle = (): boolean => {
      if (settled) return false
      settled = true
      timer?.cancel()
      untie?.()
      return true
    }
    const giveUp = (reason: unknown) => {
      if (!settle()) return
      cancellation.cancel(reason)
      reject(reason)
    }
    const timer =
      limits.timeoutMs === Number.POSITIVE_INFINITY
        ? undefined
        : engine.clock.setTimer(limits.timeoutMs, () => giveUp(noAnswer(engine, limits)), {
            keepsProcessAlive: limits.keepsProcessAlive ?? false,
          })
    let untie: (() => void) | undefined
    untie = limits.stop?.onCancel(() => giveUp(limits.stop?.reason))
    if (settled) return
    startCall(run, cancellation).then(
      (value) => settle() && resolve(value),
      (error: unknown) => settle() && reject(asHoldfastError(engine, limits, error)),
    )
  })
}

class EngineCall extends Cancellation implements Call {
  readonly onQueued: () => void
  constructor(onQueued: (() => void) | undefined) {
    super()
    this.onQueued = onQueued ?? (() => {})
  }
}

/** A backend that throws instead of rejecting is treated alike. */
async function startCall<T>(run: (call: Call) => Promise<T>, call: Call): Promise<T> {
  return run(call)
}

function noAnswer(engine: Engine, { what, timeoutMs }: CallLimits): BackendUnavailableError {
  return new BackendUnavailableError(
    engine.backendName,
    `${what}: no answer within ${Math.round(timeoutMs)} ms`,
    'unknown',
  )
}

function asHoldfastError(engine: Engine, { what }: CallLimits, error: unknown): unknown {
  if (isHoldfastError(error)) return error
  const message = error instanceof Error ? error.message : String(error)
  return new BackendUnavailableError(engine.backendName, `${what}: ${message}`, 'unknown', { cause: error })
}
