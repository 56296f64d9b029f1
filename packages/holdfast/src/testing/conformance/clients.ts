/** The clients of one world: closed together, and with answers that can be made to take their time. */
import assert from 'node:assert/strict'
import { allPages } from '../../base/all-pages.ts'
import { type Clock, type Instant, instantOf, sleep } from '../../base/clock.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import type { Backend, BackendSession, Fencing, PageRequest, SessionRequest } from '../../spi.ts'
import { call } from './requests.ts'
import type { ClientOptions } from './world.ts'

/** Puts something between the suite and every client. */
export type Wrap<F extends Fencing> = (backend: Backend<F>) => Backend<F>

/** With the clock that the client is to live by. */
type Create<F extends Fencing> = (options: ClientOptions, clock: Clock) => Backend<F> | Promise<Backend<F>>

export class Clients<F extends Fencing> {
  readonly #clock: Clock
  readonly #aheadClock: AheadClock
  readonly #create: Create<F>
  readonly #wrap: Wrap<F>
  readonly #leaving: (() => Promise<void>) | undefined
  readonly #all: Backend<F>[] = []
  /** The public ids of the sessions that a case has closed. */
  readonly #closed = new Set<string>()
  #delayMs = 0

  /** `leaving`: called before a call is made; resolves when its first request has left. By default that is at once. */
  constructor(
    clock: Clock,
    create: Create<F>,
    wrap: Wrap<F> = (backend) => backend,
    leaving?: () => Promise<void>,
  ) {
    this.#clock = clock
    this.#aheadClock = new AheadClock(clock)
    this.#create = create
    this.#wrap = wrap
    this.#leaving = leaving
  }

  async add(options: ClientOptions = {}): Promise<Backend<F>> {
    const client = await this.#create(options, this.#aheadClock)
    this.#all.push(client)
    return this.#wrap(this.#delayed(client))
  }

  async delayAnswers(ms: number): Promise<void> {
    this.#delayMs = ms
  }

  /** A session that was closed has gone, whatever else a case has left. */
  async close(): Promise<void> {
    for (const client of this.#all) await this.#expectClosed(client)
    await Promise.all(this.#all.map((client) => client[Symbol.asyncDispose]()))
  }

  async #expectClosed(client: Backend<F>): Promise<void> {
    if (this.#closed.size === 0) return
    const read = (page: PageRequest) => client.sessions?.(page, call()) ?? { items: [], next: null }
    try {
      for await (const sessions of allPages(read))
        for (const { id } of sessions)
          assert(!this.#closed.has(id), `the session ${id} was closed, and is there`)
    } catch (error) {
      // A case may have closed the client, or stopped its engine.
      if (!isHoldfastError(error)) throw error
    }
  }

  /**
   * On the wires of a test answers cannot be late by the world's clock. So the clients' clock jumps ahead when a call has
   * left, before its answer is read, and stands still until the world has caught up with it: then the caller hears of it.
   */
  #delayed<T extends Backend<F> | BackendSession<F>>(inner: T): T {
    return new Proxy(inner, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        if (UNDELAYED.has(key) || typeof key === 'symbol') return value.bind(target)
        return async (...args: unknown[]) => {
          const delayMs = this.#delayMs
          const left = delayMs > 0 ? this.#leaving?.() : undefined
          const asked: unknown = value.apply(target, args)
          if (left !== undefined) await left
          if (delayMs > 0) this.#aheadClock.jump(delayMs)
          const answer: unknown = await asked
          if (key === 'close' && 'handle' in target) this.#closed.add(publicIdOf(String(target.handle.id)))
          if (delayMs > 0) await sleep(this.#clock, delayMs)
          // One that is opened again lives.
          if (key === 'openSession') this.#closed.delete(publicIdOf((args[0] as SessionRequest).id))
          const opensSession = key === 'openSession' || (key === 'attachSession' && answer !== null)
          return opensSession ? this.#delayed(answer as BackendSession<F>) : answer
        }
      },
    })
  }
}

/** Methods that answer without a promise, or tell what comes later. */
const UNDELAYED = new Set<string | symbol>(['watch', 'enqueue', 'onceFree', 'whyUnanswered'])

class AheadClock implements Clock {
  readonly #clock: Clock
  #least: Instant = { monotonicMs: Number.NEGATIVE_INFINITY, wallMs: Number.NEGATIVE_INFINITY }

  constructor(clock: Clock) {
    this.#clock = clock
  }

  jump(ms: number): void {
    const { monotonicMs, wallMs } = instantOf(this.#clock)
    this.#least = { monotonicMs: monotonicMs + ms, wallMs: wallMs + ms }
  }

  monotonicMs(): number {
    return Math.max(this.#clock.monotonicMs(), this.#least.monotonicMs)
  }

  wallMs(): number {
    return Math.max(this.#clock.wallMs(), this.#least.wallMs)
  }

  setTimer: Clock['setTimer'] = (delayMs, fire, options) => this.#clock.setTimer(delayMs, fire, options)
}
