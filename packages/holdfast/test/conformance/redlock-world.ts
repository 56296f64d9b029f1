/**
 * Five servers and clients that ask all of them. Clients live by a fake clock, and the servers by one that is set after
 * it before every call, so that time passes only when a case says so, however busy the machine is. What the machine takes for
 * a single call passes on the servers as well: it must be little against the drift, so the TTL is long.
 */
import { type Clock, sleep, systemClock } from '../../src/base/clock.ts'
import type { Backend, BackendSession } from '../../src/spi.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import type { ClientLibrary } from '../redis/clients.ts'
import type { Nodes } from '../redlock/nodes.ts'

interface WorldTime {
  readonly clock: Clock
  readonly ttlMs: number
  readonly resolutionMs: number
  readonly nodeTimeoutMs: number
  /** Called before every call of a client. */
  beforeCall?(): void
  passTime(ms: number): Promise<void>
}

/** Actors of the suite that outlive a case have twenty times the short TTL. */
export const redlockMaxTtlMs = 20 * 60_000

let worlds = 0

export function redlockWorld(nodes: Nodes, library: ClientLibrary): World<'unfenced'> {
  const clock = createFakeClock()
  const ttlMs = 60_000
  // Shorter than the limits of calls, which must not be over before what is in flight has been answered.
  const piecesMs = ttlMs / 15
  const aheadMs = () => systemClock.monotonicMs() - clock.monotonicMs()
  let expectedAheadMs = aheadMs()
  /** Time that has passed on the servers, and not here, is taken back. */
  const setServers = () => {
    const surplusMs = aheadMs() - expectedAheadMs
    nodes.clock.step(-surplusMs)
    expectedAheadMs += surplusMs
  }
  const answered = async () => {
    // An answer may lead to another question, and the first use of a script to a second try with the whole of it.
    for (let round = 0; round < 2; round++) await nodes.flush()
  }
  const passTime = async (ms: number) => {
    setServers()
    await answered()
    for (let left = ms; left > 0; left -= piecesMs) {
      const piece = Math.min(left, piecesMs)
      await clock.advance(piece)
      setServers()
      await answered()
    }
    await clock.settle()
  }
  return worldOf(nodes, library, {
    clock,
    ttlMs,
    resolutionMs: 2_000,
    nodeTimeoutMs: 2 * piecesMs,
    passTime,
    beforeCall: setServers,
  })
}

export function redlockWorldInRealTime(nodes: Nodes, library: ClientLibrary): World<'unfenced'> {
  return worldOf(nodes, library, {
    clock: systemClock,
    ttlMs: 4_000,
    resolutionMs: 1_500,
    nodeTimeoutMs: 1_500,
    passTime: (ms) => sleep(systemClock, ms, { keepsProcessAlive: true }),
  })
}

function worldOf(nodes: Nodes, library: ClientLibrary, time: WorldTime): World<'unfenced'> {
  const { clock, nodeTimeoutMs, beforeCall = () => {} } = time
  const space = `world-${++worlds}`
  let delayMs = 0
  return {
    ...time,
    async client({ namespace, ...options } = {}) {
      const own = {
        namespace: namespace === undefined ? space : `${space}/${namespace}`,
        nodeTimeoutMs,
        clock,
      }
      const backend = await nodes.backend({ ...options, ...own, library, direct: true })
      return delayed(backend, { clock, delayMs: () => delayMs, beforeCall })
    },
    async deleteName(name) {
      await nodes.call('DEL', `holdfast:${space}:{${name}}`)
    },
    async delayAnswers(ms) {
      delayMs = ms
    },
    close: () => nodes.endClients(),
  }
}

type Delayable = Backend<'unfenced'> | BackendSession<'unfenced'>

interface Wire {
  readonly clock: Clock
  readonly delayMs: () => number
  readonly beforeCall: () => void
}

/** On a wire of real time an answer cannot be late by the clients' clock, so it is made late behind the wire. */
function delayed<T extends Delayable>(inner: T, wire: Wire): T {
  return new Proxy(inner, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      if (typeof key === 'symbol') return value.bind(target)
      return async (...args: unknown[]) => {
        wire.beforeCall()
        const answer: unknown = await value.apply(target, args)
        if (wire.delayMs() > 0) await sleep(wire.clock, wire.delayMs())
        const isSession = (key === 'openSession' || key === 'attachSession') && answer !== null
        return isSession ? delayed(answer as BackendSession<'unfenced'>, wire) : answer
      }
    },
  })
}
