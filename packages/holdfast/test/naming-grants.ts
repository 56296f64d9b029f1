/** For tests that name attempts only: a session that adds the grant which it saw last for the attempt. */

import { answering } from '../src/kit/answering.ts'
import type {
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  EnqueueResult,
  Fencing,
  Grant,
  GrantedClaim,
  KeepAliveResult,
} from '../src/spi.ts'
import { enqueued } from '../src/testing/enqueued.ts'

export interface NamingSession<F extends Fencing>
  extends Omit<BackendSession<F>, 'enqueue' | 'setData' | 'release' | 'keepAlive'> {
  readonly inner: BackendSession<F>
  enqueue: NonNullable<BackendSession<F>['enqueue']>
  keepAlive(
    claims: { readonly held: readonly Claim[]; readonly waiting: readonly Claim[] },
    call: Call,
  ): Promise<KeepAliveResult<F>>
  setData(claim: Claim, data: string, call: Call): Promise<'stored' | 'not-held'>
  release(claim: Claim, options: { readonly keepForMs: number }, call: Call): Promise<'released' | 'not-held'>
}

export function namingGrants<F extends Fencing>(inner: BackendSession<F>): NamingSession<F> {
  const grantIds = new Map<string, string>()
  const note = ({ attempt, grantId }: Grant<F>) => grantIds.set(attempt, grantId)
  const granted = (claim: Claim): GrantedClaim => ({
    grantId: grantIds.get(claim.attempt) ?? '0',
    ...claim,
  })
  /** Notes it before the caller goes on, and adds no step of its own. */
  const noting = (asked: Promise<EnqueueResult<F> | AcquireResult<F>>) =>
    void asked.then(
      (result) => void (result.kind === 'granted' && note(result.grant)),
      () => {},
    )
  const { enqueue, setData } = inner
  const lacks = (what: string) => () => Promise.reject(new TypeError(`the session has no ${what}`))
  return {
    inner,
    id: inner.id,
    ttlMs: inner.ttlMs,
    since: inner.since,
    handle: inner.handle,
    keepAlive({ held, waiting }, call) {
      const asked = inner.keepAlive({ held: held.map(granted), waiting }, call)
      asked.then(
        (result) => void (result.kind === 'alive' && result.granted.forEach(note)),
        () => {},
      )
      return asked
    },
    tryAcquire(request, call) {
      const asked = inner.tryAcquire(request, call)
      noting(asked)
      return asked
    },
    enqueue:
      enqueue === undefined
        ? () => {
            throw new TypeError('the session has no queue')
          }
        : (request, attempt) => {
            const asked = enqueued({ enqueue: enqueue.bind(inner) }, request, attempt)
            noting(asked)
            answering(attempt, asked)
          },
    abandon: (claim, call) => inner.abandon(claim, call),
    setData:
      setData === undefined
        ? lacks('data')
        : (claim, data, call) => setData.call(inner, granted(claim), data, call),
    release: (claim, options, call) => inner.release(granted(claim), options, call),
    close: (call) => inner.close(call),
  }
}
