/**
 * The waiters of this process: attempts that wait for their grant. The engine has the queue; here are those who are answered.
 *
 *   asked ──granted at once, refused, or failed──▶ over          [grant, settle, fail]
 *   asked ──it has to wait──▶ waiting                            [enter]
 *   asked | waiting ──pushed, or found at a look──▶ granted      [grant]
 *   asked | waiting ──its session ends──▶ session-gone           [sessionEnded]
 *   asked | waiting ──abandoned, or lost at the engine──▶ rejected   [fail]
 *   waiting ──cancelled──▶ rejected: unknown
 *
 * A waiter is here before its request leaves, because the news of its grant may overtake the answer. Most are granted at
 * once and never enter.
 */
import { BackendUnavailableError } from '../base/errors.ts'
import { publicIdOf } from '../base/ids.ts'
import { TransientMap } from '../base/transient-map.ts'
import type { AcquireRequest, Attempt, Claim, EnqueueResult, Fencing } from '../spi.ts'
import { cancelledCall } from './backend-kit.ts'

/** One `enqueue`. `News` is what the engine tells of a grant. */
export interface Waiter<F extends Fencing = Fencing, News = unknown> {
  readonly request: AcquireRequest
  readonly attempt: Attempt<F>
  /** The key that tells the sessions of this process apart. */
  readonly session: unknown
  /** Makes the session's result of what the engine told. */
  granted(news: News): EnqueueResult<F>
}

export interface WaitingRoomOptions {
  /** The backend's name, for errors. */
  readonly backend: string
  /** The last waiter has left. */
  readonly onEmpty?: () => void
}

export class WaitingRoom<W extends Waiter<Fencing, News>, News> {
  readonly #options: WaitingRoomOptions
  /** Waiters whose requests are in flight. Few are looked for here, so they are not kept by id. */
  readonly #asked = new TransientMap<W, true>()
  /** Each with the way to stop listening to its cancellation. */
  readonly #entered = new TransientMap<W, () => void>()
  /** By the public id of the attempt; nearly always one each. Waiters of a busy name come and go for as long as it is busy. */
  readonly #byId = new TransientMap<string, TransientMap<W, true>>()
  readonly #byName = new TransientMap<string, TransientMap<W, true>>()

  constructor(options: WaitingRoomOptions) {
    this.#options = options
  }

  /** How many wait. Those that are only asked for do not count. */
  get size(): number {
    return this.#entered.size
  }

  /** All that wait, in the order in which they came. */
  get waiters(): readonly W[] {
    return [...this.#entered.keys()]
  }

  /** Notes a waiter before its request leaves. */
  ask(waiter: W): void {
    this.#asked.set(waiter, true)
  }

  /** The waiter has to wait. False if its wait is over already. */
  enter(waiter: W): boolean {
    if (!this.#asked.delete(waiter)) return this.isWaiting(waiter)
    const { attempt, request } = waiter
    addTo(this.#byId, publicIdOf(request.attempt), waiter)
    addTo(this.#byName, request.name, waiter)
    this.#entered.set(waiter, () => {})
    const untie = attempt.onCancel(() =>
      this.fail(waiter, cancelledCall(this.#options.backend, attempt.signal, 'unknown')),
    )
    if (!this.isWaiting(waiter)) return false
    this.#entered.set(waiter, untie)
    return true
  }

  isWaiting(waiter: W): boolean {
    return this.#entered.has(waiter)
  }

  /** Ends its wait. False if it is over already. */
  leave(waiter: W): boolean {
    if (this.#asked.delete(waiter)) return true
    const untie = this.#entered.get(waiter)
    if (untie === undefined) return false
    this.#entered.delete(waiter)
    untie()
    removeFrom(this.#byId, publicIdOf(waiter.request.attempt), waiter)
    removeFrom(this.#byName, waiter.request.name, waiter)
    if (this.#entered.size === 0) this.#options.onEmpty?.()
    return true
  }

  /** All that wait for a name, in the order in which they came. */
  of(name: string): readonly W[] {
    return [...(this.#byName.get(name)?.keys() ?? [])]
  }

  /** Waiters with this attempt, or with this public id; also those that are only asked for. */
  find(id: string, session?: unknown): readonly W[] {
    const publicId = publicIdOf(id)
    const found = [...(this.#byId.get(publicId)?.keys() ?? [])]
    if (this.#asked.size > 0)
      for (const waiter of this.#asked.keys())
        if (publicIdOf(waiter.request.attempt) === publicId) found.push(waiter)
    return session === undefined ? found : found.filter((waiter) => waiter.session === session)
  }

  /** Without those whose request is in flight: the engine may not know them yet, and must not call them lost. */
  withoutAsked(claims: readonly Claim[]): readonly Claim[] {
    if (this.#asked.size === 0) return claims
    const asked = new Set<string>()
    for (const { request } of this.#asked.keys()) asked.add(request.attempt)
    return claims.filter(({ attempt }) => !asked.has(attempt))
  }

  /** News that cannot be understood fails the waiter, and not whoever brought it: that may be a listener of the client. */
  grant(waiter: W, news: News): void {
    if (!this.leave(waiter)) return
    let result: EnqueueResult
    try {
      result = waiter.granted(news)
    } catch (error) {
      waiter.attempt.fail(error)
      return
    }
    waiter.attempt.answer(result)
  }

  /** The engine has granted it. False if no waiter of this process was meant. */
  handOver(session: unknown, attempt: string, news: News): boolean {
    let isMeant = false
    for (const waiter of this.find(attempt, session)) {
      if (waiter.request.attempt !== attempt) continue
      isMeant = true
      this.grant(waiter, news)
    }
    return isMeant
  }

  settle(waiter: W, result: EnqueueResult): void {
    if (this.leave(waiter)) waiter.attempt.answer(result)
  }

  fail(waiter: W, error: unknown): void {
    if (this.leave(waiter)) waiter.attempt.fail(error)
  }

  /** The attempt holds nothing and waits for nothing any more. */
  abandoned(session: unknown, attempt: string): void {
    for (const waiter of this.find(attempt, session))
      if (waiter.request.attempt === attempt) this.fail(waiter, this.#notApplied('the attempt was abandoned'))
  }

  /**
   * The engine no longer has it in its queue, as a read says that began after the waiter had entered: the caller drops older news.
   * News of a grant that comes later is dropped here.
   */
  lost(waiter: W, why = 'deleted'): void {
    this.fail(waiter, this.#notApplied(`the position in the queue is gone (${why})`))
  }

  sessionEnded(session: unknown): void {
    for (const waiter of this.#all())
      if (waiter.session === session) this.settle(waiter, { kind: 'session-gone' })
  }

  close(error: unknown): void {
    for (const waiter of this.#all()) this.fail(waiter, error)
  }

  #all(): readonly W[] {
    return [...this.#asked.keys(), ...this.#entered.keys()]
  }

  #notApplied(what: string): BackendUnavailableError {
    return new BackendUnavailableError(this.#options.backend, what, 'not-applied')
  }
}

function addTo<W>(sets: TransientMap<string, TransientMap<W, true>>, key: string, waiter: W): void {
  const set = sets.get(key) ?? new TransientMap<W, true>()
  set.set(waiter, true)
  sets.set(key, set)
}

function removeFrom<W>(sets: TransientMap<string, TransientMap<W, true>>, key: string, waiter: W): void {
  const set = sets.get(key)
  set?.delete(waiter)
  if (set?.size === 0) sets.delete(key)
}
