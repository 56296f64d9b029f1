/** Where the tests of Redlock play: real nodes, and clients whose clock stands still until it is moved. */
import assert from 'node:assert/strict'
import { redisCall } from 'holdfast-lab/servers'
import { sleep, systemClock } from '../../src/base/clock.ts'
import type { BackendSession, Grant } from '../../src/spi.ts'
import { call, request } from '../../src/testing/conformance/requests.ts'
import { newSessionId } from '../../src/testing/conformance/stage.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/fake-clock.ts'
import type { BackendOptions, Nodes } from './nodes.ts'

export { call, request } from '../../src/testing/conformance/requests.ts'

export const ttlMs = 10_000
export const nodeTimeoutMs = 50

let spaces = 0

/** A part of the nodes that no other test uses. */
export class RedlockStage {
  readonly nodes: Nodes
  readonly clock: FakeClock = createFakeClock()
  readonly namespace = `stage-${++spaces}`

  constructor(nodes: Nodes) {
    this.nodes = nodes
  }

  backend(options: BackendOptions = {}) {
    return this.nodes.backend({ namespace: this.namespace, clock: this.clock, ...options })
  }

  async session(holder = 'ada', options: BackendOptions = {}): Promise<BackendSession<'unfenced'>> {
    const backend = await this.backend(options)
    return backend.openSession({ id: newSessionId(), ttlMs, holder }, call())
  }

  key(name: string): string {
    return `holdfast:${this.namespace}:{${name}}`
  }

  /** Whose lock each node has: the value, or null. */
  async values(name: string, only = this.all): Promise<(string | null)[]> {
    const values = only.map((index) => redisCall(this.server(index), 'GET', this.key(name)))
    return (await Promise.all(values)) as (string | null)[]
  }

  /** Another client, with nothing but the classic recipe. */
  async rival(name: string, on: readonly number[], value = 'a rival'): Promise<void> {
    for (const index of on) {
      const set = await redisCall(this.server(index), 'SET', this.key(name), value, 'NX', 'PX', 10 * ttlMs)
      assert.equal(set, 'OK')
    }
  }

  async remove(name: string, on: readonly number[] = this.all): Promise<void> {
    for (const index of on) await redisCall(this.server(index), 'DEL', this.key(name))
  }

  get all(): readonly number[] {
    return this.nodes.servers.map((_, index) => index)
  }

  server(index: number) {
    const server = this.nodes.servers[index]
    assert(server !== undefined)
    return server
  }

  proxy(index: number) {
    const proxy = this.nodes.proxies[index]
    assert(proxy !== undefined)
    return proxy
  }

  /** Lets the time-out pass for the nodes that are frozen, after the others have answered. */
  async answered<T>(work: Promise<T>, frozen: readonly number[]): Promise<T> {
    const seen = watch(work)
    await eventually('it is answered', async () => {
      for (let round = 0; round < 3; round++) await this.nodes.flush(frozen)
      await this.clock.advance(nodeTimeoutMs)
      return seen.state !== 'pending'
    })
    return work
  }

  /** While `body` runs these nodes stand still; afterwards they do what has reached them meanwhile. */
  async whileFrozen<T>(frozen: readonly number[], body: () => Promise<T>): Promise<T> {
    await Promise.all(frozen.map((index) => this.server(index).pause()))
    try {
      return await body()
    } finally {
      await Promise.all(frozen.map((index) => this.server(index).resume()))
    }
  }
}

export function take(session: Pick<BackendSession<'unfenced'>, 'tryAcquire'>, name: string) {
  return session.tryAcquire(request(name), call())
}

/** Takes it, and insists. */
export async function hold(
  session: Pick<BackendSession<'unfenced'>, 'tryAcquire'>,
  name: string,
): Promise<Grant<'unfenced'>> {
  const result = await session.tryAcquire(request(name), call())
  assert(result.kind === 'granted')
  return result.grant
}

/** Waits, in real time, for what the nodes do by themselves; far longer than they need. */
export async function eventually(what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  const endMs = systemClock.monotonicMs() + 120_000
  while (!(await holds())) {
    assert(systemClock.monotonicMs() < endMs, `it did not happen: ${what}`)
    await sleep(systemClock, 5, { keepsProcessAlive: true })
  }
}

/** The state of a promise, without waiting for it. */
export function watch<T>(promise: Promise<T>): {
  state: 'pending' | 'fulfilled' | 'rejected'
  error?: unknown
} {
  const seen: { state: 'pending' | 'fulfilled' | 'rejected'; error?: unknown } = { state: 'pending' }
  promise.then(
    () => {
      seen.state = 'fulfilled'
    },
    (error: unknown) => {
      seen.state = 'rejected'
      seen.error = error
    },
  )
  return seen
}
