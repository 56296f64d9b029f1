/**
 * Events on a Cluster, where no script can write to a key that the locks of all slots share: they are published as they
 * happen, while a watcher is subscribed at the primary. Only this process keeps them, so each interruption is a gap.
 *
 *   idle ──a watcher asks──▶ live: subscribed at every primary, and to the events                       [#open]
 *   live ──a connection is lost, or a primary does not know the subscription──▶ idle: a gap              [#end]
 *   live ──the last watcher leaves──▶ idle                                                              [#end]
 *
 * What may go wrong: a message is lost between two nodes of the Cluster, and no watcher notices. The documents say so.
 */

import { callWith } from '../../base/aborting.ts'
import type { Timer } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { SingleFlight } from '../../base/single-flight.ts'
import type { Presence, Subscription } from '../../clients/redis/index.ts'
import type { ToldEvent } from '../../kit/watching.ts'
import type { Call, NameState } from '../../spi.ts'
import type { Engine } from './engine.ts'
import { KnownHolders } from './known-holders.ts'
import { readEvent } from './looking.ts'
import { RecentEvents } from './recent-events.ts'
import type { Entry, EventSource, Head, Position } from './watch.ts'

export interface ClusterEventsOptions {
  readonly engine: Engine
  readonly pages: (prefix: string, call: Call) => AsyncIterable<readonly NameState[]>
  readonly inspect: (name: string, call: Call) => Promise<NameState | null>
}

/** How often every primary is asked whether it knows the subscription. */
const CHECKED_EVERY_MS = 5_000

interface Live {
  readonly ending: AbortController
  readonly subscription: Subscription
  readonly presence: Presence
  readonly holders: KnownHolders
  checking: Timer | undefined
}

export class ClusterEvents implements EventSource {
  readonly #options: ClusterEventsOptions
  readonly #recent = new RecentEvents()
  readonly #watchers = new Set<symbol>()
  #opening = this.#newOpening()
  #live: Live | undefined
  #count = 0

  constructor(options: ClusterEventsOptions) {
    this.#options = options
  }

  get changes(): number {
    return this.#recent.changes
  }

  join(): () => void {
    const watcher = Symbol('watcher')
    this.#watchers.add(watcher)
    return () => {
      if (this.#watchers.delete(watcher) && this.#watchers.size === 0) this.#end()
    }
  }

  /** Wakes the watchers, so that they find out. */
  close(): void {
    this.#watchers.clear()
    this.#end()
  }

  async head(call: Call): Promise<Head> {
    await this.#opening.join(call)
    const { last } = this.#recent
    if (last === null)
      throw new BackendUnavailableError('redis', 'the subscription was interrupted', 'not-applied')
    // The clocks of several nodes cannot be compared.
    return { ...last, nowMs: null }
  }

  async after(position: Position): Promise<readonly Entry[] | null> {
    return this.#recent.after(position)
  }

  next(seen: number, call: Call): Promise<void> {
    return this.#recent.next(seen, call)
  }

  #newOpening(): SingleFlight<void> {
    return new SingleFlight('redis', (signal) => this.#open(signal))
  }

  async #open(signal: AbortSignal): Promise<void> {
    const { engine, pages, inspect } = this.#options
    const { connection, watchChannel, clock, random } = engine
    const ending = new AbortController()
    const lose = () => {
      if (this.#live?.ending === ending) this.#end()
      else ending.abort(new Error('the subscription was interrupted'))
    }
    const stop = AbortSignal.any([signal, ending.signal])
    const receive = (text: string) => this.#live?.ending === ending && this.#receive(this.#live, text)
    const subscription = await connection.subscribe(`${watchChannel}:log`, receive, lose, stop)
    // How a primary is asked for this subscription, and no other.
    const own = `${watchChannel}:${random.id()}`
    let presence: Presence
    try {
      presence = await connection.subscribeAtAll([watchChannel, own], lose, stop)
      stop.throwIfAborted()
    } catch (error) {
      subscription.unsubscribe()
      throw error
    }
    const call = callWith(ending.signal)
    const tell = (event: ToldEvent) => this.#tell(event)
    const holders = new KnownHolders({ clock, tell, inspect: (name) => inspect(name, call) })
    this.#live = { ending, subscription, presence, holders, checking: undefined }
    this.#recent.start({ logId: random.id(), at: '0-0' })
    this.#checkLater(this.#live, own)
    holders.find(pages('', call)).catch(() => {
      // Without the current holders, ends would be missed.
      lose()
    })
  }

  #end(): void {
    const live = this.#live
    this.#live = undefined
    this.#opening = this.#newOpening()
    this.#recent.clear()
    if (live !== undefined) {
      live.ending.abort(new Error('watching has ended'))
      live.subscription.unsubscribe()
      live.presence.close()
      live.holders.close()
      live.checking?.cancel()
    }
    this.#recent.changed()
  }

  #receive(live: Live, text: string): void {
    const read = readEvent(text, this.#options.engine.nameOf)
    if (read === null) return
    const { event, ttlMs, isExclusive } = read
    if (event.kind === 'acquired') live.holders.granted(event, ttlMs, isExclusive)
    else live.holders.changed(event)
    this.#tell(event)
  }

  #tell(event: ToldEvent): void {
    this.#recent.add([{ at: `${++this.#count}-0`, event }])
  }

  /** Another primary may be in charge, or one may have lost the connection without its end being heard here. */
  #checkLater(live: Live, channel: string): void {
    const { connection, clock } = this.#options.engine
    live.checking = clock.setTimer(CHECKED_EVERY_MS, () => {
      const { signal } = live.ending
      connection
        .nodes(signal)
        .then((nodes) => Promise.all(nodes.map((node) => node.send(['PUBSUB', 'NUMSUB', channel], signal))))
        .then((counts) => {
          if (counts.every((count) => Array.isArray(count) && Number(count[1]) > 0)) return
          if (this.#live === live) this.#end()
        })
        // A primary that does not answer publishes nothing either; it is asked again.
        .catch(() => {})
        .finally(() => {
          if (this.#live === live) this.#checkLater(live, channel)
        })
    })
  }
}
