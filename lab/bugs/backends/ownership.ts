/** Faults of exclusion, ownership and tokens. */
import { publicIdOf } from '../../../packages/holdfast/src/base/ids.ts'
import type { AcquireResult, Call, GrantedClaim, OperatorCall } from '../../../packages/holdfast/src/spi.ts'
import { operatorCall } from '../../../packages/holdfast/src/testing/conformance/operator.ts'
import { replace } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import {
  type AnyGrant,
  queueOf,
  regrant,
  rekeep,
} from '../../../packages/holdfast/test/conformance/changing.ts'
import type { BackendBug } from '../bug.ts'
import { type AnyBackend, broken, brokenBackend, brokenSession } from './broken.ts'
import { forceAll } from './careless.ts'

export const ownershipBugs: readonly BackendBug[] = [
  broken(
    'a session gets again what it already holds',
    'C28 C33 C104 C110 C112',
    () => (backend) =>
      replace(backend, {
        session: (inner) => {
          const held = new Map<string, AnyGrant>()
          return {
            async tryAcquire(request, call): Promise<AcquireResult<'fenced'>> {
              const result = await inner.tryAcquire(request, call)
              if (result.kind === 'granted') held.set(request.name, result.grant)
              const mine = held.get(request.name)
              const reenters = result.kind === 'busy' && mine !== undefined
              return reenters ? { kind: 'granted', grant: { ...mine, attempt: request.attempt } } : result
            },
            release(claim, options, call) {
              held.delete(claim.name)
              return inner.release(claim, options, call)
            },
          }
        },
      }),
  ),
  brokenSession(
    'a caller that finds a name busy takes it',
    'C27 C30 C35 C76 C166 C188 C189 C191 C201',
    (inner, backend) => ({
      async tryAcquire(request, call) {
        const result = await inner.tryAcquire(request, call)
        if (result.kind !== 'busy') return result
        await forceAll(backend, request.name, call)
        return inner.tryAcquire(request, call)
      },
    }),
  ),
  brokenSession('every call is another attempt', 'C26 C31 C32 C73 C74', (inner, { random }) => ({
    tryAcquire: (request, call) =>
      inner.tryAcquire({ ...request, attempt: `${publicIdOf(request.attempt)}.${random.id()}` }, call),
  })),
  brokenSession(
    'a release does not ask whose it is',
    { suite: 'C36 C38 C41 C214 C215', engineModel: true, lockerModel: { at: 'engine', as: /G7 / } },
    (inner, backend) => ({
      async release(claim, options, call) {
        const outcome = await inner.release(claim, options, call)
        if (outcome === 'released') return outcome
        return (await forceAll(backend, claim.name, call)) > 0 ? 'released' : 'not-held'
      },
    }),
  ),
  brokenSession('a holder is known by its grant, whatever the attempt', 'C36 C135', (inner, backend) => {
    const byGrant = async (claim: GrantedClaim, call: Call) => {
      const holders = (await backend.inspect(claim.name, call))?.holders ?? []
      const holder = holders.find(({ token }) => String(token) === claim.grantId)
      const attempt = [...attempts].find((each) => publicIdOf(each) === holder?.id)
      return attempt === undefined ? claim : { ...claim, attempt }
    }
    const attempts = new Set<string>()
    return {
      tryAcquire(request, call) {
        attempts.add(request.attempt)
        return inner.tryAcquire(request, call)
      },
      release: async (claim, options, call) => inner.release(await byGrant(claim, call), options, call),
      setData: async (claim, data, call) =>
        inner.setData?.(await byGrant(claim, call), data, call) ?? Promise.reject(new TypeError('no data')),
    }
  }),
  broken('a release asks for the attempt and not for the session', 'C37 C130', () => {
    const owners = new Map<string, (claim: GrantedClaim) => Promise<unknown>>()
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          tryAcquire(request, call) {
            owners.set(request.attempt, (claim) => inner.release(claim, { keepForMs: 0 }, call))
            return inner.tryAcquire(request, call)
          },
          async release(claim, options, call) {
            const outcome = await inner.release(claim, options, call)
            if (outcome === 'not-held') await owners.get(claim.attempt)?.(claim)
            return outcome
          },
        }),
      })
  }),
  brokenSession('a release always says that it released', 'C20 C39 C40 C42 C43', (inner) => ({
    async release(claim, options, call) {
      await inner.release(claim, options, call)
      return 'released'
    },
  })),
  brokenSession('a release does nothing', 'C29 C75 C78 C115 C179 C192 C207', () => ({
    release: async () => 'released',
  })),
  brokenSession('tokens are constant', 'C45 C55', (inner) =>
    regrant(inner, (grant) => ({ ...grant, token: 7n })),
  ),
  brokenSession('tokens are random ids', 'C45', (inner) =>
    regrant(inner, (grant) => ({ ...grant, token: (grant.token * 0x9e3779b97f4a7c15n) % 2n ** 63n })),
  ),
  brokenSession('tokens are larger than 63 bits', 'C44', (inner) =>
    regrant(inner, (grant) => ({ ...grant, token: grant.token + 2n ** 63n })),
  ),
  broken('every name counts its own tokens', 'C46 C52 C200', () => {
    const counts = new Map<string, bigint>()
    return (backend) =>
      replace(backend, {
        session: (inner) =>
          regrant(inner, (grant) => {
            const token = (counts.get(grant.name) ?? 0n) + 1n
            counts.set(grant.name, token)
            return { ...grant, token }
          }),
      })
  }),
  broken('every client counts its own tokens', 'C47 C49 C56', () => (backend) => {
    let count = 0n
    return replace(backend, { session: (inner) => regrant(inner, (grant) => ({ ...grant, token: ++count })) })
  }),
  broken('tokens fall back when a name is forgotten', 'C48', () => {
    let offset = 1_000n
    return (backend) =>
      replace(backend, {
        session: (inner) => regrant(inner, (grant) => ({ ...grant, token: grant.token + offset })),
        backend: (inner) => ({
          async forget(name, data, call) {
            offset -= 100n
            return inner.forget(name, data, call)
          },
        }),
      })
  }),
  broken('a position in the queue reserves its token', 'C54', () => {
    let count = 0n
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          ...regrant(inner, (grant) => ({ ...grant, token: ++count })),
          async enqueue(request, call) {
            const token = ++count
            const result = await queueOf(inner)(request, call)
            return result.kind === 'granted' ? { ...result, grant: { ...result.grant, token } } : result
          },
        }),
      })
  }),
  broken('the token is drawn before the grant', 'C53', () => {
    let count = 0n
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          async tryAcquire(request, call) {
            const token = ++count
            for (let turns = Number(token % 3n); turns >= 0; turns--)
              await new Promise((done) => setImmediate(done))
            const result = await inner.tryAcquire(request, call)
            return result.kind === 'granted' ? { ...result, grant: { ...result.grant, token } } : result
          },
        }),
      })
  }),
  brokenBackend('the epoch is always 0', 'C5 C204', (inner) => ({ info: { ...inner.info, epoch: 0 } })),
  brokenBackend('every client has an issuer of its own', 'C4', (inner) => ({
    info: { ...inner.info, issuer: inner.random.id() },
  })),
  brokenBackend('a check looks at the name only', 'C153 C154', (inner) => ({
    check: async ({ name }, call) => ((await inner.inspect(name, call))?.holders.length ?? 0) > 0,
  })),
  broken('a check remembers past holders', 'C154 C196', () => {
    const known = new Set<string>()
    return (backend) =>
      replace(backend, {
        session: (inner) =>
          regrant(inner, (grant) => {
            known.add(`${grant.name} ${publicIdOf(grant.attempt)} ${grant.token}`)
            return grant
          }),
        backend: () => ({ check: async ({ name, id, token }) => known.has(`${name} ${id} ${token}`) }),
      })
  }),
  brokenBackend(
    'a force release ends all holders',
    { suite: 'C140 C143 C216', engineModel: true },
    (inner) => ({
      forceRelease: (name, _ids, _reason, call) => forceAll(inner, name, call),
    }),
  ),
  brokenBackend('a force release ends no holder', 'C141 C142 C145 C148', () => ({
    forceRelease: async () => 0,
  })),
  brokenBackend('operators’ calls never expire', 'C217 C218 C219', (inner) => {
    const lasting = (call: OperatorCall) => operatorCall(call)
    return {
      forceRelease: (name, ids, reason, call) => inner.forceRelease(name, ids, reason, lasting(call)),
      resize: (name, capacity, call) => inner.resize(name, capacity, lasting(call)),
      forget: (name, data, call) => inner.forget(name, data, lasting(call)),
    }
  }),
  brokenBackend('a resize does not ask what the operator saw', 'C218', (inner) => ({
    async resize(name, { to }, call) {
      const from = (await inner.inspect(name, call))?.capacity ?? to
      return inner.resize(name, { from, to }, call)
    },
  })),
  brokenBackend('a forget does not ask what the operator saw', 'C219', (inner) => ({
    async forget(name, data, call) {
      return inner.forget(name, (await inner.inspect(name, call))?.data ?? data, call)
    },
  })),
  brokenSession(
    'a keep-alive confirms the attempt, whatever its grant',
    'C220 C221 C225',
    (inner, backend) => ({
      async keepAlive({ held, waiting }, call) {
        const current = held.map((claim) => withCurrentGrant(claim, backend, call))
        return inner.keepAlive({ held: await Promise.all(current), waiting }, call)
      },
    }),
  ),
  brokenSession('a release gives up the attempt, whatever its grant', 'C220 C221 C225', (inner, backend) => ({
    async release(claim, options, call) {
      return inner.release(await withCurrentGrant(claim, backend, call), options, call)
    },
  })),
  brokenSession('a repeated acquire names another grant', 'C31 C226', (inner) => {
    const asked = new Set<string>()
    return regrant(inner, (grant) => {
      if (asked.has(grant.attempt)) return { ...grant, grantId: '0' }
      asked.add(grant.attempt)
      return grant
    })
  }),
  brokenSession('a position in the queue counts as what is held', 'C222', (inner, backend) => ({
    async keepAlive({ held, waiting }, call) {
      const isWaiting = await Promise.all(
        held.map(async ({ name, attempt }) =>
          (await backend.inspect(name, call))?.waiters.some(({ id }) => id === publicIdOf(attempt)),
        ),
      )
      return inner.keepAlive({ held: held.filter((_, at) => !isWaiting[at]), waiting }, call)
    },
  })),
  brokenSession(
    'a keep-alive reports no loss',
    { suite: 'C145 C146 C151 C198', lockerModel: { at: 'client', as: /G3 |G10 / } },
    (inner) => rekeep(inner, () => ({ lost: [] })),
  ),
  brokenSession(
    'a keep-alive gives every loss the same reason',
    { suite: 'C145', engineModel: true },
    (inner) =>
      rekeep(inner, ({ lost }) => ({
        lost: lost.map(({ attempt }) => ({ attempt, reason: 'deleted' as const })),
      })),
  ),
  broken(
    'a keep-alive removes what it does not list',
    'C152 C210',
    () => (backend) =>
      replace(backend, {
        session: (inner) => {
          const held = new Map<string, GrantedClaim>()
          return {
            ...regrant(inner, (grant) => {
              held.set(grant.attempt, grant)
              return grant
            }),
            async keepAlive(claims, call) {
              const listed = new Set([...claims.held, ...claims.waiting].map((claim) => claim.attempt))
              for (const claim of held.values())
                if (!listed.has(claim.attempt)) await inner.release(claim, { keepForMs: 0 }, call)
              return inner.keepAlive(claims, call)
            },
          }
        },
      }),
  ),
]

/** The same attempt, with the grant that the engine has for it now. */
async function withCurrentGrant(claim: GrantedClaim, backend: AnyBackend, call: Call): Promise<GrantedClaim> {
  const holders = (await backend.inspect(claim.name, call))?.holders ?? []
  const holder = holders.find(({ id }) => id === publicIdOf(claim.attempt))
  return holder === undefined ? claim : { ...claim, grantId: String(holder.token) }
}
