/**
 * Whether the user's client is connected now, and what was the matter if it is not: so that whoever has a time limit can
 * tell a server that does not answer from a client that is still connecting.
 *
 * It listens to the `error` events of the client. Their text is passed on to whoever watches; and where nobody else
 * listens, a server that cannot be reached no longer ends the process (T51).
 */
import type { RedisClient } from './client.ts'
import { isConnected, reasonOf } from './trouble.ts'

/** What both libraries have in common as emitters of events. */
interface Emitter {
  readonly status?: string
  readonly isOpen?: boolean
  readonly isReady?: boolean
  on?(event: string, listener: (...args: unknown[]) => void): unknown
  connect?(): Promise<unknown>
}

export interface ReadinessWatcher {
  /** The client can send now, for the first time or again. */
  onReady(): void
  /** In the library's own words. */
  onError(reason: string): void
}

/** One set of listeners a client, however many use it: they stay for as long as the client lives. */
const known = new WeakMap<RedisClient, Readiness>()

export function readinessOf(client: RedisClient): Readiness {
  let readiness = known.get(client)
  if (readiness === undefined) {
    readiness = new Readiness(client as Emitter)
    known.set(client, readiness)
  }
  return readiness
}

export class Readiness {
  readonly #client: Emitter
  readonly #watchers = new Set<ReadinessWatcher>()

  constructor(client: Emitter) {
    this.#client = client
    client.on?.('ready', () => {
      for (const watcher of this.#watchers) watcher.onReady()
    })
    client.on?.('error', (error) => {
      for (const watcher of this.#watchers) watcher.onError(reasonOf(error))
    })
  }

  /** What is sent now leaves now. */
  get isReady(): boolean {
    return isConnected(this.#client as RedisClient)
  }

  /** Not ready, and it makes no sense to wait: the client was closed, or nobody has told it to connect. */
  get isClosed(): boolean {
    const { status, isOpen } = this.#client
    return status === undefined ? isOpen === false : status === 'end'
  }

  /** For a client of ioredis that connects when it is first used. */
  wake(): void {
    // Whoever watches is told by events what becomes of it.
    if (this.#client.status === 'wait') this.#client.connect?.().catch(() => {})
  }

  /** Call the result to stop. */
  watch(watcher: ReadinessWatcher): () => void {
    this.#watchers.add(watcher)
    return () => void this.#watchers.delete(watcher)
  }
}
