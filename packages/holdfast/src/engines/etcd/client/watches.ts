/** All watches of a client share one stream. When the stream ends, all of them are told, and the next watch opens a new one. */
import type { Call } from '../../../spi.ts'
import type { Channel, Stream } from './channel.ts'
import type { EtcdClient } from './client.ts'
import { methods, type WatchCreate, type WatchRequest, type WatchResponse } from './messages.ts'

export interface Watcher {
  /** Also the answer that the watch was created, and that etcd has cancelled it: `canceled`, with the reason. */
  onResponse(response: WatchResponse): void
  /** The stream has ended. Nothing more comes. */
  onLost(error: unknown): void
}

export class Watches {
  readonly #client: EtcdClient
  readonly #call: Call
  readonly #watchers = new Map<number, Watcher>()
  #stream: Promise<Stream<WatchRequest>> | undefined
  #channel: Channel | undefined
  #lastId = 0

  /** `call` is that of the backend's life. */
  constructor(client: EtcdClient, call: Call) {
    this.#client = client
    this.#call = call
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
    this.#watchers.clear()
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
      },
      () => {},
    )
  }

  #open(): Promise<Stream<WatchRequest>> {
    const opening = (async () => {
      const { channel, metadata } = await this.#client.connect(this.#call)
      this.#channel = channel
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
    const { watch_id: id, canceled } = response
    // Refused before it was given its id: the token of the stream is not valid any more.
    if (canceled && id <= 0) {
      this.#stream?.then(
        (stream) => stream.close(),
        () => {},
      )
      this.#client.forgetToken()
      this.#channel = undefined
      this.#lose(new Error(response.cancel_reason))
      return
    }
    const watcher = this.#watchers.get(id)
    if (canceled) this.#watchers.delete(id)
    watcher?.onResponse(response)
  }

  #lose(error: unknown): void {
    this.#stream = undefined
    // A member that has lost its leader ends its streams, and would refuse the next one too.
    if (this.#channel !== undefined) this.#client.leave(this.#channel)
    const watchers = [...this.#watchers.values()]
    this.#watchers.clear()
    for (const watcher of watchers) watcher.onLost(error)
  }
}
