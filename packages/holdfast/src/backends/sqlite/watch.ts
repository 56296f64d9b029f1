/**
 * Watching reads the file's log of events from a position on, at the watcher's own pace. Changes of this process are
 * told by its commits, changes of other processes are found by the poll that also serves waiters. A position that the log
 * no longer has, or that is of another log, starts with a gap and the current holders.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import type { Connection } from './connection.ts'
import { WATCHED_FOR_MS } from './event-log.ts'
import { AFTER_ALL } from './looking.ts'
import type { FilePoll, Onlooker } from './poll.ts'
import type { EventRow, Statements, WatchedHolder } from './statements.ts'

const PROLONGED_EVERY_MS = WATCHED_FOR_MS / 3
const EVENTS_AT_ONCE = 256
const HOLDERS_AT_ONCE = 1_000

export interface WatchersOptions {
  readonly clock: Clock
  readonly poll: FilePoll
  /** Opens the log in a transaction, or prolongs it. */
  readonly openLog: () => Promise<void>
}

/** The watchers of this process: keeps the log open for them, and tells them when to read it. */
export class Watchers implements Onlooker {
  readonly #options: WatchersOptions
  readonly #joined = new Set<symbol>()
  readonly #sleeping = new Set<() => void>()
  #changes = 0
  #prolonging: Timer | undefined

  constructor(options: WatchersOptions) {
    this.#options = options
    options.poll.add(this)
  }

  get isIdle(): boolean {
    return this.#joined.size === 0
  }

  /** Grows with everything that may be new in the log. */
  get changes(): number {
    return this.#changes
  }

  /** Call the result to leave. */
  join(): () => void {
    const watcher = Symbol('watcher')
    this.#joined.add(watcher)
    this.#options.poll.arm()
    if (this.#joined.size === 1) this.#prolongLater()
    return () => {
      if (this.#joined.delete(watcher) && this.isIdle) this.#rest()
    }
  }

  /** Wakes them, so that they find out. */
  close(): void {
    this.#joined.clear()
    this.#rest()
    this.changed()
  }

  #rest(): void {
    this.#prolonging?.cancel()
    this.#options.poll.arm()
  }

  look(): boolean {
    this.changed()
    return true
  }

  changed(): void {
    this.#changes++
    for (const wake of [...this.#sleeping]) wake()
  }

  /** Until there are more changes than `seen`, or the call is cancelled. */
  next(seen: number, call: Call): Promise<void> {
    if (this.#changes !== seen) return Promise.resolve()
    return new Promise((resolve) => {
      const wake = () => {
        this.#sleeping.delete(wake)
        untie()
        resolve()
      }
      this.#sleeping.add(wake)
      const untie = call.onCancel(wake)
    })
  }

  /** Without it the log would be closed in the end, and the watchers would get a gap. So a failure may wait for the next. */
  #prolongLater(): void {
    this.#prolonging = this.#options.clock.setTimer(PROLONGED_EVERY_MS, () => {
      this.#options.openLog().catch(() => {})
      this.#prolongLater()
    })
  }
}

/** Ends when the call is cancelled; throws when the connection is closed. */
export function watch(
  connection: Connection,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  return {
    async *[Symbol.asyncIterator]() {
      const leave = connection.watchers.join()
      // A consumer that does not ask for the next event any more would otherwise stay joined.
      const untie = call.onCancel(leave)
      try {
        yield* eventsFrom(connection, prefix, cursor, call)
      } catch (error) {
        if (!call.cancelled) throw error
      } finally {
        untie()
        leave()
      }
    },
  }
}

async function* eventsFrom(
  connection: Connection,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncGenerator<WatchEvent> {
  const { watchers, namespace } = connection
  let at = cursor === undefined ? await headOf(connection, call) : positionAt(cursor)
  // A watcher that comes back keeps the log open before it reads, so that it reads on.
  if (cursor !== undefined) await connection.openLog(call)
  while (!call.cancelled) {
    const seen = watchers.changes
    const events = at === null ? null : await connection.read(call, readFrom(at))
    if (events === null) {
      const head = await headOf(connection, call)
      yield* currentHolders(connection, prefix, head, call)
      at = head
      continue
    }
    for (const event of events) {
      at = { logId: event.log_id, last: event.no }
      const { name } = event
      if (event.namespace === namespace && name.startsWith(prefix))
        yield { ...shown(event), cursor: cursorOf(at) }
      if (call.cancelled) return
    }
    if (events.length < EVENTS_AT_ONCE) await watchers.next(seen, call)
  }
}

interface Position {
  readonly logId: string
  /** The number of the last event that was seen; 0 before the first. */
  readonly last: bigint
}

/** The end of the log, which is open from here on. */
async function headOf(
  connection: Connection,
  call: Call,
): Promise<Position & { readonly nextToken: bigint }> {
  for (;;) {
    await connection.openLog(call)
    const head = await connection.read(call, (sql) => sql.logHead.first())
    // It is closed again only if this process was stopped for a minute right here.
    if (head?.log_id != null) return { logId: head.log_id, last: head.last, nextToken: head.next_token }
  }
}

/** Null: the log does not have what comes after it. */
function readFrom({ logId, last }: Position): (sql: Statements) => readonly EventRow[] | null {
  return (sql) => {
    // The event at the position is read too: while it is there, none after it is missing.
    const rows = sql.eventsFrom.all(last, EVENTS_AT_ONCE + 1)
    const [first] = rows
    if (first?.log_id !== logId) return null
    if (first.no === null) return last === 0n ? [] : null
    const events = rows.filter((row): row is EventRow => row.no !== null)
    if (last === 0n) return first.no === 1n ? events.slice(0, EVENTS_AT_ONCE) : null
    return first.no === last ? events.slice(1) : null
  }
}

/**
 * Read in pages. Those granted after the position was taken are left out, because the log tells of them; the tokens of
 * one file increase in the order of grants.
 */
async function* currentHolders(
  connection: Connection,
  prefix: string,
  head: Position & { readonly nextToken: bigint },
  call: Call,
): AsyncGenerator<WatchEvent> {
  // A watcher that stops in the middle of this picture must get all of it again: only its end is a place to go on from.
  let before: { kind: 'gap' } | ReturnType<typeof shown> = { kind: 'gap' }
  for await (const holder of holdersOf(connection, prefix, head.nextToken, call)) {
    yield { ...before, cursor: `${head.logId}:gap` }
    before = shown({ kind: 'acquired', ...holder })
  }
  yield { ...before, cursor: cursorOf(head) }
}

async function* holdersOf(
  connection: Connection,
  prefix: string,
  nextToken: bigint,
  call: Call,
): AsyncGenerator<WatchedHolder> {
  const { namespace } = connection
  const end = `${prefix}${AFTER_ALL}`
  for (let from = { name: prefix, attempt: '' }; ; ) {
    const page = await connection.read(call, (sql, nowMs) =>
      sql.holdersAfter.all(namespace, from.name, from.attempt, end, nextToken, nowMs, HOLDERS_AT_ONCE),
    )
    yield* page
    const last = page.at(-1)
    if (last === undefined || page.length < HOLDERS_AT_ONCE) return
    from = last
  }
}

function shown({
  kind,
  name,
  id,
  holder,
  owner,
  token,
}: Pick<EventRow, 'kind'> & Omit<WatchedHolder, 'attempt'>) {
  return { kind, name, id, holder, ...(owner !== null && { owner }), token }
}

function cursorOf({ logId, last }: Position): string {
  return `${logId}:${last}`
}

/** Null for anything that was not handed out as a place to go on from. */
function positionAt(cursor: string): Position | null {
  const [, logId, last] = /^([\w-]{22}):(\d{1,15})$/.exec(cursor) ?? []
  return logId === undefined || last === undefined ? null : { logId, last: BigInt(last) }
}
