/** A fault that is planted into the memory backend, and the cases that must notice it. */
import { Line } from '../../../src/backends/memory/line.ts'
import type { Clock } from '../../../src/base/clock.ts'
import type { AcquireRequest, Backend, BackendSession, Grant } from '../../../src/spi.ts'
import type { Wrap } from '../../../src/testing/conformance/clients.ts'
import { type Replaced, replace } from '../../../src/testing/conformance/wrapping.ts'
import type { World } from '../../../src/testing/describe-backend.ts'
import { memoryWorld } from '../memory-world.ts'

export type AnyBackend = Backend<'fenced'>
export type AnySession = BackendSession<'fenced'>
export type AnyGrant = Grant<'fenced'>

export interface Break {
  /** What is wrong with this backend, in words. */
  readonly what: string
  readonly createWorld: () => Promise<World>
  /** The rules that must turn red. */
  readonly red: readonly string[]
}

/** `plant` is called once a world: whatever it remembers is shared by that world's clients. */
export function broken(what: string, red: string, plant: () => Wrap<'fenced'>): Break {
  return { what, createWorld: () => memoryWorld({ wrap: plant() }), red: red.split(' ') }
}

export function brokenSession(
  what: string,
  red: string,
  over: (inner: AnySession, backend: AnyBackend) => Replaced<AnySession>,
): Break {
  return broken(what, red, () => (backend) => replace(backend, { session: (inner) => over(inner, backend) }))
}

export function brokenBackend(
  what: string,
  red: string,
  over: (inner: AnyBackend) => Replaced<AnyBackend>,
): Break {
  return broken(what, red, () => (backend) => replace(backend, { backend: over }))
}

export function brokenEngineClock(what: string, red: string, engineClock: (clock: Clock) => Clock): Break {
  return { what, createWorld: () => memoryWorld({ engineClock }), red: red.split(' ') }
}

/** A fault in the memory engine's own line, put right again when the world ends. */
export function brokenLine(what: string, red: string, fault: PropertyDescriptorMap): Break {
  return {
    what,
    red: red.split(' '),
    async createWorld() {
      const world = await memoryWorld()
      const sound = Object.getOwnPropertyDescriptors(Line.prototype)
      Object.defineProperties(Line.prototype, fault)
      return {
        ...world,
        async close() {
          await world.close()
          Object.defineProperties(Line.prototype, sound)
        },
      }
    },
  }
}

/** Session methods whose grants are changed on the way. */
export function regrant(
  inner: AnySession,
  change: (grant: AnyGrant) => AnyGrant,
): Required<Pick<AnySession, 'tryAcquire' | 'enqueue'>> {
  return {
    async tryAcquire(request, call) {
      const result = await inner.tryAcquire(request, call)
      return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
    },
    async enqueue(request, call) {
      const result = await lineOf(inner)(request, call)
      return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
    },
  }
}

/** Both ways of acquiring, with a changed request. */
export function reask(
  inner: AnySession,
  change: (request: AcquireRequest) => AcquireRequest,
): Partial<AnySession> {
  return {
    tryAcquire: (request, call) => inner.tryAcquire(change(request), call),
    enqueue: (request, call) => lineOf(inner)(change(request), call),
  }
}

export function lineOf(inner: AnySession): NonNullable<AnySession['enqueue']> {
  const { enqueue } = inner
  if (enqueue === undefined) throw new Error('memory has a line')
  return enqueue
}
