/**
 * Those of this process who wait. The server pushes every grant to the channel of the process; the room sees to the
 * rest, with one timer for each name:
 *
 *   asked ──answer──▶ granted | in line                                              [enter]
 *   in line ──push | keep-alive | look──▶ granted                                    [granted]
 *   in line ──the holder's time is up──▶ look                                        [#lookAt]   the first at that very
 *              moment, the others a little later, in case that those before them are dead
 *   in line ──a foreign client holds──▶ look again and again, as its release wakes nobody; only the first
 *   in line ──subscription was interrupted──▶ look for everybody: pushes may be missing (T19)   [lookForAll]
 *
 * A grant that was pushed counts from the waiter's last heartbeat that is known to have been applied, never from the
 * receipt of the push (T65).
 */
import type { Clock, Instant, Timer } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { publicIdOf, type Random } from '../../base/ids.ts'
import { TransientMap } from '../../base/transient-map.ts'
import { type Answer, readPush, type Told } from './answers.ts'
import type { Request } from './requests.ts'
import { Letter } from './scripts/letters.ts'

export interface Waiter {
  readonly key: string
  readonly attempt: string
  /** The attempt and its session, as stored. */
  readonly who: string
  readonly session: object
  /** When the last request was sent that is known to have prolonged its place. */
  heartbeat: Instant
  granted(grantId: string, since: Instant, data: string | undefined): void
  sessionGone(): void
  reject(error: unknown): void
}

export interface WaitingRoomOptions {
  readonly clock: Clock
  readonly random: Random
  readonly pollMs: number
  /** Looks, and prolongs nothing. */
  readonly look: (requests: readonly Request[]) => Promise<readonly Answer[]>
}

interface Queue {
  readonly waiters: Set<Waiter>
  timer: Timer | undefined
  dueMs: number
  isLooking: boolean
}

export class WaitingRoom {
  readonly #options: WaitingRoomOptions
  /** Those whose request is in flight: most of them will be granted at once, and never wait. */
  readonly #asked = new TransientMap<Waiter, true>()
  readonly #byId = new Map<string, Set<Waiter>>()
  readonly #queues = new Map<string, Queue>()

  constructor(options: WaitingRoomOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#byId.size
  }

  /** Before the request leaves: the push may be quicker than the answer. */
  ask(waiter: Waiter): void {
    this.#asked.set(waiter, true)
  }

  /** It has to wait. False if its wait is over already. */
  enter(waiter: Waiter): boolean {
    if (this.#asked.delete(waiter)) this.#add(waiter)
    return this.#isInLine(waiter)
  }

  #isInLine(waiter: Waiter): boolean {
    return this.#byId.get(publicIdOf(waiter.attempt))?.has(waiter) ?? false
  }

  #add(waiter: Waiter): void {
    const id = publicIdOf(waiter.attempt)
    this.#byId.set(id, (this.#byId.get(id) ?? new Set()).add(waiter))
    let queue = this.#queues.get(waiter.key)
    if (queue === undefined) {
      queue = { waiters: new Set(), timer: undefined, dueMs: Number.POSITIVE_INFINITY, isLooking: false }
      this.#queues.set(waiter.key, queue)
    }
    queue.waiters.add(waiter)
  }

  /** False if it waits no longer. */
  remove(waiter: Waiter): boolean {
    if (this.#asked.delete(waiter)) return true
    const id = publicIdOf(waiter.attempt)
    const beside = this.#byId.get(id)
    if (!beside?.delete(waiter)) return false
    if (beside.size === 0) this.#byId.delete(id)
    const queue = this.#queues.get(waiter.key)
    queue?.waiters.delete(waiter)
    if (queue?.waiters.size === 0) {
      queue.timer?.cancel()
      this.#queues.delete(waiter.key)
    }
    return true
  }

  told(waiter: Waiter, told: Told): void {
    if (this.#isInLine(waiter)) this.#lookAt(waiter.key, this.#delayMs(told))
  }

  receive(message: string): void {
    const push = readPush(message)
    if (push === null) return
    for (const waiter of [...(this.#byId.get(push.id) ?? this.#askedWith(push.id))]) {
      if (push.kind === 'granted') this.#grant(waiter, push.grantId, waiter.heartbeat, push.data)
      else if (this.enter(waiter)) this.told(waiter, push.told)
    }
  }

  /** Those in line of a session with this attempt. */
  inLine(session: object, attempt: string): Waiter[] {
    const sameId = [...(this.#byId.get(publicIdOf(attempt)) ?? [])]
    return sameId.filter((waiter) => waiter.session === session && waiter.attempt === attempt)
  }

  /** Those of a session with this attempt, in line or not yet. */
  find(session: object, attempt: string): Waiter[] {
    const asked = [...this.#asked.keys()].filter(
      (waiter) => waiter.session === session && waiter.attempt === attempt,
    )
    return [...asked, ...this.inLine(session, attempt)]
  }

  /** All of a session, in line or not yet. */
  ofSession(session: object): Waiter[] {
    return [...this.#asked.keys(), ...this.#everybodyInLine()].filter((waiter) => waiter.session === session)
  }

  #everybodyInLine(): Waiter[] {
    return [...this.#byId.values()].flatMap((waiters) => [...waiters])
  }

  /** The push has overtaken the answer: that is rare, so they are not kept by their ids. */
  #askedWith(id: string): Waiter[] {
    return [...this.#asked.keys()].filter((waiter) => publicIdOf(waiter.attempt) === id)
  }

  granted(waiter: Waiter, grantId: string, since: Instant, data: string | undefined): void {
    this.#grant(waiter, grantId, since, data)
  }

  /** Pushes may have been missed. */
  lookForAll(): void {
    const waiters = this.#everybodyInLine()
    if (waiters.length > 0) this.#look(waiters).catch(() => this.#soon(waiters))
  }

  close(error: unknown): void {
    for (const waiter of [...this.#asked.keys(), ...this.#everybodyInLine()])
      if (this.remove(waiter)) waiter.reject(error)
  }

  #grant(waiter: Waiter, grantId: string, since: Instant, data: string | undefined): void {
    if (this.remove(waiter)) waiter.granted(grantId, since, data)
  }

  /** Whoever is not the first leaves it to the first to look in time. */
  #delayMs({ isFirst, dueMs, isForeign }: Told): number {
    const { pollMs, random } = this.#options
    const pauseMs = pollMs * (1 + random.fraction())
    if (isFirst && isForeign) return dueMs < 0 ? pauseMs : Math.min(pauseMs, dueMs + 1)
    // Redis counts a key as gone when its time has passed, not when it has come.
    if (isFirst) return dueMs + 1
    return (dueMs < 0 ? UNKNOWN_MS : dueMs) + pauseMs
  }

  #lookAt(key: string, delayMs: number): void {
    const queue = this.#queues.get(key)
    if (queue === undefined) return
    const { clock } = this.#options
    const dueMs = clock.monotonicMs() + delayMs
    if (queue.timer !== undefined && queue.dueMs <= dueMs) return
    queue.timer?.cancel()
    queue.dueMs = dueMs
    queue.timer = clock.setTimer(delayMs, () => {
      queue.timer = undefined
      const [oldest] = queue.waiters
      if (oldest === undefined || queue.isLooking) return
      queue.isLooking = true
      this.#look([oldest])
        .catch(() => this.#soon([oldest]))
        .finally(() => {
          queue.isLooking = false
        })
    })
  }

  /** What could not be looked up now is looked up soon. */
  #soon(waiters: readonly Waiter[]): void {
    const { pollMs, random } = this.#options
    for (const key of new Set(waiters.map((waiter) => waiter.key)))
      this.#lookAt(key, pollMs * (1 + random.fraction()))
  }

  /** It prolongs nothing, so a grant that it finds counts from the last heartbeat as well. */
  async #look(waiters: readonly Waiter[]): Promise<void> {
    const answers = await this.#options.look(
      waiters.map(({ key, who }) => ({ key, letter: Letter.look, who, args: [] })),
    )
    for (const [index, waiter] of waiters.entries()) {
      const answer = answers[index]
      const queue = this.#queues.get(waiter.key)
      if (queue !== undefined) queue.isLooking = false
      if (answer?.kind === 'granted') this.#grant(waiter, answer.grantId, waiter.heartbeat, answer.data)
      else if (answer?.kind === 'waiting') this.told(waiter, answer.told)
      // A look that failed says nothing of the place; its heartbeats decide.
      else if (answer?.kind !== 'failed' && this.remove(waiter)) waiter.reject(placeLost())
      // The oldest has left; somebody else of this process may still wait for the name.
      if (answer?.kind !== 'waiting') this.#soon([waiter])
    }
  }
}

/** For a name whose holder's end nobody knows, and that somebody else watches. */
const UNKNOWN_MS = 5_000

function placeLost(): BackendUnavailableError {
  return new BackendUnavailableError('redis', 'the place in line is gone', 'not-applied')
}
