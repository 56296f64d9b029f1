/**
 * Runs functions one after the other, in the order of the calls: all of them, or those that have a key in common. A
 * connection has one transaction at a time, so an effect that awaits something must not have the statements of another in
 * between. And calls for one key would use up the pool if each waited for the key with a connection of its own (T21, used-up connections).
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { Cancellation, unlessCancelled } from './cancellation.ts'
import { InvalidArgumentError } from './errors.ts'

/** A function that runs, as code inside it sees it. */
export interface Running<Context = unknown> {
  readonly queue: SerialQueue<Context>
  readonly outer: Running | undefined
  /** Set by the function, for code inside it. */
  context: Context | undefined
  /** From now on, what the function has started and left behind may call the queue. */
  isOver: boolean
}

const current = new AsyncLocalStorage<Running>()

export class SerialQueue<Context = unknown> {
  /** For each key, the end of the last function that was queued. */
  readonly #ends = new Map<string, Promise<void>>()

  /** The function of this queue that the caller runs in. It would wait for itself if it queued another. */
  get inside(): Running<Context> | undefined {
    for (let running = current.getStore(); running !== undefined; running = running.outer)
      if (running.queue === this && !running.isOver) return running as Running<Context>
    return undefined
  }

  assertOutside(): void {
    if (this.inside !== undefined)
      throw new InvalidArgumentError(
        'guard',
        'is called inside an effect of its own resource, and would wait for itself: give `run` all proofs at once, ' +
          'or use `enter` in the effect.',
      )
  }

  /** The signal ends the wait, and not `body`. */
  async run<T>(
    body: (running: Running<Context>) => Promise<T>,
    {
      keys = [''],
      signal,
    }: { readonly keys?: readonly string[]; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    this.assertOutside()
    const done = Promise.withResolvers<void>()
    const before = Promise.all(keys.map((key) => this.#ends.get(key)))
    const end = before.then(() => done.promise)
    for (const key of keys) this.#ends.set(key, end)
    const running = { queue: this, outer: current.getStore(), context: undefined, isOver: false }
    const stop = new Cancellation()
    const untie = stop.follow(signal)
    try {
      await unlessCancelled(before, stop)
      return await callInside(running, () => body(running))
    } finally {
      untie()
      running.isOver = true
      done.resolve()
      void end.then(() => this.#forget(keys, end))
    }
  }

  #forget(keys: readonly string[], end: Promise<void>): void {
    for (const key of keys) if (this.#ends.get(key) === end) this.#ends.delete(key)
  }
}

/** Calls `work` inside `running`, also from where a client library calls back in another context. */
export function callInside<T>(running: Running, work: () => T): T {
  return current.run(running, work)
}

const shared = new WeakMap<object, SerialQueue>()

/** The queue that all users of one connection or client share. */
export function serialQueueOf<Context>(owner: object): SerialQueue<Context> {
  let queue = shared.get(owner)
  if (queue === undefined) {
    queue = new SerialQueue()
    shared.set(owner, queue)
  }
  return queue as SerialQueue<Context>
}
