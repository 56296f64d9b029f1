import type { AcquireRequest, Attempt, BackendSession, Call, EnqueueResult, Fencing } from '../spi.ts'

/** A call of `enqueued`. `queued` is told that the attempt has to wait. */
export interface QueuedCall extends Call {
  readonly queued?: () => void
}

/** `enqueue` with its answer as a promise: for tests, and for backends that change the answers of another one. */
export function enqueued<F extends Fencing>(
  session: Pick<BackendSession<F>, 'enqueue'>,
  request: AcquireRequest,
  call: QueuedCall,
): Promise<EnqueueResult<F>> {
  return new Promise((resolve, reject) => {
    if (session.enqueue === undefined) throw new TypeError('the session has no queue')
    session.enqueue(request, new PromisedAttempt(call, resolve, reject))
  })
}

class PromisedAttempt<F extends Fencing> implements Attempt<F> {
  readonly #call: QueuedCall
  readonly answer: (result: EnqueueResult<F>) => void
  readonly fail: (error: unknown) => void

  constructor(call: QueuedCall, answer: (result: EnqueueResult<F>) => void, fail: (error: unknown) => void) {
    this.#call = call
    this.answer = answer
    this.fail = fail
  }

  get cancelled(): boolean {
    return this.#call.cancelled
  }

  get signal(): AbortSignal {
    return this.#call.signal
  }

  onCancel(callback: () => void): () => void {
    return this.#call.onCancel(callback)
  }

  queued(): void {
    this.#call.queued?.()
  }
}
