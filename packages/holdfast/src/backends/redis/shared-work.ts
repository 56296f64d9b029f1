/**
 * Work that several callers need and one is enough for, such as opening a connection. It goes on for as long as one of
 * them waits for it; what has failed, or was cancelled by the last of them, is started anew by the next.
 */
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Call } from '../../spi.ts'

interface Running<T> {
  readonly promise: Promise<T>
  readonly controller: AbortController
  callers: number
}

export class SharedWork<T> {
  readonly #start: (signal: AbortSignal) => Promise<T>
  #running: Running<T> | undefined

  constructor(start: (signal: AbortSignal) => Promise<T>) {
    this.#start = start
  }

  /** What it came to, if it has been started and has not failed. */
  get started(): Promise<T> | undefined {
    return this.#running?.promise
  }

  /** The result, also for who comes later. Who is cancelled here has asked for nothing else yet. */
  join(call: Call): Promise<T> {
    if (call.cancelled) return Promise.reject(cancelledCall('redis', call.signal, 'not-applied'))
    this.#running ??= this.#run()
    const running = this.#running
    running.callers++
    return new Promise<T>((resolve, reject) => {
      const stopListening = call.onCancel(() => {
        running.callers--
        reject(cancelledCall('redis', call.signal, 'not-applied'))
        if (running.callers > 0) return
        this.#forget(running)
        running.controller.abort(call.signal.reason)
      })
      running.promise.finally(stopListening).then(resolve, reject)
    })
  }

  #run(): Running<T> {
    const controller = new AbortController()
    const running: Running<T> = { controller, promise: this.#start(controller.signal), callers: 0 }
    running.promise.catch(() => this.#forget(running))
    return running
  }

  #forget(running: Running<T>): void {
    if (this.#running === running) this.#running = undefined
  }
}
