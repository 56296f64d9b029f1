/** Watches of one session. They outlive its connections: what is pending is set again on the next one. */
import { callSafely } from '../../../base/call-safely.ts'
import type { NodeEvent } from './messages.ts'

/** `lost`: the session has gone, or was dropped. Nothing more comes. */
export type WatchTold = NodeEvent['kind'] | 'lost'

export interface TreeWatcher {
  onEvent(event: NodeEvent): void
  /** The connection was lost, or the session has gone. Events may be missing, and nothing more comes. */
  onLost(): void
}

type Tell = (told: WatchTold) => void

interface Watched {
  /** The node was there, or was not, when the watch was set. */
  isThere: boolean
  readonly tells: Set<Tell>
}

/** Less than what a server accepts as one request (`jute.maxbuffer`, 1 MiB). */
const PART_BYTES = 128 * 2 ** 10

export class Watches {
  readonly #nodes = new Map<string, Watched>()
  /** Those that were taken back, maybe before their watch was set. */
  readonly #stopped = new WeakSet<Tell>()
  readonly #trees = new Set<{ readonly path: string; readonly watcher: TreeWatcher }>()

  /** Paths with a watch of one event. */
  get size(): number {
    return this.#nodes.size
  }

  add(path: string, isThere: boolean, tell: Tell): void {
    if (this.#stopped.has(tell)) return
    const watched = this.#nodes.get(path) ?? { isThere, tells: new Set() }
    watched.isThere = isThere
    watched.tells.add(tell)
    this.#nodes.set(path, watched)
  }

  delete(path: string, tell: Tell): void {
    this.#stopped.add(tell)
    const watched = this.#nodes.get(path)
    watched?.tells.delete(tell)
    if (watched?.tells.size === 0) this.#nodes.delete(path)
  }

  /** Returns its end, which says whether it was the last of this path. */
  addTree(path: string, watcher: TreeWatcher): () => boolean {
    const tree = { path, watcher }
    this.#trees.add(tree)
    return () => this.#trees.delete(tree) && ![...this.#trees].some((each) => each.path === path)
  }

  told(event: NodeEvent): void {
    const { kind, path } = event
    this.#tell(path, kind)
    for (const { path: root, watcher } of [...this.#trees])
      if (path === root || path.startsWith(`${root}/`)) callSafely(() => watcher.onEvent(event))
  }

  /** Pending watches of nodes, in parts that are small enough for one request. */
  parts(): { readonly existing: string[]; readonly missing: string[] }[] {
    const parts: ReturnType<Watches['parts']> = []
    let room = 0
    for (const [path, { isThere }] of this.#nodes) {
      const bytes = 4 + Buffer.byteLength(path)
      if (bytes > room) parts.push({ existing: [], missing: [] })
      room = (bytes > room ? PART_BYTES : room) - bytes
      parts.at(-1)?.[isThere ? 'existing' : 'missing'].push(path)
    }
    return parts
  }

  /** Events between two connections are not sent again for trees. */
  loseTrees(): void {
    const trees = [...this.#trees]
    this.#trees.clear()
    for (const { watcher } of trees) callSafely(() => watcher.onLost())
  }

  loseAll(): void {
    for (const path of [...this.#nodes.keys()]) this.#tell(path, 'lost')
    this.loseTrees()
  }

  #tell(path: string, told: WatchTold): void {
    const watched = this.#nodes.get(path)
    this.#nodes.delete(path)
    for (const tell of watched?.tells ?? []) if (!this.#stopped.has(tell)) callSafely(() => tell(told))
  }
}
