/** Ways to plant a fault around the memory backend. `found`: the rules of the suite that notice, or more checks. */
import type { Clock } from '../../../packages/holdfast/src/base/clock.ts'
import type { Backend } from '../../../packages/holdfast/src/spi.ts'
import type { Wrap } from '../../../packages/holdfast/src/testing/conformance/clients.ts'
import {
  type Replaced,
  type ReplacedSession,
  replace,
} from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import type { World } from '../../../packages/holdfast/src/testing/describe-backend.ts'
import type { AnySession } from '../../../packages/holdfast/test/conformance/changing.ts'
import { memoryWorld } from '../../../packages/holdfast/test/conformance/memory-world.ts'
import type { BackendBug, FoundBy } from '../bug.ts'

export type AnyBackend = Backend<'fenced'>
type Found = string | FoundBy

/** `wrap` is called once a world: whatever it remembers is shared by that world's clients. */
export function broken(what: string, found: Found, wrap: () => Wrap<'fenced'>): BackendBug {
  return { ...brokenWorld(what, found, () => memoryWorld({ wrap: wrap() })), wrap }
}

export function brokenSession(
  what: string,
  found: Found,
  over: (inner: AnySession, backend: AnyBackend) => ReplacedSession<'fenced'>,
): BackendBug {
  return broken(
    what,
    found,
    () => (backend) => replace(backend, { session: (inner) => over(inner, backend) }),
  )
}

export function brokenBackend(
  what: string,
  found: Found,
  over: (inner: AnyBackend) => Replaced<AnyBackend>,
): BackendBug {
  return broken(what, found, () => (backend) => replace(backend, { backend: over }))
}

export function brokenEngineClock(
  what: string,
  found: Found,
  engineClock: (clock: Clock) => Clock,
): BackendBug {
  return brokenWorld(what, found, () => memoryWorld({ engineClock }))
}

export function brokenWorld(what: string, found: Found, createWorld: () => Promise<World>): BackendBug {
  return { what, foundBy: typeof found === 'string' ? { suite: found } : found, createWorld }
}
