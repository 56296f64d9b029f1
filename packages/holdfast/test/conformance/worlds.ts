/** Worlds for the engines that run inside the test's own process, on a fake clock. */
import { MemoryEngine, type MemoryOptions, memory } from '../../src/backends/memory/index.ts'
import { type Clock, sleep } from '../../src/core/clock.ts'
import { defaults } from '../../src/core/defaults.ts'
import type { Backend, BackendSession } from '../../src/spi.ts'
import type { ClientOptions, World } from '../../src/testing/describe-backend.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/fake-clock.ts'

/** Puts something between the suite and every client. */
export type Wrap = (backend: Backend<'fenced'>) => Backend<'fenced'>

export interface WorldOnFakeClock extends World<'fenced'> {
  readonly clock: FakeClock
}

const asItIs: Wrap = (backend) => backend

export interface MemoryWorldOptions {
  readonly wrap?: Wrap
  readonly engineClock?: (clock: Clock) => Clock
  readonly create?: (options: MemoryOptions) => Backend<'fenced'>
}

export async function memoryWorld(options: MemoryWorldOptions = {}): Promise<WorldOnFakeClock> {
  const { wrap, create = memory } = options
  const clock = createFakeClock()
  const engine = new MemoryEngine({ clock: options.engineClock?.(clock) ?? clock })
  const clients = new Clients(clock, (client) => create({ engine, clock, ...client }), wrap)
  return {
    clock,
    ttlMs: 1_000,
    resolutionMs: 1,
    passTime: (ms) => clock.advance(ms),
    client: (options) => clients.add(options),
    delayAnswers: (ms) => clients.delayAnswers(ms),
    deleteName: async (name) => engine.deleteName(defaults.namespace, name),
    async close() {
      await clients.close()
      engine[Symbol.dispose]()
    },
  }
}

/** The clients of one world: closed together, and with answers that can be made to take their time. */
export class Clients {
  readonly #clock: Clock
  readonly #create: (options: ClientOptions) => Backend<'fenced'>
  readonly #all: Backend<'fenced'>[] = []
  readonly #wrap: Wrap
  #delayMs = 0

  constructor(clock: Clock, create: (options: ClientOptions) => Backend<'fenced'>, wrap = asItIs) {
    this.#clock = clock
    this.#create = create
    this.#wrap = wrap
  }

  async add(options: ClientOptions = {}): Promise<Backend<'fenced'>> {
    const client = this.#create(options)
    this.#all.push(client)
    return this.#wrap(this.#delayed(client))
  }

  async delayAnswers(ms: number): Promise<void> {
    this.#delayMs = ms
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((client) => client[Symbol.asyncDispose]()))
  }

  /** Between an engine and a client of one process there is no wire that could be slow, so here is one. */
  #delayed<T extends Backend<'fenced'> | BackendSession<'fenced'>>(inner: T): T {
    return new Proxy(inner, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        if (key === 'watch' || key === 'enqueue' || typeof key === 'symbol') return value.bind(target)
        return async (...args: unknown[]) => {
          const delayMs = this.#delayMs
          const answer: unknown = await value.apply(target, args)
          if (delayMs > 0) await sleep(this.#clock, delayMs)
          const opensSession = key === 'openSession' || (key === 'attachSession' && answer !== null)
          return opensSession ? this.#delayed(answer as BackendSession<'fenced'>) : answer
        }
      },
    })
  }
}
