/** A session of ZooKeeper, and the connection that it has at the moment. */
import type { Instant } from '../../../base/clock.ts'
import type { Call } from '../../../spi.ts'
import type { Op, Reply, Request } from './messages.ts'

/** `lost`: the session has gone, or was dropped. Nothing more comes. */
export type WatchTold = 'created' | 'deleted' | 'changed' | 'lost'

export interface TreeEvent {
  readonly kind: 'created' | 'deleted' | 'changed'
  readonly path: string
}

export interface TreeWatcher {
  onEvent(event: TreeEvent): void
  /** The connection was lost, or the session has gone. Events may be missing, and nothing more comes. */
  onLost(): void
}

export type Replies<R extends readonly Request[]> = {
  readonly [I in keyof R]: R[I] extends { readonly op: infer O extends Op } ? Reply<O> : never
}

export interface Prolonged<R extends readonly Request[]> {
  /** Just before the write of the request that prolonged the session. */
  readonly since: Instant
  readonly timeoutMs: number
  readonly replies: Replies<R>
}

const notYet = (): never => {
  throw new Error('not yet')
}

export class Session {
  readonly id: bigint
  /** Just before the ConnectRequest was written; null for an attached session. */
  readonly since: Instant | null

  constructor(id: bigint, since: Instant | null) {
    this.id = id
    this.since = since
  }

  /** As negotiated; a re-attachment may change it. */
  get timeoutMs(): number {
    return notYet()
  }

  get isGone(): boolean {
    return notYet()
  }

  /** Requests of one turn leave together, in their order. */
  ask<O extends Op>(_request: Request<O>, _call: Call): Promise<Reply<O>> {
    return notYet()
  }

  /** `tell` is called at most once, also before the answer has been awaited; never after `unwatch`. */
  watch<O extends 'exists' | 'getData'>(
    _request: Request<O>,
    _tell: (told: WatchTold) => void,
    _call: Call,
  ): Promise<Reply<O>> {
    return notYet()
  }

  unwatch(_path: string, _tell: (told: WatchTold) => void): void {
    notYet()
  }

  /** Persistent and recursive. The returned function ends it. */
  watchTree(_path: string, _watcher: TreeWatcher, _call: Call): Promise<() => void> {
    return notYet()
  }

  /** Null: the session has gone. */
  prolong<const R extends readonly Request[]>(_requests: R, _call: Call): Promise<Prolonged<R> | null> {
    return notYet()
  }

  /** Ends the session and deletes its ephemeral nodes. */
  end(_call: Call): Promise<void> {
    return notYet()
  }

  /** Closes the connections. The session lives on until its time is up. */
  drop(): void {
    notYet()
  }
}
