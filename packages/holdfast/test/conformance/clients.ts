/** The clients of one world: closed together, and with answers that can be made to take their time. */
import { type Clock, sleep } from '../../src/core/clock.ts'
import type { Backend, BackendSession, Fencing } from '../../src/spi.ts'
import type { ClientOptions } from '../../src/testing/describe-backend.ts'

/** Puts something between the suite and every client. */
export type Wrap<F extends Fencing> = (backend: Backend<F>) => Backend<F>

type Create<F extends Fencing> = (options: ClientOptions) => Backend<F> | Promise<Backend<F>>

export class Clients<F extends Fencing> {
  readonly #clock: Clock
  readonly #create: Create<F>
  readonly #wrap: Wrap<F>
  readonly #all: Backend<F>[] = []
  #delayMs = 0

  constructor(clock: Clock, create: Create<F>, wrap: Wrap<F> = (backend) => backend) {
    this.#clock = clock
    this.#create = create
    this.#wrap = wrap
  }

  async add(options: ClientOptions = {}): Promise<Backend<F>> {
    const client = await this.#create(options)
    this.#all.push(client)
    return this.#wrap(this.#delayed(client))
  }

  async delayAnswers(ms: number): Promise<void> {
    this.#delayMs = ms
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((client) => client[Symbol.asyncDispose]()))
  }

  /** On the wires of a test answers cannot be late by the clients' clock, so here they are made to be. */
  #delayed<T extends Backend<F> | BackendSession<F>>(inner: T): T {
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
          return opensSession ? this.#delayed(answer as BackendSession<F>) : answer
        }
      },
    })
  }
}
