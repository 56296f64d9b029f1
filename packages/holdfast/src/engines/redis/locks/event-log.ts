/**
 * The log of a namespace (`scripts/event-log.ts` has its layout), and what one process does for it while it watches. Each watcher
 * reads the log from its own position; here is what wakes them and keeps the log going:
 *
 *   idle ──the first watcher joins──▶ watched: subscribed, prolongs the log, looks at names that are due   [join]
 *   watched ──the last watcher leaves──▶ idle                                                             [leave]
 *
 * Failures: a message is lost, or the subscription is interrupted (watchers read when it is back, and whenever the log
 * is prolonged); the server cannot be reached (everything is tried again); the log is gone or has been shortened (the next read
 * finds a gap).
 */

import { allPages } from '../../../base/all-pages.ts'
import type { Clock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import {
  type LogPage,
  type LogPicture,
  LogWatchers,
  PROLONGED_EVERY_MS,
  WATCHED_FOR_MS,
} from '../../../kit/follow-log.ts'
import { Looks } from '../../../kit/looks.ts'
import type { Call } from '../../../spi.ts'
import type { RedisReply, RedisScript, Subscription } from '../client/index.ts'
import type { Connection } from './connection.ts'
import { checkNames, scanNames } from './paging.ts'
import { lookAtDueScript, openLogScript, readLogScript } from './scripts/event-log.ts'
import { readEvent } from './states.ts'
import { currentHolders, type Head, type Position } from './watch.ts'

const EVENTS_AT_ONCE = 256
/** Names that are looked at in one call: a few milliseconds of the server’s time at most. */
const NAMES_AT_ONCE = 100
/** Names that become due within it are looked at together. What is due already does not wait for it. */
const SHORTEST_PAUSE_MS = 200
const RETRY_MS = 400
const WATCH_AGAIN_MS = 500
/** Finding all holders is the only work that grows with the number of names. */
const LONGEST_FINDING_MS = 600_000

/** Tasks for all watchers, each at its own time, and again after a while if it failed. */
type Task = 'subscribe' | 'prolong' | 'look at due names'

export class EventLog extends LogWatchers<Position> {
  readonly retry: { readonly clock: Clock; readonly everyMs: number }
  readonly #connection: Connection
  readonly #tasks: Looks
  #subscription: Subscription | undefined
  /** The log whose due names are looked at. */
  #logId = ''
  #lookedAtMs = Number.NEGATIVE_INFINITY
  #isFinding = false

  constructor(connection: Connection) {
    super()
    this.#connection = connection
    const { clock, random } = connection
    this.retry = { clock, everyMs: WATCH_AGAIN_MS }
    const isNeeded = () => this.size > 0
    this.#tasks = new Looks({ clock, random, pollMs: RETRY_MS, isNeeded, look: (due) => this.#work(due) })
  }

  override join(): () => void {
    checkNames(this.#connection)
    return super.join()
  }

  protected started(): void {
    this.#do('subscribe', 0)
    this.#do('prolong', PROLONGED_EVERY_MS)
  }

  protected stopped(): void {
    this.#tasks.stop()
    this.#subscription?.unsubscribe()
    this.#subscription = undefined
    this.#logId = ''
  }

  /** Opens the log, or prolongs it. */
  async head(call: Call): Promise<Head> {
    const reply = await this.#run(openLogScript, [this.#connection.random.id(), String(WATCHED_FOR_MS)], call)
    const [logId = '', at = '', nowMs, hasAllHolders] = (reply as readonly RedisReply[]).map(String)
    if (this.size > 0) {
      if (this.#logId !== logId) this.#lookIn(0)
      this.#logId = logId
      if (hasAllHolders !== '1') void this.#findHolders()
    }
    return { logId, at, nowMs: Number(nowMs) }
  }

  protected async readFrom(from: Position): Promise<LogPage<Position> | null> {
    const { logId, at } = from
    const reply = await this.#connection.lifetime.inBackground((call) =>
      this.#run(readLogScript, [logId, at, String(EVENTS_AT_ONCE + 1)], call),
    )
    if (!Array.isArray(reply)) return null
    const events = (reply as readonly (readonly [string, readonly string[]])[])
      .slice(1)
      .map(([at, [, text = '']]) => {
        const { event = null, ttlMs = 0 } = readEvent(text, this.#nameOf) ?? {}
        if (event?.kind === 'acquired') this.#lookIn(ttlMs)
        return { event, at: { logId, at } }
      })
    return { events, next: events.at(-1)?.at ?? from, isLast: events.length < EVENTS_AT_ONCE }
  }

  async picture(prefix: string, call: Call): Promise<LogPicture<Position>> {
    const head = await this.head(call)
    const alsoLogged = new Set<string>()
    return {
      at: head,
      restart: `${head.logId}:gap`,
      holders: currentHolders(this.#connection, prefix, head, alsoLogged, call),
      alsoLogged,
    }
  }

  cursorOf({ logId, at }: Position): string {
    return `${logId}:${at}`
  }

  positionAt(cursor: string): Position | null {
    const [, logId, at] = /^([\w-]{22}):(\d{1,20}-\d{1,20})$/.exec(cursor) ?? []
    return logId === undefined || at === undefined ? null : { logId, at }
  }

  readonly #nameOf = (key: string): string | null => {
    const { client, keys } = this.#connection
    return key.startsWith(client.keyPrefix) ? keys.nameOf(key.slice(client.keyPrefix.length)) : null
  }

  #do(task: Task, inMs: number): void {
    this.#tasks.due(task, inMs)
  }

  /** Time alone changes something in so long. Redis counts a key as gone when its time has passed, not when it has come. */
  #lookIn(inMs: number): void {
    const pauseMs = this.#lookedAtMs + SHORTEST_PAUSE_MS - this.#connection.clock.monotonicMs()
    this.#do('look at due names', Math.max(inMs + 1, pauseMs))
  }

  #work(due: ReadonlySet<string>): Promise<void> {
    return this.#retriable(async (call) => {
      if (due.has('subscribe')) await this.#subscribe(call)
      if (due.has('prolong')) {
        await this.head(call)
        this.#do('prolong', PROLONGED_EVERY_MS)
        this.changed()
      }
      if (due.has('look at due names')) await this.#lookAtDue(call)
    })
  }

  /** Rejects if trying again may help. Otherwise the watchers are told. */
  async #retriable(work: (call: Call) => Promise<void>, limitMs?: number): Promise<void> {
    try {
      await this.#connection.lifetime.inBackground(work, limitMs)
    } catch (error) {
      if (this.size === 0) return
      if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
      this.fail(error)
    }
  }

  async #subscribe({ signal }: Call): Promise<void> {
    if (this.#subscription !== undefined) return
    const { client, keys } = this.#connection
    const wake = () => this.changed()
    const watch = client.keyPrefix + keys.watch
    // Rights to channels are given by how they begin, so the client's prefix is not part of the channel.
    const channel = watch.slice(watch.indexOf('holdfast:'))
    const subscription = await client.subscribe(channel, wake, wake, signal)
    if (this.size === 0) subscription.unsubscribe()
    else this.#subscription = subscription
    wake()
  }

  /** Call after call until nothing is due; other calls get in between. */
  async #lookAtDue(call: Call): Promise<void> {
    let leftMs: number
    do {
      this.#lookedAtMs = this.#connection.clock.monotonicMs()
      leftMs = await this.#lookAt([], call)
    } while (leftMs === 0)
    if (leftMs > 0) this.#lookIn(leftMs)
  }

  /** Leases that were held before there was a log are remembered too. If it fails, the next to prolong does it again. */
  async #findHolders(): Promise<void> {
    if (this.#isFinding) return
    this.#isFinding = true
    const { keys, client } = this.#connection
    const find = async (call: Call) => {
      for await (const names of allPages((page) => scanNames(this.#connection, '', page, call))) {
        const locks = names.map((name) => client.keyPrefix + keys.lock(name))
        for (let start = 0; start < locks.length; start += NAMES_AT_ONCE)
          await this.#lookAt(locks.slice(start, start + NAMES_AT_ONCE), call)
      }
      const leftMs = await this.#lookAt(['all'], call)
      if (leftMs >= 0) this.#lookIn(leftMs)
    }
    await this.#retriable(find, LONGEST_FINDING_MS).catch(ignore)
    this.#isFinding = false
  }

  /** Answers with the milliseconds until the next is due: 0 if there is more to look at now, negative if there is nothing. */
  async #lookAt(locks: readonly string[], call: Call): Promise<number> {
    const args = [this.#connection.setting, String(NAMES_AT_ONCE), ...locks]
    return Number(await this.#run(lookAtDueScript, args, call))
  }

  #run(script: RedisScript, args: readonly string[], call: Call): Promise<RedisReply> {
    const { client, keys } = this.#connection
    return client.run(script, [keys.watch], args, call.signal)
  }
}
