/**
 * A server process around durable state: it can be frozen, and it can crash. An answer leaves only when what it
 * says has been synced; a crash loses what was not, and the answers with it.
 */
import { Journal } from './engine/journal.ts'
import type { Stream } from './random.ts'
import type { Scheduler } from './scheduler.ts'

export interface ServerOptions {
  readonly scheduler: Scheduler
  readonly syncMs: number
  readonly dice: Stream
  readonly count: (what: string) => void
}

/** Sends when the step has been synced; a crash before that loses it. */
export type Later = (send: () => void, onLost?: () => void) => void

export class Server {
  readonly journal = new Journal()
  readonly scheduler: Scheduler
  readonly #options: ServerOptions
  /** Counts the crashes: what belongs to an earlier life is not sent any more. */
  #life = 0
  #isDown = false
  #frozenUntilMs = 0
  #onNextAct: (() => void) | undefined
  #held: { readonly handle: () => void; readonly onLost: (() => void) | undefined }[] = []
  /** When it was last not able to act, for checks that bound how long something takes. */
  lastTroubleMs = Number.NEGATIVE_INFINITY

  constructor(options: ServerOptions) {
    this.#options = options
    this.scheduler = options.scheduler
  }

  get isDown(): boolean {
    return this.#isDown
  }

  get isFrozen(): boolean {
    return this.#frozenUntilMs > this.scheduler.nowMs
  }

  /** A request arrives: handled now, after the frost, or never. */
  receive(handle: () => void, onLost?: () => void): void {
    if (this.#isDown) onLost?.()
    else if (this.isFrozen) this.#held.push({ handle, onLost })
    else handle()
  }

  /** Runs one atomic step; what it sends leaves when it has been synced. */
  step<T>(body: (later: Later) => T): T {
    const { nowMs } = this.scheduler
    this.journal.settle(nowMs)
    const syncedAtMs = nowMs + this.#options.dice.between(0.2, 1) * this.#options.syncMs
    this.journal.durableAtMs = Math.max(this.journal.durableAtMs, syncedAtMs)
    const atMs = this.journal.durableAtMs
    const life = this.#life
    return body((send, onLost) =>
      this.scheduler.at(atMs, () => {
        if (life === this.#life) this.receive(send, onLost)
        else onLost?.()
      }),
    )
  }

  /** Calls `happen` a moment after the next act: mostly when it has not been synced yet. */
  onNextAct(happen: () => void): void {
    this.#onNextAct = happen
  }

  /** A grant, or a visit: something that it would hurt to forget. */
  protected acted(): void {
    const happen = this.#onNextAct
    this.#onNextAct = undefined
    if (happen === undefined) return
    const inMs = this.#options.dice.fraction() * (this.#options.syncMs + 1)
    this.scheduler.after(inMs, happen)
  }

  crash(forMs: number, onCrash: () => void, onRestart: () => void): void {
    if (this.#isDown) return
    const { nowMs } = this.scheduler
    this.#life++
    this.#isDown = true
    for (const { onLost } of this.#held) onLost?.()
    this.#held = []
    this.#frozenUntilMs = 0
    const lost = this.journal.rollBack(nowMs)
    if (lost > 0) this.#options.count('unsynced writes lost')
    onCrash()
    this.scheduler.after(forMs, () => {
      this.#isDown = false
      this.lastTroubleMs = this.scheduler.nowMs
      onRestart()
    })
  }

  freeze(forMs: number, onThaw: () => void): void {
    if (this.#isDown) return
    const untilMs = this.scheduler.nowMs + forMs
    this.#frozenUntilMs = Math.max(this.#frozenUntilMs, untilMs)
    const life = this.#life
    this.scheduler.at(untilMs, () => {
      if (life !== this.#life || this.isFrozen) return
      this.lastTroubleMs = this.scheduler.nowMs
      onThaw()
      const held = this.#held
      this.#held = []
      for (const { handle, onLost } of held) this.receive(handle, onLost)
    })
  }
}
