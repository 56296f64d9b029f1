/**
 * What is the matter with a client that is not connected, in the library's own words: so that whoever gives up waiting
 * for an answer can say that there was nobody to give one.
 *
 * It listens only while somebody waits for a client that is not connected, once for all of them, and in a way that does
 * not count as listening to `error`: whoever has no listener of their own learns of it as before (T51).
 */
import { errorMonitor } from 'node:events'
import type { RedisClient } from './client.ts'

/** What both libraries have in common. */
interface Emitter {
  readonly status?: string
  readonly isOpen?: boolean
  readonly isReady?: boolean
  /** ioredis: the last connection that was tried. */
  readonly stream?: { readonly errored?: unknown }
  on?(event: string | symbol, listener: (...args: unknown[]) => void): unknown
  off?(event: string | symbol, listener: (...args: unknown[]) => void): unknown
}

/** What is sent now leaves now. */
export function isConnected(client: RedisClient): boolean {
  const { status, isReady, isOpen } = client as Emitter
  return status === undefined ? (isReady ?? isOpen ?? true) : status === 'ready'
}

const known = new WeakMap<RedisClient, Trouble>()

export function troubleOf(client: RedisClient): Trouble {
  let trouble = known.get(client)
  if (trouble === undefined) {
    trouble = new Trouble(client as Emitter)
    known.set(client, trouble)
  }
  return trouble
}

export class Trouble {
  readonly #client: Emitter
  readonly #watchers = new Set<(error: unknown) => void>()
  #last: unknown

  constructor(client: Emitter) {
    this.#client = client
  }

  /** Why it is not connected; undefined where that is not known. */
  get last(): unknown {
    return this.#last ?? this.#client.stream?.errored ?? undefined
  }

  /** `onFailed` hears of every try to connect that fails. Call the result to stop. */
  watch(onFailed: (error: unknown) => void = doNothing): () => void {
    // Each has a function of its own, so that one who stops leaves the others.
    const watcher = (error: unknown) => onFailed(error)
    if (this.#watchers.size === 0) {
      this.#last = undefined
      for (const [event, listener] of this.#listeners) this.#client.on?.(event, listener)
    }
    this.#watchers.add(watcher)
    return () => {
      if (!this.#watchers.delete(watcher) || this.#watchers.size > 0) return
      for (const [event, listener] of this.#listeners) this.#client.off?.(event, listener)
    }
  }

  readonly #failed = (error: unknown): void => {
    this.#last = error
    for (const watcher of [...this.#watchers]) watcher(error)
  }

  /** ioredis tells nobody but its own log of errors that nobody listens to; but that the connection has ended. */
  readonly #ended = (): void => this.#failed(this.last)

  readonly #listeners: readonly (readonly [string | symbol, (...args: unknown[]) => void])[] = [
    [errorMonitor, this.#failed],
    ['close', this.#ended],
    ['end', this.#ended],
    [
      'ready',
      () => {
        this.#last = undefined
      },
    ],
  ]
}

function doNothing(): void {}

/** An error of a client in one line, without a full stop. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // An address that leads to several gives an error of errors, without a text of its own.
  const inner = error instanceof AggregateError ? error.errors.map(reasonOf).join(', ') : ''
  // A Cluster of ioredis says of what went wrong only that it did.
  const { lastNodeError, code } = error as { lastNodeError?: unknown; code?: unknown }
  const text = (error.message || inner || String(code ?? error.name)).replace(/\.$/, '')
  return withoutArguments(lastNodeError instanceof Error ? `${text}: ${reasonOf(lastNodeError)}` : text)
}

/** A server that does not know a command repeats its arguments: of AUTH, the password. */
export function withoutArguments(message: string): string {
  return message.replace(/,? with args beginning with:[^\n]*/g, '')
}
