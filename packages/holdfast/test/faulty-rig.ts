/** Lockers whose backend fails when told to, with a view of what the engine itself is asked behind the faults. */
import type { LockerOptions } from '../src/locker/locker.ts'
import type { Backend, BackendSession, Claim } from '../src/spi.ts'
import { faultyBackend } from '../src/testing/faulty-backend.ts'
import { createRig } from './rig.ts'

type Listed = { readonly held: readonly Claim[]; readonly waiting: readonly Claim[] }

export function createFaultyRig() {
  const rig = createRig()
  return {
    ...rig,
    faulty(options: LockerOptions = {}) {
      /** The engine's own sessions: what is done to them, the locker does not know. */
      const opened: BackendSession<'fenced'>[] = []
      /** Claims that every keep-alive that reached the engine has listed. */
      const listed: Listed[] = []
      const observed = (backend: Backend<'fenced'>): Backend<'fenced'> => {
        const openSession = backend.openSession.bind(backend)
        backend.openSession = async (request, call) => {
          const session = await openSession(request, call)
          opened.push(session)
          const keepAlive = session.keepAlive.bind(session)
          session.keepAlive = (claims, ...rest) => {
            listed.push(claims)
            return keepAlive(claims, ...rest)
          }
          return session
        }
        return backend
      }
      const wires: ReturnType<typeof faultyBackend<'fenced'>>[] = []
      const client = rig.locker({
        ...options,
        wrap(backend) {
          const wire = faultyBackend(observed(backend))
          wires.push(wire)
          return wire
        },
      })
      const [faults] = wires
      if (faults === undefined) throw new Error('the rig did not wrap the backend')
      return { client, faults, opened, listed }
    },
  }
}
