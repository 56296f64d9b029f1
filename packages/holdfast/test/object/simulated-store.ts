/**
 * An object store whose requests arrive, and are answered, in an order that a seed decides. Answers get lost, requests arrive
 * after their caller has given up, and the client library sends some of them twice. ETags are hashes of the body, as on S3.
 */

import type { Random } from '../../src/base/ids.ts'
import type { ObjectStore } from '../../src/guards/object.ts'

interface Stored {
  readonly body: string
  readonly etag: string
}

/** Of so many requests out of a hundred. */
interface Faults {
  readonly lost: number
  readonly late: number
  readonly never: number
  readonly twice: number
}

/** One for all: to make one takes longer than the rest of a request. */
const failure = new Error('no answer')

const faults: Faults = { lost: 6, late: 6, never: 4, twice: 6 }

export class SimulatedStore {
  readonly objects = new Map<string, Stored>()
  /** Every change of a key, in the order in which they took effect. */
  readonly changes: { readonly key: string; readonly body: string | null }[] = []
  readonly #random: Random
  readonly #etagOf: (body: string) => string
  readonly #events: (() => void)[] = []

  /** The body itself is as good as a hash of it. */
  constructor(random: Random, etagOf = (body: string) => `etag ${body}`) {
    this.#random = random
    this.#etagOf = etagOf
  }

  readonly client: ObjectStore = {
    get: (key) =>
      this.#request(() => {
        const found = this.objects.get(key)
        return found === undefined ? null : { body: new TextEncoder().encode(found.body), etag: found.etag }
      }),
    put: (key, body, { ifMatch, ifNoneMatch } = {}) =>
      this.#request(() => {
        const found = this.objects.get(key)
        if (ifNoneMatch !== undefined && found !== undefined) return null
        if (ifMatch !== undefined && found?.etag !== ifMatch) return null
        const etag = this.#etagOf(String(body))
        this.objects.set(key, { body: String(body), etag })
        this.changes.push({ key, body: String(body) })
        return etag
      }),
    delete: (key) =>
      this.#request(() => {
        if (this.objects.delete(key)) this.changes.push({ key, body: null })
      }),
    list: (prefix) => {
      const find = () => [...this.objects.keys()].filter((key) => key.startsWith(prefix))
      const request = this.#request.bind(this)
      return (async function* () {
        yield* await request(find)
      })()
    },
  }

  /** Something that happens when its turn comes. */
  later(event: () => void): void {
    this.#events.push(event)
  }

  /** One event after the other, in random order, until there are no more. */
  async play(): Promise<void> {
    for (;;) {
      await new Promise<void>((resolve) => setImmediate(resolve))
      if (this.#events.length === 0) return
      const [event] = this.#events.splice(Math.floor(this.#random.fraction() * this.#events.length), 1)
      event?.()
    }
  }

  #request<T>(apply: () => T): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const answer = () => {
      const result = apply()
      this.later(() => resolve(result))
    }
    const dice = this.#random.fraction() * 100
    const { lost, late, never, twice } = faults
    if (dice < lost) {
      this.later(() => {
        apply()
        this.later(() => reject(failure))
      })
    } else if (dice < lost + late) {
      this.later(() => reject(failure))
      this.later(() => void apply())
    } else if (dice < lost + late + never) this.later(() => reject(failure))
    else if (dice < lost + late + never + twice) {
      this.later(() => {
        apply()
        this.later(answer)
      })
    } else this.later(answer)
    return promise
  }
}
