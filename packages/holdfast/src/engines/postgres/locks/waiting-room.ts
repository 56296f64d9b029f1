/**
 * The waiters of this process. A grant is told by the answer to a call of this process, or by a notification. Besides,
 * waiters look by themselves: at a name where time alone may have changed something, and at all while no notifications arrive.
 */
import type { Clock } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import { Looks } from '../../../kit/looks.ts'
import { type Waiter, WaitingRoom } from '../../../kit/waiting-room.ts'
import { arrayLiteral, type Parameter } from '../client/index.ts'
import type { AnswerRow } from './batches.ts'

/** A grant as the database records it. */
export interface RecordedGrant {
  readonly token: bigint
  readonly data: string | null
}

/** `session`: the number of its row. */
export type PostgresWaiter = Waiter<'fenced', RecordedGrant> & { readonly session: number }

export interface PostgresRoomOptions {
  readonly clock: Clock
  readonly random: Random
  readonly pollMs: number
  /** Names that are due; sessions, names and attempts of the waiters that ask. */
  readonly look: (parameters: readonly Parameter[]) => Promise<readonly AnswerRow[]>
  /** Whether notifications arrive. */
  readonly isTold: () => boolean
}

/** All waiters for a name look when its holder's time is up; not all at the same moment. */
const SPREAD_MS = 3
/** A waiter that is due again at once was not settled by the last look; it is looked at again, but not in a hot loop. */
const SHORTEST_PAUSE_MS = 10

export class PostgresWaitingRoom extends WaitingRoom<PostgresWaiter, RecordedGrant> {
  readonly #options: PostgresRoomOptions
  readonly #looks: Looks

  constructor(options: PostgresRoomOptions) {
    super({ backend: 'postgres', onEmpty: () => this.#looks.stop() })
    this.#options = options
    const { clock, random, pollMs, isTold } = options
    this.#looks = new Looks({
      clock,
      random,
      pollMs,
      isTold,
      isNeeded: () => this.size > 0,
      look: (names, isForAll) => this.#look(names, isForAll),
    })
  }

  /** The waiter is queued, and time alone may change something in so many milliseconds. False if its wait is over already. */
  queued(waiter: PostgresWaiter, dueInMs: number | null): boolean {
    if (!this.enter(waiter)) return false
    if (dueInMs === null) this.#looks.expectNews()
    else this.#due(waiter.request.name, dueInMs)
    return true
  }

  /** `id`: the attempt, or its public half. */
  granted(session: number, id: string, granted: RecordedGrant): void {
    for (const waiter of this.find(id, session)) this.grant(waiter, granted)
  }

  /** News may have been missed. */
  lookAtAll(): void {
    this.#looks.lookAtAll()
  }

  override close(error: unknown): void {
    this.#looks.close()
    super.close(error)
  }

  async #look(names: ReadonlySet<string>, isForAll: boolean): Promise<void> {
    const waiters = isForAll ? this.waiters : [...names].flatMap((name) => this.of(name))
    if (waiters.length === 0) return
    const rows = await this.#options.look([
      arrayLiteral([...names].filter((name) => this.of(name).length > 0)),
      arrayLiteral(waiters.map(({ session }) => session)),
      arrayLiteral(waiters.map(({ request }) => request.name)),
      arrayLiteral(waiters.map(({ request }) => request.attempt)),
    ])
    for (const row of rows) this.#read(row)
  }

  /** See `sql/queue.ts`. */
  #read([kind, attempt, , token, data = null, ms, no]: AnswerRow): void {
    const session = Number(no)
    if (kind === 'due') {
      if (ms != null) this.#due(attempt, ms)
    } else if (kind === 'granted') this.granted(session, attempt, { token: BigInt(token ?? 0), data })
    else if (kind === 'gone') this.sessionEnded(session)
    else for (const waiter of this.find(attempt, session)) this.lost(waiter, data ?? undefined)
  }

  #due(name: string, inMs: number): void {
    this.#looks.due(name, Math.max(SHORTEST_PAUSE_MS, inMs) + this.#options.random.fraction() * SPREAD_MS)
  }
}
