/**
 * Who holds, as far as a watcher knows: so that the end of one whose time was up is told, which no script does on a Cluster.
 * Each is looked at when its time would be up, those of one moment together. One that is missing may have been released, and
 * the message may be in flight: it counts as expired if it is still missing a while later.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { ToldEvent } from '../../kit/watching.ts'
import type { HolderState, NameState } from '../../spi.ts'

export interface KnownHoldersOptions {
  readonly clock: Clock
  readonly tell: (event: ToldEvent) => void
  readonly inspect: (name: string) => Promise<NameState | null>
}

interface Known {
  readonly event: ToldEvent
  readonly isExclusive: boolean
  /** When it is looked at. */
  dueMs: number
  isMissing: boolean
}

/** Those that are due within it are looked at together. */
const SHORTEST_PAUSE_MS = 200
/** For a message to pass from node to node. */
const IN_FLIGHT_MS = 500
const NAMES_AT_ONCE = 100

export class KnownHolders {
  readonly #options: KnownHoldersOptions
  readonly #byName = new Map<string, Map<string, Known>>()
  /** Those whose end was told while the names in use were read. */
  #ended: Set<string> | undefined
  #timer: Timer | undefined
  #timerDueMs = 0
  #lookedAtMs = Number.NEGATIVE_INFINITY
  #isClosed = false

  constructor(options: KnownHoldersOptions) {
    this.#options = options
  }

  /** The current holders. */
  async find(pages: AsyncIterable<readonly NameState[]>): Promise<void> {
    this.#ended = new Set()
    for await (const states of pages)
      for (const { name, holders } of states)
        for (const holder of holders) if (!this.#ended.has(holder.id)) this.#addFound(name, holder)
    this.#ended = undefined
  }

  granted(event: ToldEvent, ttlMs: number, isExclusive: boolean): void {
    for (const known of this.#byName.get(event.name)?.values() ?? [])
      if (isExclusive || known.isExclusive || known.event.id === event.id) this.#over(known)
    this.#add(event, ttlMs, isExclusive)
  }

  /** Anything but a grant. */
  changed({ kind, name, id }: ToldEvent): void {
    if (kind === 'data' || kind === 'waiting') return
    this.#ended?.add(id)
    this.#remove(name, id)
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
  }

  #addFound(name: string, { id, holder, owner, token, session, mode, expiresInMs }: HolderState): void {
    // Other clients' locks are not told of, and what was granted meanwhile is known.
    if (session === '' || this.#byName.get(name)?.has(id)) return
    const event = {
      kind: 'acquired' as const,
      name,
      id,
      holder,
      ...(owner !== undefined && { owner }),
      token,
    }
    this.#add(event, expiresInMs, mode === 'exclusive')
  }

  #add(event: ToldEvent, leftMs: number, isExclusive: boolean): void {
    const { name, id } = event
    const known = {
      event,
      isExclusive,
      dueMs: this.#options.clock.monotonicMs() + leftMs + 1,
      isMissing: false,
    }
    this.#byName.set(name, (this.#byName.get(name) ?? new Map<string, Known>()).set(id, known))
    this.#arm(known.dueMs)
  }

  #remove(name: string, id: string): void {
    const holders = this.#byName.get(name)
    if (holders?.delete(id) && holders.size === 0) this.#byName.delete(name)
  }

  #over({ event, dueMs, isMissing }: Known): void {
    this.#remove(event.name, event.id)
    // Its key was deleted before its time was up.
    const isEarly = !isMissing && dueMs > this.#options.clock.monotonicMs()
    this.#options.tell({ ...event, kind: isEarly ? 'ended' : 'expired' })
  }

  #arm(dueMs: number): void {
    const { clock } = this.#options
    const atMs = Math.max(dueMs, this.#lookedAtMs + SHORTEST_PAUSE_MS)
    if (this.#isClosed || (this.#timer !== undefined && this.#timerDueMs <= atMs)) return
    this.#timer?.cancel()
    this.#timerDueMs = atMs
    this.#timer = clock.setTimer(atMs - clock.monotonicMs(), () => {
      this.#timer = undefined
      this.#lookedAtMs = clock.monotonicMs()
      this.#look().finally(() => this.#armForNext())
    })
  }

  #armForNext(): void {
    let soonestMs = Number.POSITIVE_INFINITY
    for (const holders of this.#byName.values())
      for (const { dueMs } of holders.values()) soonestMs = Math.min(soonestMs, dueMs)
    if (soonestMs !== Number.POSITIVE_INFINITY) this.#arm(soonestMs)
  }

  async #look(): Promise<void> {
    const nowMs = this.#lookedAtMs
    const due: string[] = []
    for (const [name, holders] of this.#byName)
      for (const { dueMs } of holders.values())
        if (dueMs <= nowMs) {
          due.push(name)
          break
        }
    for (let start = 0; start < due.length; start += NAMES_AT_ONCE)
      await Promise.all(due.slice(start, start + NAMES_AT_ONCE).map((name) => this.#lookAt(name, nowMs)))
  }

  async #lookAt(name: string, nowMs: number): Promise<void> {
    const { clock, inspect } = this.#options
    // A primary that does not answer is asked again.
    const state = await inspect(name).catch(() => undefined)
    if (this.#isClosed) return
    // A look at many names takes a while, so their times count from the answer.
    const answeredMs = clock.monotonicMs()
    for (const known of this.#byName.get(name)?.values() ?? []) {
      if (known.dueMs > nowMs) continue
      const { id, token } = known.event
      const found = state?.holders.find((holder) => holder.id === id && holder.token === token)
      if (state === undefined) known.dueMs = answeredMs + IN_FLIGHT_MS
      else if (found !== undefined) known.dueMs = answeredMs + found.expiresInMs + 1
      else if (known.isMissing) this.#over(known)
      else {
        known.isMissing = true
        known.dueMs = answeredMs + IN_FLIGHT_MS
      }
    }
  }
}
