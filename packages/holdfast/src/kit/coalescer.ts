/**
 * Requests that arrive while a round trip is in flight leave together in the next one, so throughput grows with
 * concurrency. A single request never waits for company: when nothing is in flight, a batch leaves at the end of
 * the current microtask.
 *
 * idle ──add──▶ gathering ──microtask──▶ sending ──settled, more waiting──▶ sending
 *                                        sending ──settled, none waiting──▶ idle
 */

/** Answers every item in its own place. A rejection (a lost reply) makes the outcome of the whole batch unknown. */
export type SendBatch<Item, Answer> = (items: readonly Item[]) => Promise<readonly Settled<Answer>[]>

export type Settled<Answer> =
  | { readonly ok: true; readonly answer: Answer }
  | { readonly ok: false; readonly error: unknown }

interface Entry<Item, Answer> {
  readonly item: Item
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

const soon = Promise.resolve()

export class Coalescer<Item, Answer> {
  readonly #send: SendBatch<Item, Answer>
  readonly #maxBatch: number
  #waiting: Entry<Item, Answer>[] = []
  #inFlight = false

  constructor(send: SendBatch<Item, Answer>, options: { readonly maxBatch: number }) {
    this.#send = send
    this.#maxBatch = options.maxBatch
  }

  add(item: Item): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject })
      if (this.#inFlight) return
      this.#inFlight = true
      // Not queueMicrotask: test runners fake it.
      soon.then(() => this.#sendAll())
    })
  }

  /** Takes back what has not left yet: those requests are certain not to land. */
  withdraw(matches: (item: Item) => boolean, error: unknown): void {
    const kept: Entry<Item, Answer>[] = []
    for (const entry of this.#waiting) {
      if (matches(entry.item)) entry.reject(error)
      else kept.push(entry)
    }
    this.#waiting = kept
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.#maxBatch)
      try {
        const settled = await this.#send(batch.map((entry) => entry.item))
        batch.forEach((entry, index) => {
          const result = settled[index]
          if (result === undefined) entry.reject(new Error('the batch came back with too few answers'))
          else if (result.ok) entry.resolve(result.answer)
          else entry.reject(result.error)
        })
      } catch (error) {
        for (const entry of batch) entry.reject(error)
      }
    }
    this.#inFlight = false
  }
}
