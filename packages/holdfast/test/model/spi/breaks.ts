/** Breaks of an engine, each of which the comparison with the model must notice. */
import { instantOf } from '../../../src/base/clock.ts'
import type { Backend, BackendSession, Grant } from '../../../src/spi.ts'
import { replace } from '../../../src/testing/conformance/wrapping.ts'
import { forceAll, releaseByAttempt } from '../../careless.ts'

interface Break {
  readonly what: string
  readonly plant: (client: Backend<'fenced'>) => Backend<'fenced'>
}

type Session = BackendSession<'fenced'>

const session =
  (over: (inner: Session, backend: Backend<'fenced'>) => Partial<Session>) => (backend: Backend<'fenced'>) =>
    replace(backend, { session: (inner) => over(inner, backend) })

const backend =
  (over: (inner: Backend<'fenced'>) => Partial<Backend<'fenced'>>) => (client: Backend<'fenced'>) =>
    replace(client, { backend: over })

export const engineBreaks: readonly Break[] = [
  {
    what: 'T31 a keep-alive revives a session that is gone',
    plant: session((inner, client) => ({
      async keepAlive(claims, call) {
        const kept = await inner.keepAlive(claims, call)
        if (kept.kind === 'alive') return kept
        const { id, ttlMs, handle } = inner
        await client.openSession({ id, ttlMs, holder: String(handle.holder) }, call)
        return inner.keepAlive(claims, call)
      },
    })),
  },
  {
    what: 'T46 a release does not ask whose it is',
    plant: session((inner, client) => ({
      async release(claim, options, call) {
        const outcome = await inner.release(claim, options, call)
        if (outcome === 'not-held') await forceAll(client, claim.name, call)
        return outcome
      },
    })),
  },
  {
    what: 'T37 a token is issued twice',
    plant: session((inner) => regrant(inner, (grant) => ({ ...grant, token: (grant.token + 1n) / 2n }))),
  },
  {
    what: 'T65 a turn counts from its receipt',
    plant: session((inner, { clock }) => regrant(inner, (grant) => ({ ...grant, since: instantOf(clock) }))),
  },
  {
    what: 'T73 an abandoned attempt can land again',
    plant: session((inner, client) => ({
      async abandon(claim, call) {
        const found = await client.inspect(claim.name, call)
        const isHeld = found?.holders.some(({ id }) => claim.attempt.startsWith(id)) ?? false
        if (isHeld) await releaseByAttempt(inner, client, claim, call)
        else await inner.abandon(claim, call)
      },
    })),
  },
  {
    what: 'a lock-delay is forgotten',
    plant: session((inner) => ({
      tryAcquire: (request, call) => inner.tryAcquire({ ...request, lockDelayMs: 0 }, call),
    })),
  },
  {
    what: 'a hold-at-least is forgotten',
    plant: session((inner) => ({
      release: (claim, _options, call) => inner.release(claim, { keepForMs: 0 }, call),
    })),
  },
  {
    what: 'a force release takes everybody',
    plant: backend((inner) => ({
      forceRelease: (name, _ids, _reason, call) => forceAll(inner, name, call),
    })),
  },
  {
    what: 'attaching to a session prolongs it',
    plant: backend((inner) => ({
      async attachSession(handle, call) {
        const attached = await inner.attachSession(handle, call)
        await attached?.keepAlive({ held: [], waiting: [] }, call)
        return attached
      },
    })),
  },
  {
    what: 'every loss has the same reason',
    plant: session((inner) => ({
      async keepAlive(claims, call) {
        const kept = await inner.keepAlive(claims, call)
        if (kept.kind === 'gone') return kept
        return { ...kept, lost: kept.lost.map(({ attempt }) => ({ attempt, reason: 'deleted' as const })) }
      },
    })),
  },
  {
    what: 'a name that is waited for can be forgotten',
    plant: backend((inner) => ({
      async forget(name, data, call) {
        const outcome = await inner.forget(name, data, call)
        return outcome === 'in-use' ? 'forgotten' : outcome
      },
    })),
  },
]

function regrant(inner: Session, change: (grant: Grant<'fenced'>) => Grant<'fenced'>): Partial<Session> {
  return {
    async enqueue(request, call) {
      if (inner.enqueue === undefined) throw new TypeError('memory has a line')
      const result = await inner.enqueue(request, call)
      return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
    },
  }
}
