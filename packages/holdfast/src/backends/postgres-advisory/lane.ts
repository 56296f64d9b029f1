/**
 * What a session asks over its own connection. Requests that come while a statement is in flight leave together in the next
 * one, in the order in which they came; one that comes alone leaves at once.
 *
 *   idle ──add──▶ in flight, alone ──answered──▶ idle, or in flight with all that came meanwhile
 */
import { cancelledCall } from '../../kit/backend-kit.ts'
import { NAME } from './links.ts'
import type { LockConnection } from './lock-connection.ts'
import type { Answer, Item } from './operations.ts'

/** Each item costs a few microseconds of the server's time, and one behind it waits for all of them. */
const MAX_BATCH = 256

interface Entry {
  readonly item: Item
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

export class Lane {
  readonly #connection: LockConnection
  #waiting: Entry[] = []
  #isInFlight = false

  constructor(connection: LockConnection) {
    this.#connection = connection
  }

  add(item: Item): Promise<Answer> {
    if (this.#isInFlight)
      return new Promise<Answer>((resolve, reject) => this.#waiting.push({ item, resolve, reject }))
    this.#isInFlight = true
    const answered = this.#connection.applyOne(item)
    answered.then(this.#next, this.#next)
    return answered
  }

  /** For a caller who may lose interest: what has not left yet does not leave then. */
  unlessCallIsCancelled<T>(work: Promise<T>, item: Item, signal: AbortSignal): Promise<T> {
    return unlessCallIsCancelled(work, signal, () => {
      const at = this.#waiting.findIndex((entry) => entry.item === item)
      if (at < 0) return false
      const [entry] = this.#waiting.splice(at, 1)
      entry?.reject(cancelledCall(NAME, signal, 'not-applied'))
      return true
    })
  }

  readonly #next = (): void => {
    const batch = this.#waiting.splice(0, MAX_BATCH)
    if (batch.length === 0) {
      this.#isInFlight = false
      return
    }
    this.#send(batch).then(this.#next, this.#next)
  }

  async #send(batch: readonly Entry[]): Promise<void> {
    try {
      const answers = await this.#connection.apply(batch.map(({ item }) => item))
      for (const [index, { resolve }] of batch.entries()) resolve(answers[index] as Answer)
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
}

/** `takeBack` says whether it could be taken back: then `work` says so itself. Otherwise it goes on, without the caller. */
export function unlessCallIsCancelled<T>(
  work: Promise<T>,
  signal: AbortSignal,
  takeBack: () => boolean = () => false,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => {
      if (!takeBack()) reject(cancelledCall(NAME, signal, 'unknown'))
    }
    signal.addEventListener('abort', onAbort, { once: true })
    const done = () => signal.removeEventListener('abort', onAbort)
    work.then(
      (value) => {
        done()
        resolve(value)
      },
      (error: unknown) => {
        done()
        reject(error)
      },
    )
    if (signal.aborted) onAbort()
  })
}
