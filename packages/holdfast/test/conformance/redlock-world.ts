/**
 * Five servers and clients that ask all of them. Clients live by a fake clock, and the servers by one that is set after
 * it, so that time passes only when a case says so, however busy the machine is. Between two such moments the servers' clock
 * runs on by what the machine takes for itself: it must be little against the drift, so the TTL is long.
 */
import { type Clock, sleep, systemClock } from '../../src/core/clock.ts'
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
  passTime(ms: number): Promise<void>
}

/** Actors of the suite that outlive a case have twenty times the short TTL. */
export const redlockMaxTtlMs = 20 * 60_000

let worlds = 0

export function redlockWorld(nodes: Nodes, library: ClientLibrary): World<'unfenced'> {
  const clock = createFakeClock()
  const ttlMs = 60_000
  // Shorter than the limits of calls, which must not be over before what is under way has been answered.
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
  return worldOf(nodes, library, { clock, ttlMs, resolutionMs: 2_000, nodeTimeoutMs: 2 * piecesMs, passTime })
}

export function redlockWorldInRealTime(nodes: Nodes, library: ClientLibrary): World<'unfenced'> {
  return worldOf(nodes, library, {
    clock: systemClock,
    ttlMs: 2_000,
    resolutionMs: 600,
    nodeTimeoutMs: 600,
    passTime: (ms) => sleep(systemClock, ms, { keepsProcessAlive: true }),
  })
}

function worldOf(nodes: Nodes, library: ClientLibrary, time: WorldTime): World<'unfenced'> {
  const { clock, nodeTimeoutMs } = time
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
      return delayed(backend, clock, () => delayMs)
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

/** On a wire of real time an answer cannot be late by the clients' clock, so it is made late behind the wire. */
function delayed<T extends Delayable>(inner: T, clock: Clock, delayMs: () => number): T {
  return new Proxy(inner, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      if (typeof key === 'symbol') return value.bind(target)
      return async (...args: unknown[]) => {
        const answer: unknown = await value.apply(target, args)
        if (delayMs() > 0) await sleep(clock, delayMs())
        const isSession = (key === 'openSession' || key === 'attachSession') && answer !== null
        return isSession ? delayed(answer as BackendSession<'unfenced'>, clock, delayMs) : answer
      }
    },
  })
}
