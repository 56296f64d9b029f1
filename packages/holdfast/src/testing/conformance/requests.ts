/** Calls and requests with sensible defaults. */
import { callWith } from '../../base/aborting.ts'
import { newAttempt, systemRandom } from '../../base/ids.ts'
import { type AcquireRequest, type Call, LOCK_CAPACITY } from '../../spi.ts'

export function call(signal?: AbortSignal): Call {
  return callWith(signal)
}

export function abortedCall(): Call {
  return call(AbortSignal.abort(new Error('the caller has gone')))
}

/** An exclusive request with an attempt of its own. */
export function request(name: string, over: Partial<AcquireRequest> = {}): AcquireRequest {
  return {
    name,
    attempt: newAttempt(systemRandom),
    mode: 'exclusive',
    weight: LOCK_CAPACITY,
    capacity: LOCK_CAPACITY,
    lockDelayMs: 0,
    ...over,
  }
}

export function shared(name: string, over: Partial<AcquireRequest> = {}): AcquireRequest {
  return request(name, { mode: 'shared', weight: 1, ...over })
}

export function permits(name: string, weight: number, capacity: number): AcquireRequest {
  return request(name, { mode: 'permits', weight, capacity })
}

/** The half of an attempt that must never be shown. */
export function secretOf(attempt: string): string {
  return attempt.slice(attempt.indexOf('.') + 1)
}
