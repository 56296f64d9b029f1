/**
 * Events are read from etcd's own history of the keys of a namespace; a cursor is a revision and a number in it. What has been
 * compacted is answered with a gap and the current holders.
 *
 * All changes of one revision come together, so the keys beside a deleted claim tell why it ended: a mark says by force, the
 * session's key says expired. Otherwise its holder has released it.
 */
import { type Clock, sleep } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { publicIdOf } from '../../base/ids.ts'
import { type Event, methods, type WatchResponse } from '../../clients/etcd/index.ts'
import { Changes, picture, type ToldEvent, watching } from '../../kit/watching.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import type { Connection } from './connection.ts'
import { isClaim, type Keys, type ParsedKey } from './keys.ts'
import { type DataRecord, Found, FoundClaim, type MarkRecord } from './records.ts'

/** A watcher that is so far behind reads the history again later. */
const MAX_PENDING = 1_000
const HOLDERS_AT_ONCE = 2_000

/** Ends when the call is cancelled; throws when the backend is closed. `origin` tells cursors of another cluster or epoch. */
export function watch(
  connection: Connection,
  origin: string,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const join = () => new History(connection, call)
  return watching(call, join, (history) => eventsFrom(history, connection, origin, prefix, cursor, call))
}

async function* eventsFrom(
  history: History,
  connection: Connection,
  origin: string,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncGenerator<WatchEvent> {
  const cursorOf = ({ revision, number }: Position) => `${origin}:${revision}.${number}`
  const now = await history.now()
  let at = cursor === undefined ? { revision: now, number: ALL } : positionAt(origin, cursor, now)
  while (!call.cancelled) {
    const events = at === null ? null : await history.after(at)
    if (events === null) {
      const revision = await history.now()
      at = { revision, number: ALL }
      yield* picture(holders(connection, prefix, revision, call), {
        restart: `${origin}:gap`,
        end: cursorOf(at),
      })
      continue
    }
    for (const { position, told } of events) {
      at = position
      if (told?.name.startsWith(prefix)) yield { ...told, cursor: cursorOf(position) }
      if (call.cancelled) return
    }
  }
}

/** `number`: how many events of the revision were told. */
interface Position {
  readonly revision: number
  readonly number: number
}

const ALL = Number.MAX_SAFE_INTEGER

/** Null for anything that is not a cursor of ours. A revision that is yet to come is from before a restore (T75). */
function positionAt(origin: string, cursor: string, now: number): Position | null {
  const [, from, revision, number] = /^(.*):(\d{1,16})\.(\d{1,16})$/.exec(cursor) ?? []
  if (from !== origin || Number(revision) > now) return null
  return { revision: Number(revision), number: Number(number) }
}

interface Past {
  readonly position: Position
  readonly told: ToldEvent | null
}

/** One watch of all keys of the namespace, which is opened again where it was lost. */
class History {
  readonly #connection: Connection
  readonly #call: Call
  readonly #changes = new Changes()
  readonly #untie: () => void
  #pending: WatchResponse[] = []
  #stop: (() => void) | undefined
  #closed: unknown

  constructor(connection: Connection, call: Call) {
    this.#connection = connection
    this.#call = call
    connection.lifetime.begin(call)
    this.#untie = connection.lifetime.onCut(call, (error) => {
      this.#closed = error
      this.#changes.changed()
    })
  }

  async now(): Promise<number> {
    const { lifetime, client, keys } = this.#connection
    lifetime.begin(this.#call)
    const range = { key: keys.all.key, count_only: true }
    return (await client.ask(methods.range, range, this.#call)).header?.revision ?? 0
  }

  /** What comes after a position, at least something. Null: it was compacted. */
  async after(position: Position): Promise<readonly Past[] | null> {
    for (;;) {
      if (this.#closed !== undefined) throw this.#closed
      const seen = this.#changes.changes
      this.#stop ??= this.#open(position)
      const [response] = this.#pending.splice(0, 1)
      if (response === undefined) await this.#changes.next(seen, this.#call)
      else if (response.compact_revision > 0 || response.canceled) {
        this.#leave()
        return null
      } else if (response.events.length > 0) return pastOf(this.#connection.keys, response.events, position)
    }
  }

  leave(): void {
    this.#untie()
    this.#leave()
  }

  #leave(): void {
    this.#stop?.()
    this.#stop = undefined
    this.#pending = []
  }

  #open({ revision, number }: Position): () => void {
    const { watches, keys, clock, random } = this.#connection
    // They come again.
    this.#pending = []
    // The revision of a position may have more events.
    const start_revision = number === ALL ? revision + 1 : revision
    const end = watches.add(
      { ...keys.all, start_revision, prev_kv: true },
      {
        onResponse: (response) => {
          this.#pending.push(response)
          if (this.#pending.length > MAX_PENDING) this.#leave()
          this.#changes.changed()
        },
        onLost: () => {
          const pauseMs = defaults.pollMs + random.fraction() * defaults.pollJitterMs
          void again(clock, pauseMs, this.#call).then(() => {
            if (this.#stop === end) this.#stop = undefined
            this.#changes.changed()
          })
        },
      },
    )
    return end
  }
}

async function again(clock: Clock, pauseMs: number, { signal }: Call): Promise<void> {
  // A cancelled call ends by itself.
  await sleep(clock, pauseMs, { signal }).catch(() => {})
}

function pastOf(keys: Keys, events: readonly Event[], after: Position): Past[] {
  const past: Past[] = []
  for (const [revision, together] of Map.groupBy(events, ({ kv }) => kv.mod_revision)) {
    const parsed = together.map((event) => ({ event, key: keys.parse(event.kv.key) }))
    const marks = new Map<string, MarkRecord>()
    const ended = new Set<number>()
    for (const { event, key } of parsed) {
      if (key?.kind === 'm') marks.set(key.attempt, JSON.parse(event.kv.value || '{}') as MarkRecord)
      if (key?.kind === 's' && event.type === DELETED) ended.add(key.lease)
    }
    const skipped = revision === after.revision ? after.number : 0
    const told = parsed.map(({ event, key }) => (key === null ? null : tell(event, key, marks, ended)))
    for (const [index, each] of told.entries()) {
      const number = index === told.length - 1 ? ALL : index + 1
      if (index >= skipped) past.push({ position: { revision, number }, told: each })
    }
  }
  return past
}

const DELETED = 1

function tell(
  { type, kv, prev_kv }: Event,
  key: ParsedKey,
  marks: ReadonlyMap<string, MarkRecord>,
  ended: ReadonlySet<number>,
): ToldEvent | null {
  const { name, kind, attempt, lease } = key
  if (kind === 'd' && type !== DELETED) {
    const { id, holder, owner, token } = JSON.parse(kv.value) as DataRecord
    return { kind: 'data', name, id, holder, ...(owner !== undefined && { owner }), token: BigInt(token) }
  }
  const stored = type === DELETED ? prev_kv : kv
  if (!isClaim(kind) || stored === undefined) return null
  const claim = new FoundClaim(stored, kind, key)
  if (type !== DELETED) return toldOf(claim, claim.granted ? 'acquired' : 'waiting')
  if (!claim.granted) return toldOf(claim, 'gave-up')
  if (marks.get(attempt)?.reason === 'force-released') return toldOf(claim, 'force-released')
  return toldOf(claim, ended.has(lease) ? 'expired' : 'released')
}

function toldOf({ name, attempt, granted, token, record }: FoundClaim, kind: ToldEvent['kind']): ToldEvent {
  const { owner, session } = record
  const id = publicIdOf(attempt)
  const shown = { kind, name, id, holder: session.holder, token: granted ? token : null }
  return owner === undefined ? shown : { ...shown, owner }
}

/** All of one revision, in pages. */
async function* holders(
  { client, keys, lifetime }: Connection,
  prefix: string,
  revision: number,
  call: Call,
): AsyncGenerator<ToldEvent> {
  const range = keys.names(prefix)
  for (let from = range.key; ; ) {
    lifetime.begin(call)
    const page = { ...range, key: from, revision, limit: HOLDERS_AT_ONCE }
    const { kvs, more } = await client.ask(methods.range, page, call)
    for (const claim of new Found(keys, kvs, revision).claims)
      if (claim.granted) yield toldOf(claim, 'acquired')
    const last = kvs.at(-1)
    if (!more || last === undefined) return
    from = `${last.key}\0`
  }
}
