/** Sessions of the memory backend whose requests or grants are changed on the way. */
import type { AcquireRequest, BackendSession, EnqueueResult, Grant, KeepAliveResult } from '../../src/spi.ts'
import type { ReplacedSession } from '../../src/testing/conformance/wrapping.ts'
import { enqueued, type QueuedCall } from '../../src/testing/enqueued.ts'

export type AnySession = BackendSession<'fenced'>
export type AnyGrant = Grant<'fenced'>
type Kept = Extract<KeepAliveResult<'fenced'>, { readonly kind: 'alive' }>
type Acquiring = Pick<ReplacedSession<'fenced'>, 'tryAcquire' | 'enqueue'>

/** Both ways of acquiring, with a changed grant. */
export function regrant(inner: AnySession, change: (grant: AnyGrant) => AnyGrant): Acquiring {
  return {
    async tryAcquire(request, call) {
      const result = await inner.tryAcquire(request, call)
      return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
    },
    ...(inner.enqueue && {
      async enqueue(request, call) {
        const result = await queueOf(inner)(request, call)
        return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
      },
    }),
  }
}

/** Both ways of acquiring, with a changed request. */
export function reask(inner: AnySession, change: (request: AcquireRequest) => AcquireRequest): Acquiring {
  return {
    tryAcquire: (request, call) => inner.tryAcquire(change(request), call),
    ...(inner.enqueue && { enqueue: (request, call) => queueOf(inner)(change(request), call) }),
  }
}

/** A keep-alive whose answer is changed, unless the session is gone. */
export function rekeep(
  inner: AnySession,
  change: (kept: Kept) => Partial<Kept>,
): Pick<AnySession, 'keepAlive'> {
  return {
    async keepAlive(claims, call) {
      const kept = await inner.keepAlive(claims, call)
      return kept.kind === 'gone' ? kept : { ...kept, ...change(kept) }
    },
  }
}

/** `enqueue` of a session, with a promise. */
export function queueOf(
  inner: AnySession,
): (request: AcquireRequest, call: QueuedCall) => Promise<EnqueueResult<'fenced'>> {
  return (request, call) => enqueued(inner, request, call)
}
