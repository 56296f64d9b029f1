/** An operator in a case. It does what the locker does for operators: it looks, and then acts on what it saw. */
import { callWith } from '../../base/aborting.ts'
import { Operating } from '../../locker/operating.ts'
import type { Backend, Call, HolderState, OperatorCall } from '../../spi.ts'
import { call } from './requests.ts'

/** Long enough for any case, on the engine's clock. */
const CALL_TIMEOUT_MS = 3_600_000

export class Operator {
  readonly #operating: Operating

  constructor(backend: Backend) {
    this.#operating = new Operating(
      backend,
      { backendName: backend.info.name, callTimeoutMs: CALL_TIMEOUT_MS },
      (_what, _options, run) => run(call()),
    )
  }

  force(name: string, isMeant: (holder: HolderState) => boolean = () => true): Promise<number> {
    return this.#operating.forceRelease(name, isMeant, 'an operator said so', {})
  }

  resize(name: string, capacity: number): Promise<'resized' | 'in-use' | 'not-found'> {
    return this.#operating.resize(name, capacity, {})
  }

  forget(name: string): Promise<'forgotten' | 'in-use' | 'not-found'> {
    return this.#operating.forget(name, {})
  }
}

/** An operator's call that does not expire. */
export function operatorCall(
  { signal }: Call = call(),
  notAfterMs: number = Number.MAX_SAFE_INTEGER,
): OperatorCall {
  return callWith(signal, { notAfterMs })
}
