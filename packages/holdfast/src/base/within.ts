/** Work that must not take for ever. The timer ends with the work. */
import { Cancellation, unlessCancelled } from './cancellation.ts'
import { type Clock, judgeLate } from './clock.ts'

export interface WithinOptions {
  /** Default: an error with the text `no answer within 5000 ms`. */
  readonly reason?: () => unknown
  readonly keepsProcessAlive?: boolean
  /** Ties the limit to other reasons to stop; its result unties them. */
  readonly tie?: (limit: Cancellation) => () => void
}

/**
 * Runs `work`, and cancels `limit` with the reason after `ms`: `work` decides what that means. Answers that arrived while the process
 * was blocked are read before the time is judged.
 */
export async function withLimit<T>(
  clock: Clock,
  ms: number,
  work: (limit: Cancellation) => Promise<T>,
  options: WithinOptions = {},
): Promise<T> {
  const { reason = () => new Error(`no answer within ${ms} ms`), keepsProcessAlive = false, tie } = options
  const limit = new Cancellation()
  const timer = judgeLate(clock, ms, () => limit.cancel(reason()), { keepsProcessAlive })
  const untie = tie?.(limit)
  try {
    return await work(limit)
  } finally {
    timer.cancel()
    untie?.()
  }
}

/** Settles as `work` does, or rejects with the reason after so long; `work` is left to itself then. */
export function settledWithin<T>(
  clock: Clock,
  ms: number,
  work: Promise<T>,
  options?: WithinOptions,
): Promise<T> {
  return withLimit(clock, ms, (limit) => unlessCancelled(work, limit), options)
}
