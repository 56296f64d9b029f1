/**
 * Work that several callers share, such as opening a connection. The first caller starts it, and its result is kept.
 *
 *   idle ──join──▶ running ──▶ done
 *   running ──it fails, the time limit is over, or its last caller is cancelled──▶ idle
 *   running | done ──drop──▶ idle
 */
import type { Call } from '../spi.ts'
import { cancelledCall } from './aborting.ts'
import { type Clock, judgeLate } from './clock.ts'

/** The work fails after this time. */
export interface WorkLimit {
  readonly ms: number
  readonly clock: Clock
}

interface Running<T> {
  readonly promise: Promise<T>
  readonly controller: AbortController
  callers: number
}

export class SharedWork<T> {
  readonly #backend: string
  readonly #start: (signal: AbortSignal) => Promise<T>
  readonly #limit: WorkLimit | undefined
  #running: Running<T> | undefined

  /** The signal of `start` aborts when no caller needs the result any more. */
  constructor(backend: string, start: (signal: AbortSignal) => Promise<T>, limit?: WorkLimit) {
    this.#backend = backend
    this.#start = start
    this.#limit = limit
  }

  /** The result, if the work has been started and has not failed. */
  get started(): Promise<T> | undefined {
    return this.#running?.promise
  }

  /** A caller that is cancelled here has asked for nothing else yet: `not-applied`. */
  join(call?: Call): Promise<T> {
    if (call?.cancelled) return Promise.reject(cancelledCall(this.#backend, call.signal, 'not-applied'))
    this.#running ??= this.#run()
    const running = this.#running
    running.callers++
    if (call === undefined) return running.promise
    return new Promise<T>((resolve, reject) => {
      const stopListening = call.onCancel(() => {
        reject(cancelledCall(this.#backend, call.signal, 'not-applied'))
        running.callers--
        if (running.callers === 0) this.#end(running, call.signal.reason)
      })
      running.promise.finally(stopListening).then(resolve, reject)
    })
  }

  /** The next caller starts anew. Returns what was running or done, so that its result can be closed. */
  drop(reason: Error): Promise<T> | undefined {
    const running = this.#running
    if (running !== undefined) this.#end(running, reason)
    return running?.promise
  }

  #run(): Running<T> {
    const limit = this.#limit
    const controller = new AbortController()
    const late = () => controller.abort(new Error(`it was not done within ${limit?.ms} ms`))
    const timer = limit && judgeLate(limit.clock, limit.ms, late)
    // A start that throws rejects as well.
    const promise = (async () => this.#start(controller.signal))().finally(() => timer?.cancel())
    const running: Running<T> = { promise, controller, callers: 0 }
    promise.catch(() => this.#forget(running))
    return running
  }

  #end(running: Running<T>, reason: unknown): void {
    this.#forget(running)
    running.controller.abort(reason)
  }

  #forget(running: Running<T>): void {
    if (this.#running === running) this.#running = undefined
  }
}
