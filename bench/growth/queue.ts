/** A name that is held, and waiters behind it. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Lease, Locker } from 'holdfast'

const perBatch = 500
const pollMs = 20
/** For engines without a queue that can be looked at. */
const settleMs = 300
/** An engine may need a connection for each waiter, and then the pool is the limit. */
const stuckMs = 5_000
/** Longer than a run. */
const patienceMs = 600_000

export class Queue {
  readonly name: string
  readonly #locker: Locker
  #held: Lease
  #waiting = 0
  #granted: (lease: Lease) => void = () => {}

  private constructor(locker: Locker, name: string, held: Lease) {
    this.name = name
    this.#locker = locker
    this.#held = held
  }

  static async start(locker: Locker, name: string): Promise<Queue> {
    return new Queue(locker, name, await locker.acquire(name))
  }

  /** Adds waiters until there are so many. */
  async waitUntil(count: number): Promise<void> {
    while (this.#waiting < count) {
      for (const until = Math.min(count, this.#waiting + perBatch); this.#waiting < until; ) this.#wait()
      await this.#settled(this.#waiting)
    }
  }

  /** Adds `count` waiters that give up. */
  async giveUp(count: number): Promise<void> {
    for (let left = count; left > 0; left -= perBatch) {
      const controller = new AbortController()
      const { signal } = controller
      const batch = Math.min(left, perBatch)
      const waits = Array.from({ length: batch }, () =>
        this.#locker.acquire(this.name, { waitMs: patienceMs, signal }),
      )
      const ended = Promise.allSettled(waits)
      await this.#settled(this.#waiting + batch)
      controller.abort()
      const grants = (await ended).filter(({ status }) => status === 'fulfilled')
      if (grants.length > 0) throw new Error(`${this.name} was granted to a waiter that was to give up`)
    }
  }

  /** Time from release to the next grant; that waiter then holds, and a new one joins. */
  async handOver(): Promise<void> {
    const next = new Promise<Lease>((resolve) => {
      this.#granted = resolve
    })
    await this.#held.release()
    this.#held = await next
    this.#wait()
  }

  #wait(): void {
    this.#waiting++
    this.#locker.acquire(this.name, { waitMs: patienceMs }).then(
      (lease) => {
        this.#waiting--
        this.#granted(lease)
      },
      // When the locker is closed at the end.
      () => {},
    )
  }

  async #settled(waiters: number): Promise<void> {
    if (this.#locker.info.waiting !== 'queue') return sleep(settleMs)
    let most = 0
    for (let changedMs = performance.now(); most < waiters; await sleep(pollMs)) {
      const seen = (await this.#locker.inspect(this.name))?.waiters.length ?? 0
      if (seen > most) changedMs = performance.now()
      else if (performance.now() - changedMs > stuckMs)
        throw new Error(`only ${most} of ${waiters} waiters came to the queue`)
      most = Math.max(most, seen)
    }
  }
}
