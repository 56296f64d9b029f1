/**
 * One round: the workers take turns, one of them is frozen at the worst moment and woken when another has taken over
 * and written. Everything is driven by what the workers report, nothing by how long something takes.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { type Crew, workerNames } from './crew.ts'
import type { Orders, RoundEvent } from './events.ts'
import { allLines, type Line, openLedger } from './ledger.ts'

export const ttlMs = 1_000
const entriesEach = 3
/** After so many lines the next one to write is frozen: turns have been seen by then, and there are more to come. */
const calmLines = 3
/** Only for the eye, so that the marks of the take-over and of the wake-up stand apart. */
const wakeDelayMs = 120

export interface Round {
  readonly guarded: boolean
  readonly events: readonly RoundEvent[]
  /** Lines of the ledger's file at the end. */
  readonly lines: readonly Line[]
}

export interface RoundOptions {
  readonly guarded: boolean
  /** Does not exist yet. */
  readonly folder: string
  onEvent(events: readonly RoundEvent[]): void
}

export async function runRound(crew: Crew, options: RoundOptions): Promise<Round> {
  const { guarded, folder, onEvent } = options
  mkdirSync(folder)
  const orders: Orders = {
    locks: join(folder, 'locks.db'),
    ledger: join(folder, 'ledger.db'),
    guarded,
    ttlMs,
    entries: entriesEach,
  }
  // Made before the workers come: two that change the journal of a new file at once do not wait for each other.
  openLedger(orders.ledger).close()
  const events: RoundEvent[] = []
  await new Promise<void>((resolve, reject) => {
    const record = (event: RoundEvent) => {
      events.push(event)
      onEvent(events)
    }
    crew.onFailure = reject
    new Script(crew, orders, record, resolve).begin()
  })
  return { guarded, events, lines: allLines(orders.ledger) }
}

/** The conductor's script: how it acts on which report. */
class Script {
  readonly #crew: Crew
  readonly #orders: Orders
  readonly #record: (event: RoundEvent) => void
  readonly #finish: () => void
  readonly #toBegin: string[] = [...workerNames]
  readonly #done = new Set<string>()
  #hasHolder = false
  #written = 0
  #frozen: { readonly worker: string; readonly token: bigint } | undefined
  #waking = false

  constructor(crew: Crew, orders: Orders, record: (event: RoundEvent) => void, finish: () => void) {
    this.#crew = crew
    this.#orders = orders
    this.#record = record
    this.#finish = finish
  }

  begin(): void {
    this.#crew.onReport = (event) => this.#onReport(event)
    this.#orderNext()
  }

  #onReport(event: RoundEvent): void {
    this.#record(event)
    if (event.kind === 'acquired' || (event.kind === 'waiting' && this.#hasHolder)) this.#orderNext()
    if (event.kind === 'acquired') this.#hasHolder = true
    if (event.kind === 'about-to-write') this.#answer(event.worker, BigInt(event.token))
    if (event.kind === 'written') this.#wakeIfOvertaken(event.worker, BigInt(event.token))
    if (event.kind === 'done' && this.#done.add(event.worker).size === workerNames.length) this.#finish()
  }

  /** The next one begins when the one before has its lease or is queued, so it is mostly the same one that is frozen. */
  #orderNext(): void {
    const name = this.#toBegin.shift()
    if (name !== undefined) this.#crew.order(name, this.#orders)
  }

  #answer(worker: string, token: bigint): void {
    if (this.#frozen === undefined && this.#written >= calmLines) {
      this.#frozen = { worker, token }
      this.#record(this.#crew.freeze(worker))
    }
    // A frozen one gets its answer at once, too: nothing but the freeze keeps it from writing.
    this.#crew.answer(worker)
  }

  #wakeIfOvertaken(worker: string, token: bigint): void {
    this.#written++
    const frozen = this.#frozen
    if (frozen === undefined || this.#waking || worker === frozen.worker || token <= frozen.token) return
    this.#waking = true
    setTimeout(() => this.#record(this.#crew.wake(frozen.worker)), wakeDelayMs)
  }
}
