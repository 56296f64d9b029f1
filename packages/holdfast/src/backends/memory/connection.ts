/**
 * What stands between a client and the engine: here no network, but the same rules as for one. Calls that were
 * called off are not made, calls that wait can be called off, and after the end nothing works.
 */
import { Cancellation } from '../../core/cancellation.ts'
import type { Clock } from '../../core/clock.ts'
import { BackendUnavailableError, ClosedError } from '../../core/errors.ts'
import type { Call } from '../../spi.ts'
import type { MemoryEngine } from './engine.ts'

export class Connection {
  readonly engine: MemoryEngine
  readonly namespace: string
  readonly clock: Clock
  readonly #closing = new Cancellation()

  constructor(engine: MemoryEngine, namespace: string, clock: Clock) {
    this.engine = engine
    this.namespace = namespace
    this.clock = clock
  }

  /** Every call starts here. */
  begin(call: Call): this {
    if (this.#closing.cancelled) throw this.#closing.reason
    if (call.signal.aborted)
      throw new BackendUnavailableError(
        'memory',
        'the call was called off before it was made',
        'not-applied',
        {
          cause: call.signal.reason,
        },
      )
    return this
  }

  /** For a call that waits: `cut` is called if the connection closes or the call is called off meanwhile. */
  onCut(call: Call, cut: (error: unknown) => void): () => void {
    const onAbort = () => {
      const { reason } = call.signal
      cut(new BackendUnavailableError('memory', 'the wait was called off', 'unknown', { cause: reason }))
    }
    call.signal.addEventListener('abort', onAbort, { once: true })
    const untie = this.#closing.onCancel(() => cut(this.#closing.reason))
    return () => {
      call.signal.removeEventListener('abort', onAbort)
      untie()
    }
  }

  close(): void {
    this.#closing.cancel(new ClosedError('The memory backend'))
  }
}
