/**
 * Hears when an operator wants a lock back. Only the session that holds an advisory lock can give it up by itself, so it
 * is asked to: by a row, and by a notification that says that the row is there. One connection listens for all backends
 * of a client.
 *
 * A notification may get lost. Sessions look at their rows with every keep-alive as well, and who does not react in time
 * loses the connection. So nothing depends on this but promptness.
 */

import type { Random } from '../../base/ids.ts'
import type { Listener, PostgresClient, PostgresDatabase } from '../../clients/postgres/index.ts'
import type { Forced } from './lock-connection.ts'

export interface Hearing {
  forced(forced: Forced): void
  /** Something may have been missed. */
  missed(): void
}

const all = new WeakMap<PostgresClient, Hub>()

/** A share in the one connection that listens for this client. */
export class Ears {
  readonly #hub: Hub
  #left = false

  constructor(client: PostgresClient, database: PostgresDatabase, random: Random) {
    this.#hub = all.get(client) ?? new Hub(`holdfast_advisory_${random.id()}`)
    all.set(client, this.#hub)
    this.#hub.users.add(this)
    this.#hub.database = database
  }

  get channel(): string {
    return this.#hub.channel
  }

  /** Resolves when it listens, or when that has failed: then a later call tries again. */
  ready(): Promise<void> {
    return this.#left ? Promise.resolve() : this.#hub.ready()
  }

  add(session: string, hearing: Hearing): void {
    this.#hub.hearings.set(session, hearing)
  }

  remove(session: string): void {
    this.#hub.hearings.delete(session)
  }

  async leave(): Promise<void> {
    this.#left = true
    this.#hub.users.delete(this)
    if (this.#hub.users.size === 0) await this.#hub.close()
  }
}

class Hub {
  readonly channel: string
  readonly users = new Set<Ears>()
  readonly hearings = new Map<string, Hearing>()
  database: PostgresDatabase | undefined
  #listener: Listener | undefined
  #starting: Promise<void> | undefined

  constructor(channel: string) {
    this.channel = channel
  }

  ready(): Promise<void> {
    this.#starting ??= this.#start()
    return this.#starting
  }

  async close(): Promise<void> {
    const listener = this.#listener
    this.#starting = undefined
    this.#listener = undefined
    await listener?.close()
  }

  async #start(): Promise<void> {
    const listening = Promise.withResolvers<void>()
    let isFirst = true
    const isOver = () => {
      this.#starting = undefined
      this.#listener = undefined
      listening.resolve()
    }
    try {
      const listener = await this.database?.listen(this.channel, {
        onListening: () => {
          listening.resolve()
          if (!isFirst) for (const hearing of [...this.hearings.values()]) hearing.missed()
          isFirst = false
        },
        onNotification: (message) => this.#hear(message),
        onEnd: isOver,
      })
      if (this.users.size === 0) await listener?.close()
      else this.#listener = listener
      await listening.promise
    } catch {
      // Operators are heard later then: see above.
      isOver()
    }
  }

  #hear(message: string): void {
    const [session = '', id = '', ...words] = message.split(' ')
    this.hearings.get(session)?.forced({ id, reason: words.length === 0 ? undefined : words.join(' ') })
  }
}
