/** A history of changes that servers of this process share, and tell to each watch once, from the revision where it starts. */
import { type EtcdAnswer, type Event, type Method, methods } from '../../src/engines/etcd/client/messages.ts'
import { Writer } from '../../src/engines/etcd/client/protobuf.ts'

const writer = new Writer()

export const encoded = <R extends EtcdAnswer>({ response }: Method<unknown, R>, message: R): Buffer =>
  writer.framed(() => response.write(writer, message)).subarray(5)

export class SharedHistory {
  readonly key: string
  revision = 1
  /** By stream and watch: the last revision that it was told. */
  readonly #told = new WeakMap<readonly Buffer[], Map<number, number>>()

  constructor(key: string) {
    this.key = key
  }

  get header() {
    return { cluster_id: '7', revision: this.revision, raft_term: 2 }
  }

  /** The answer to one message of a stream of watches: that the watch is created. */
  created(message: Buffer): Buffer {
    const watch_id = methods.watch.request.read(message).create?.watch_id ?? 0
    return this.#response(watch_id, true, [])
  }

  /** `messages`: all of the stream. Of them, so many were answered. */
  untold(messages: readonly Buffer[], answered: number): readonly Buffer[] {
    const told = this.#told.get(messages) ?? new Map<number, number>()
    this.#told.set(messages, told)
    const requests = messages.slice(0, answered).map((message) => methods.watch.request.read(message))
    const ended = new Set(requests.map(({ cancel }) => cancel?.watch_id))
    return requests.flatMap(({ create }) => {
      const { watch_id = 0, start_revision = 0 } = create ?? {}
      if (watch_id === 0 || ended.has(watch_id)) return []
      const from = told.get(watch_id) ?? (start_revision === 0 ? this.revision : start_revision - 1)
      told.set(watch_id, Math.max(from, this.revision))
      if (from >= this.revision) return []
      const revisions = Array.from({ length: this.revision - from }, (_, index) => from + 1 + index)
      return [this.#response(watch_id, false, revisions)]
    })
  }

  #response(watch_id: number, created: boolean, revisions: readonly number[]): Buffer {
    const events: Event[] = revisions.map((revision) => {
      const kv = { key: this.key, create_revision: 1, mod_revision: revision, value: '', lease: 0 }
      return { type: 0, kv } as Event
    })
    const about = { watch_id, created, canceled: false, cancel_reason: '', fragment: false, events }
    return encoded(methods.watch, { header: this.header, ...about })
  }
}
