/**
 * One connection that listens, for all sessions of a backend. A message tells that an operator has marked a record of a connection,
 * or that a key was freed. Neither is needed to be right: keep-alives find marks as well, and waiters poll.
 */
import type { Listener, PostgresDatabase } from '../client/index.ts'
import { CHANNEL, FREE } from './schema.ts'

export interface Listening {
  /** Looks for marks of operators. */
  look(): void
  /** Another session freed this key. */
  freed(key: string): void
}

export class SessionListener {
  /** The sessions, by the keys of their connections. */
  readonly sessions = new Map<string, Listening>()
  readonly #database: PostgresDatabase
  #listening: Promise<Listener | undefined> | undefined
  #isDeaf = false

  constructor(database: PostgresDatabase) {
    this.#database = database
  }

  /** It listened, and could not go on, or could never. */
  get isDeaf(): boolean {
    return this.#isDeaf
  }

  /** Resolves when it listens, or when that has failed. Then a later call tries again, and operators wait for it. */
  async ready(): Promise<void> {
    this.#listening ??= this.#listen()
    await this.#listening
  }

  async close(): Promise<void> {
    await (await this.#listening)?.close()
  }

  async #listen(): Promise<Listener | undefined> {
    const ready = Promise.withResolvers<void>()
    const hasEnded = () => {
      this.#listening = undefined
      this.#isDeaf = true
      ready.resolve()
    }
    try {
      const listener = await this.#database.listen(CHANNEL, {
        onListening: () => {
          this.#isDeaf = false
          ready.resolve()
          // Notifications may have been missed.
          for (const session of [...this.sessions.values()]) session.look()
        },
        onNotification: (message) => this.#told(message),
        onEnd: hasEnded,
      })
      await ready.promise
      return listener
    } catch {
      hasEnded()
      return undefined
    }
  }

  #told(message: string): void {
    if (!message.startsWith(FREE)) {
      this.sessions.get(message)?.look()
      return
    }
    const [releaser, key = ''] = message.slice(FREE.length).split(' ')
    // The session that freed the key knows it from the reply, and gives the other sessions a head start.
    for (const [conn, session] of [...this.sessions]) if (conn !== releaser) session.freed(key)
  }
}
