/**
 * One watch: what is new in the log since its position.
 *
 *   joined ──by itself, up to the present──▶ following ──pages of the reader──▶ following
 *   following ──too slow, or the reader found a gap──▶ joined           it goes on from its own position
 *
 * A position that the log no longer has, or that is of another log, starts with a gap and the current holders.
 */
import { picture, watching } from '../../kit/watching.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import { cursorOf, laterOf, type Position, positionAt, sees } from './log-position.ts'
import { afterEvent, type Feed, type LoggedEvent, type LogPage, type Watchers } from './watchers.ts'

/** Ends when the call is cancelled; throws when the backend is closed. */
export function watch(
  watchers: Watchers,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const join = () => {
    const feed = watchers.join()
    return { feed, leave: () => watchers.leave(feed) }
  }
  return watching(call, join, ({ feed }) => eventsFrom(watchers, feed, { prefix, cursor, call }))
}

interface Watch {
  readonly prefix: string
  readonly cursor: string | undefined
  readonly call: Call
}

async function* eventsFrom(
  watchers: Watchers,
  feed: Feed,
  { prefix, cursor, call }: Watch,
): AsyncGenerator<WatchEvent> {
  // A watcher that comes back keeps the log open before it reads, so that it reads on.
  let at =
    cursor === undefined
      ? await watchers.ask(call, () => watchers.head())
      : await watchers.ask(call, async () => {
          await watchers.keepOpen()
          return positionAt(cursor)
        })
  while (!call.cancelled) {
    watchers.restart(feed)
    if (at === null) {
      const holders = await watchers.askUntilAnswered(call, () => watchers.holders(prefix))
      yield* picture(holders.events.map(shown), {
        restart: `${holders.at.log}/gap`,
        end: cursorOf(holders.at),
      })
      at = holders.at
    }
    for (let isBehind = true; isBehind && at !== null; ) {
      const from: Position = at
      const page: LogPage | null = await watchers.askUntilAnswered(call, () => watchers.read(from))
      if (page !== null) yield* eventsOf(page, from, prefix)
      at = page?.next ?? null
      isBehind = at !== null && (!page?.isLast || !watchers.follow(feed, at))
    }
    while (at !== null && !call.cancelled) {
      const pages = feed.take()
      if (feed.isBroken) break
      if (pages.length === 0) await feed.next(call)
      for (const page of pages) {
        yield* eventsOf(page, at, prefix)
        const last = page.events.at(-1)
        if (page.isLast || last === undefined) at = { log: at.log, seen: laterOf(at.seen, page.until) }
        else at = afterEvent(at, page.until, last)
      }
    }
  }
}

/** The events of a page that were not seen before. */
function* eventsOf(page: LogPage, at: Position, prefix: string): Generator<WatchEvent> {
  for (const event of page.events) {
    if (sees(at.seen, event.xid) || !event.name.startsWith(prefix)) continue
    const isEnd = page.isLast && event === page.events.at(-1)
    const after = isEnd ? { log: at.log, seen: page.until } : afterEvent(at, page.until, event)
    yield { ...shown(event), cursor: cursorOf(after) }
  }
}

function shown({ kind, name, id, holder, owner, token }: LoggedEvent) {
  return { kind, name, id, holder, ...(owner !== null && { owner }), token }
}
