/** All watches of a client share one stream. When the stream ends, all of them are told, and the next watch opens a new one. */

import { type Clock, judgeLate, type Timer } from '../../../base/clock.ts'
import type { Call } from '../../../spi.ts'
import type { Channel, Metadata, Stream } from './channel.ts'
import type { EtcdClient } from './client.ts'
import { methods, type WatchCreate, type WatchRequest, type WatchResponse } from './messages.ts'

export interface Watcher {
  /** Events of the watch; also that it was created, and that etcd has cancelled it: `canceled`, with the reason. */
  onResponse(response: WatchResponse): void
  /** The stream has ended. Nothing more comes. */
  onLost(error: unknown): void
}

/** For the answer that a watch was created. A stream on which it does not come is deaf, whatever else the member answers. */
const CREATED_LIMIT_MS = 5_000

export class Watches {
  readonly #client: EtcdClient
  readonly #call: Call
  readonly #clock: Clock
  readonly #watchers = new Map<number, Watcher>()
  /** Time limits of watches that were sent, and are not answered. */
  readonly #limits = new Map<number, Timer>()
  #stream: Promise<Stream<WatchRequest>> | undefined
  #opened: { readonly channel: Channel; readonly metadata: Metadata } | undefined
  #lastId = 0

  /** `call` is that of the backend's life. */
  constructor(client: EtcdClient, call: Call, clock: Clock) {
    this.#client = client
    this.#call = call
    this.#clock = clock
  }

  get count(): number {
    return this.#watchers.size
  }

  /** The returned function ends the watch. */
  add(watch: WatchCreate, watcher: Watcher): () => void {
    const id = ++this.#lastId
    this.#watchers.set(id, watcher)
    this.#send({ create: { ...watch, watch_id: id } }, id)
    return () => {
      this.#answered(id)
      if (this.#watchers.delete(id)) this.#send({ cancel: { watch_id: id } })
    }
  }

  /**
   * Tells once that one of these has changed, or that changes may have been missed: the stream has ended, the revision was compacted,
   * or the user may not read the key. The returned function ends all of them.
   */
  once(watched: readonly WatchCreate[], onEnd: (how: 'changed' | 'lost') => void): () => void {
    const ends: (() => void)[] = []
    const stop = () => {
      for (const end of ends.splice(0)) end()
    }
    const tell = (how: 'changed' | 'lost') => {
      if (ends.length === 0) return
      stop()
      onEnd(how)
    }
    const watcher: Watcher = {
      onResponse: ({ canceled, events }) => {
        if (canceled || events.length > 0) tell(canceled ? 'lost' : 'changed')
      },
      onLost: () => tell('lost'),
    }
    for (const each of watched) ends.push(this.add(each, watcher))
    return stop
  }

  /** Ends the stream without telling the watchers. */
  close(): void {
    this.#clear()
    this.#stream?.then(
      (stream) => stream.close(),
      () => {},
    )
    this.#stream = undefined
  }

  #send(request: WatchRequest, id?: number): void {
    if (id === undefined && this.#stream === undefined) return
    this.#stream ??= this.#open()
    this.#stream.then(
      (stream) => {
        // One that was ended before the stream was there is not created.
        if (id !== undefined && !this.#watchers.has(id)) return
        this.#client.sent++
        stream.send(request)
        if (id !== undefined) this.#limit(id)
      },
      () => {},
    )
  }

  #open(): Promise<Stream<WatchRequest>> {
    const opening = (async () => {
      const opened = await this.#client.connect(this.#call)
      const { channel, metadata } = opened
      this.#opened = opened
      const end = (error: unknown) => {
        if (this.#stream === opening) this.#lose(error)
      }
      return channel.stream(methods.watch, metadata, (response) => this.#received(response), end)
    })()
    opening.catch((error: unknown) => {
      if (this.#stream === opening) this.#lose(error)
    })
    return opening
  }

  #received(response: WatchResponse): void {
    const { watch_id: id, canceled, events } = response
    // Watchers must not be made to throw.
    if (events.some(({ kv }) => kv === undefined)) {
      this.#lose(new Error('an event has no key'))
      return
    }
    // Refused before it was given its id: the token of the stream is not valid any more.
    if (canceled && id <= 0) {
      if (this.#opened !== undefined) this.#client.forgetToken(this.#opened.metadata)
      this.#opened = undefined
      this.#lose(new Error(response.cancel_reason))
      return
    }
    this.#answered(id)
    const watcher = this.#watchers.get(id)
    if (canceled) this.#watchers.delete(id)
    watcher?.onResponse(response)
  }

  #limit(id: number): void {
    const lose = () => this.#lose(new Error(`a watch was not created within ${CREATED_LIMIT_MS} ms`))
    this.#limits.set(id, judgeLate(this.#clock, CREATED_LIMIT_MS, lose))
  }

  #answered(id: number): void {
    this.#limits.get(id)?.cancel()
    this.#limits.delete(id)
  }

  /** All that were there. */
  #clear(): Watcher[] {
    const watchers = [...this.#watchers.values()]
    this.#watchers.clear()
    for (const id of [...this.#limits.keys()]) this.#answered(id)
    return watchers
  }

  #lose(error: unknown): void {
    this.#stream?.then(
      (stream) => stream.close(),
      () => {},
    )
    this.#stream = undefined
    // A member that has lost its leader ends its streams, and would refuse the next one too.
    if (this.#opened !== undefined) this.#client.leave(this.#opened.channel)
    this.#opened = undefined
    for (const watcher of this.#clear()) watcher.onLost(error)
  }
}
