/**
 * `watch` over an engine that keeps no history: what is seen is told, and nothing can be read later. The watchers of a process share one
 * source. Whatever may have been missed is told as a gap with the current holders, and every cursor leads to one.
 *
 *   idle ──first watcher──▶ opening ──▶ open ──last watcher leaves──▶ idle
 *   opening ──no member answers──▶ opening, after a growing pause
 *   open ──lost──▶ opening ──▶ open: a gap for everybody
 *   open ──missed──▶ open: a gap, at most one a second
 */
import { type Clock, sleep, type Timer } from '../base/clock.ts'
import { isHoldfastError } from '../base/errors.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type { Call, WatchEvent } from '../spi.ts'
import type { Lifetime } from './lifetime.ts'
import { type ToldEvent, watching } from './watching.ts'

const CURSOR = 'gap'
const GAP_PAUSE_MS = 1_000
const PAUSES = { firstMs: 50, longestMs: 5_000 }
/** A reader that is farther behind is told a gap instead. */
const MAX_PENDING = 10_000

export interface LiveSource {
  /** Resolves when everything that happens from now on will be seen, and the holders are known. */
  open(call: Call): Promise<void>
  close(): void
  /** As of what has been told. */
  holders(): readonly ToldEvent[]
}

export class LiveEvents {
  readonly #lifetime: Lifetime
  readonly #clock: Clock
  readonly #source: LiveSource
  readonly #listeners = new Set<Listener>()
  #opening: Promise<void> | undefined
  /** One opening at a time: what two see would be told twice. */
  #isOpening = false
  #gap: Timer | undefined

  constructor(lifetime: Lifetime, clock: Clock, source: LiveSource) {
    this.#lifetime = lifetime
    this.#clock = clock
    this.#source = source
  }

  /** As `Backend.watch`. */
  watch(prefix: string, cursor: string | undefined, call: Call): AsyncIterable<WatchEvent> {
    const join = () => {
      this.#lifetime.begin(call)
      const listener = new Listener(prefix)
      const untie = this.#lifetime.onCut(call, (error) => listener.end({ error }))
      const leave = () => {
        untie()
        listener.end({})
        this.#leave(listener)
      }
      return { listener, leave }
    }
    return watching(call, join, ({ listener }) => this.#told(listener, cursor, call))
  }

  tell(event: ToldEvent): void {
    for (const listener of this.#listeners) {
      listener.tell([event])
      if (listener.isBehind) listener.restart(this.#source.holders())
    }
  }

  /** Something has happened that cannot be told any more. */
  missed(): void {
    this.#gap ??= this.#clock.setTimer(GAP_PAUSE_MS, () => this.#tellGap())
  }

  /** The source sees nothing any more. */
  lost(): void {
    if (this.#opening === undefined) return
    this.#opening = this.#open()
    this.#opening.then(
      () => this.#tellGap(),
      (error: unknown) => {
        for (const listener of this.#listeners) listener.end({ error })
      },
    )
  }

  async *#told(listener: Listener, cursor: string | undefined, call: Call): AsyncGenerator<WatchEvent> {
    this.#listeners.add(listener)
    this.#opening ??= this.#open()
    await this.#lifetime.untilCut(this.#opening, call)
    listener.begin(cursor === undefined ? undefined : this.#source.holders())
    yield* listener.events()
  }

  #leave(listener: Listener): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size === 0 && !this.#isOpening) this.#close()
  }

  #close(): void {
    this.#opening = undefined
    this.#gap?.cancel()
    this.#gap = undefined
    this.#source.close()
  }

  /** Until a member answers, or nobody listens any more. */
  async #open(): Promise<void> {
    this.#isOpening = true
    try {
      for (let failures = 0; this.#listeners.size > 0; failures++) {
        try {
          return await this.#lifetime.inBackground((call) => this.#source.open(call))
        } catch (error) {
          if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
          await sleep(this.#clock, growingPauseMs(failures, PAUSES))
        }
      }
    } finally {
      this.#isOpening = false
      if (this.#listeners.size === 0) this.#close()
    }
  }

  #tellGap(): void {
    this.#gap?.cancel()
    this.#gap = undefined
    const holders = this.#source.holders()
    for (const listener of this.#listeners) listener.tell([{ kind: 'gap' }, ...holders])
  }
}

type Told = ToldEvent | { readonly kind: 'gap' }

/** One watch. It is told nothing before it begins. */
class Listener {
  readonly #prefix: string
  #pending: Told[] = []
  #hasBegun = false
  #end: { readonly error?: unknown } | undefined
  #wake: () => void = () => {}

  constructor(prefix: string) {
    this.#prefix = prefix
  }

  get isBehind(): boolean {
    return this.#pending.length > MAX_PENDING
  }

  /** `holders`: after a gap. */
  begin(holders: readonly ToldEvent[] | undefined): void {
    this.#hasBegun = true
    if (holders !== undefined) this.restart(holders)
  }

  tell(events: readonly Told[]): void {
    if (!this.#hasBegun) return
    for (const event of events)
      if (event.kind === 'gap' || event.name.startsWith(this.#prefix)) this.#pending.push(event)
    this.#wake()
  }

  restart(holders: readonly ToldEvent[]): void {
    this.#pending = []
    this.tell([{ kind: 'gap' }, ...holders])
  }

  /** The first word counts. Without an error it ends quietly. */
  end(end: { readonly error?: unknown }): void {
    this.#end ??= end
    this.#wake()
  }

  async *events(): AsyncGenerator<WatchEvent> {
    while (this.#end === undefined) {
      for (const event of this.#pending.splice(0)) yield { ...event, cursor: CURSOR }
      if (this.#pending.length > 0 || this.#end !== undefined) continue
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    if (this.#end.error !== undefined) throw this.#end.error
  }
}
