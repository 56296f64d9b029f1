/**
 * What stands between a client and the engine: here no network, but the same rules as for one. Calls that were
 * cancelled are not made, calls that wait can be cancelled, and after the end nothing works.
 */

import { Cancellation } from '../../base/cancellation.ts'
import type { Clock } from '../../base/clock.ts'
import { ClosedError } from '../../base/errors.ts'
import { cancelledCall, throwIfCancelled } from '../../kit/backend-kit.ts'
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
    throwIfCancelled('memory', call)
    return this
  }

  /** For a call that waits: `cut` is called if the connection closes or the call is cancelled meanwhile. */
  onCut(call: Call, cut: (error: unknown) => void): () => void {
    const onAbort = () => cut(cancelledCall('memory', call.signal, 'unknown'))
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
