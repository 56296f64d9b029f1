/**
 * Numbers for calls, so that an effect that arrives more than once is applied once.
 *
 * What may go wrong: a client library sends everything again that was not answered when its connection broke, in one go,
 * however many calls that were (ioredis does by default). The server may have run none, some or all of them, and may run
 * the first copies even after the second ones, because it still reads from the broken connection. A call that was given up
 * may lie in the client's queue, or in a paused server, for hours. A script that the server does not know is sent once
 * more in full, behind calls that were made later. Other guards and processes make calls for the same fence meanwhile.
 *
 * So each guard object has a *series* of its own, and numbers its calls in it:
 *
 *   open ──▶ the server names the series
 *   a call carries its number, and the lowest number of its series that is still in flight
 *   the server keeps what came of each number from the lowest on; smaller ones are settled, and refused
 *   a series that the server does not know is refused as well
 *
 * No copy is ever mistaken for a new call, whatever its age: its number is kept, or below the lowest, or its series is gone,
 * and neither a number nor the name of a series comes twice. Nothing grows: the server keeps as many numbers as calls are
 * in flight, and closes a series after an hour, when the guard has long been using another.
 *
 * A server that has lost its data (FLUSHALL, a restart without persistence) knows no series. It has lost whatever an
 * earlier copy had done as well, so the call is made again in a new series. To tell this from a series that was closed, the
 * name of a series begins with a random text that stays the same for as long as the server keeps the hash `calls`.
 */
import { type Clock, elapsedMs, type Instant, instantOf } from '../../base/clock.ts'

/** How long the server keeps a series. */
export const SERIES_KEPT_MS = 3_600_000
/** How long it is used for: far shorter, so that no call is in flight when it is closed. */
const SERIES_USED_MS = SERIES_KEPT_MS / 4
/** Of one series. The server goes through what it keeps of a series at every call. */
const MOST_IN_FLIGHT = 200

/** A number in a series, until it is settled. */
export interface Call {
  readonly series: string
  readonly number: number
  /** Of those that were in flight when this one began: this one, or an earlier one. */
  readonly lowest: number
  /** It has been answered, or given up: from the next call on, the server refuses it. */
  settle(): void
}

export class Calls {
  readonly #open: () => Promise<string>
  readonly #clock: Clock
  /** More than one if more calls are in flight than fit into one. */
  #series: Series[] = []
  #opening: Promise<void> | null = null

  /** `open` has the server name a new series. */
  constructor(open: () => Promise<string>, clock: Clock) {
    this.#open = open
    this.#clock = clock
  }

  /** Has a series opened if there is none, so that it need not be waited for later. */
  async prepare(): Promise<void> {
    if (this.#usable() === undefined) await this.#openAnother()
  }

  async begin(): Promise<Call> {
    for (;;) {
      const series = this.#usable()
      if (series !== undefined) return series.begin()
      await this.#openAnother()
    }
  }

  /** The server does not know this series any more: nor the others, most likely. */
  leave(series: string): void {
    if (this.#series.some(({ name }) => name === series)) this.#series = []
  }

  #usable(): Series | undefined {
    const [oldest] = this.#series
    if (oldest?.isOld) this.#series = this.#series.filter(({ isOld }) => !isOld)
    return this.#series.find(({ hasRoom }) => hasRoom)
  }

  /** One at a time, for all who wait. */
  #openAnother(): Promise<void> {
    const openedAt = instantOf(this.#clock)
    this.#opening ??= this.#open()
      .then((name) => void this.#series.push(new Series(name, openedAt, this.#clock)))
      .finally(() => {
        this.#opening = null
      })
    return this.#opening
  }
}

class Series {
  readonly name: string
  readonly #openedAt: Instant
  readonly #clock: Clock
  /** In the order of their numbers. */
  readonly #inFlight = new Set<number>()
  #last = 0

  constructor(name: string, openedAt: Instant, clock: Clock) {
    this.name = name
    this.#openedAt = openedAt
    this.#clock = clock
  }

  get isOld(): boolean {
    return elapsedMs(this.#clock, this.#openedAt) >= SERIES_USED_MS
  }

  get hasRoom(): boolean {
    return this.#last - this.#lowest < MOST_IN_FLIGHT
  }

  begin(): Call {
    const number = ++this.#last
    this.#inFlight.add(number)
    return {
      series: this.name,
      number,
      lowest: this.#lowest,
      settle: () => void this.#inFlight.delete(number),
    }
  }

  get #lowest(): number {
    const [lowest = this.#last + 1] = this.#inFlight
    return lowest
  }
}
