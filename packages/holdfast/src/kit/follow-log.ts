/**
 * Following a log of events from a position on, at the watcher's own pace. A position that the log does not reach back to, or
 * that belongs to another log, starts with a gap and the current holders: less than what happened, but a true picture.
 *
 *   start ──a cursor of this log, or none──▶ following
 *   start ──any other cursor──▶ picture
 *   following ──the log does not have what comes next──▶ picture ──all of it was told──▶ following
 */
import { unlessStopped } from '../base/aborting.ts'
import { type Clock, sleep } from '../base/clock.ts'
import { isHoldfastError } from '../base/errors.ts'
import type { Call, WatchEvent } from '../spi.ts'
import { Changes, picture, type ToldEvent, watching } from './watching.ts'

/** A log stays open for so long after a watcher has come or prolonged it: one that comes back within it has missed nothing. */
export const WATCHED_FOR_MS = 60_000
export const PROLONGED_EVERY_MS = WATCHED_FOR_MS / 3

/** A log keeps its last events, at least so many. */
export const KEPT_EVENTS = 10_000

/**
 * A cursor carries the ids of holders that were told and that the log may tell of again (T109, events in the same tick). No cursor of a log, and no id,
 * has this sign in it.
 */
const TOLD = '+'
/** With more of them a cursor leads to a gap: it must stay short. */
const MOST_TOLD = 500

/** `P`: a position in the log. */
export interface LogPage<P> {
  /** Events in order, each with the position after it. Null: nothing to tell. */
  readonly events: readonly { readonly event: ToldEvent | null; readonly at: P }[]
  /** To read on from. */
  readonly next: P
  /** Whether the log had no more. */
  readonly isLast: boolean
}

export interface LogPicture<P> {
  /** Events from here on need not be among the holders. */
  readonly at: P
  /** A cursor that leads to a gap, for a watcher that stops before it was told all holders: `positionAt` answers null for it. */
  readonly restart: string
  readonly holders: Iterable<ToldEvent> | AsyncIterable<ToldEvent>
  /**
   * Ids of holders whose grants the log may tell of as well, because they fell into the tick of the picture (T109, events in the same tick). They are
   * known once all holders were told.
   */
  readonly alsoLogged?: ReadonlySet<string>
}

export interface FollowedLog<P> {
  /** Wakes watchers when there may be something new. */
  readonly news: Changes
  /** All watches end with it. */
  readonly failure?: { readonly error: unknown } | undefined
  /** Call the result to leave. */
  join(): () => void
  /** The end of the log. The log is open from there on, also for a watcher that comes back with a cursor. */
  head(call: Call): P | Promise<P>
  /** Null: the log does not have what comes after the position. */
  read(from: P, call: Call): LogPage<P> | null | Promise<LogPage<P> | null>
  /** Holders of names that start with `prefix`; others need not be read. */
  picture(prefix: string, call: Call): LogPicture<P> | Promise<LogPicture<P>>
  cursorOf(at: P): string
  /** Null for anything that is not a cursor to go on from. */
  positionAt(cursor: string): P | null
  /** An engine that cannot be reached is asked again after so long, once a watcher has begun. Without it, the watch fails. */
  readonly retry?: { readonly clock: Clock; readonly everyMs: number }
}

/**
 * Ends when the call is cancelled; throws when the log was closed. The log has the events of all names; those of names that do not
 * start with `prefix` are left out here.
 */
export function followLog<P>(
  log: FollowedLog<P>,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const join = () => ({ leave: log.join() })
  return watching(call, join, () => eventsOf(log, prefix, cursor, call))
}

async function* eventsOf<P>(
  log: FollowedLog<P>,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncGenerator<WatchEvent> {
  const ask = <T>(work: T | Promise<T>) =>
    unlessStopped(Promise.resolve(work), (stop) => call.onCancel(() => stop(call.signal.reason)))
  // A watcher that comes back keeps the log open before it reads, so that it reads on.
  const head = await ask(log.head(call))
  const [position, ...toldBefore] = cursor?.split(TOLD) ?? []
  let at = position === undefined ? head : log.positionAt(position)
  let told = new Set(toldBefore.slice(0, MOST_TOLD))
  let restart = ''
  const cursorOf = (after: P) => {
    if (told.size > MOST_TOLD) return restart
    return [log.cursorOf(after), ...told].join(TOLD)
  }
  while (!call.cancelled) {
    const seen = log.news.changes
    throwIfFailed(log)
    try {
      const page: LogPage<P> | null = at === null ? null : await ask(log.read(at, call))
      if (page === null) {
        at = null
        const now = await ask(log.picture(prefix, call))
        restart = now.restart
        for await (const event of picture(now.holders, { restart, end: '' })) {
          const isEnd = event.cursor === ''
          if (isEnd) told = new Set(now.alsoLogged)
          yield isEnd ? { ...event, cursor: cursorOf(now.at) } : event
        }
        at = now.at
        continue
      }
      at = page.next
      for (const { event, at: after } of page.events) {
        const isTold = event?.kind === 'acquired' && told.delete(event.id)
        if (event?.name.startsWith(prefix) && !isTold) yield { ...event, cursor: cursorOf(after) }
        if (call.cancelled) return
      }
      if (!page.isLast) continue
      told.clear()
      await log.news.next(seen, call)
    } catch (error) {
      throwIfFailed(log)
      if (log.retry === undefined || call.cancelled || !isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
        throw error
      const { clock, everyMs } = log.retry
      await sleep(clock, everyMs, { signal: call.signal, keepsProcessAlive: true })
    }
  }
}

function throwIfFailed({ failure }: FollowedLog<unknown>): void {
  if (failure !== undefined) throw failure.error
}

/** The watchers of this process on one log, which is kept open while there are any. */
export abstract class LogWatchers<P> extends Changes implements FollowedLog<P> {
  readonly #joined = new Set<symbol>()
  readonly #reads = new Map<string, Promise<LogPage<P> | null>>()
  #failure: { readonly error: unknown; readonly isFinal: boolean } | undefined

  abstract head(call: Call): Promise<P>
  abstract picture(prefix: string, call: Call): Promise<LogPicture<P>>
  abstract cursorOf(at: P): string
  abstract positionAt(cursor: string): P | null
  /** For all watchers at this position: it is not cancelled with one of them. */
  protected abstract readFrom(at: P): Promise<LogPage<P> | null>
  /**
   * The first watcher has come: subscribe, set the timer that prolongs the log. Nothing here is awaited, and `head` opens the log, which
   * the watcher asks for next. Called again when one comes after `stopped`.
   */
  protected abstract started(): void
  /** The last one has left, or `close` was called: end what `started` began. At the engine the log stays open for `WATCHED_FOR_MS`. */
  protected abstract stopped(): void

  get news(): Changes {
    return this
  }

  get size(): number {
    return this.#joined.size
  }

  get failure(): { readonly error: unknown } | undefined {
    return this.#failure
  }

  join(): () => void {
    if (this.#failure?.isFinal) throw this.#failure.error
    const watcher = Symbol('watcher')
    this.#joined.add(watcher)
    if (this.size === 1) this.started()
    return () => {
      if (this.#joined.delete(watcher) && this.size === 0) this.#stop()
    }
  }

  /** Ends all watches with this error; the next may succeed. */
  fail(error: unknown): void {
    this.#failure ??= { error, isFinal: false }
    this.changed()
  }

  /** No watcher is served any more. */
  close(error: unknown): void {
    this.#failure = { error, isFinal: true }
    if (this.size > 0) {
      this.#joined.clear()
      this.#stop()
    }
    this.changed()
  }

  /** Watchers at the same position share a read, unless there is something new since it began. */
  read(at: P): Promise<LogPage<P> | null> {
    const key = `${this.changes} ${JSON.stringify(at)}`
    const reading = this.#reads.get(key) ?? this.readFrom(at).finally(() => this.#reads.delete(key))
    this.#reads.set(key, reading)
    return reading
  }

  #stop(): void {
    if (this.#failure?.isFinal === false) this.#failure = undefined
    this.stopped()
  }
}
