/**
 * The waiters of this process. The server pushes every grant to the channel of the process, and tells a waiter when it becomes
 * the first. For the rest they look by themselves, one waiter for each name:
 *
 * - when the holder's time is over: the first waiter at that moment, others a little later, in case the first is dead;
 * - again and again while a foreign client holds, because its release is not pushed; only the first waiter;
 * - all of them when the subscription was interrupted, because pushes may be missing (T19, lost wake-ups).
 *
 * A grant that was pushed counts from the waiter's last heartbeat that is known to have been applied, never from the
 * receipt of the push (T65, belief from the push).
 */
import type { Clock, Instant } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import { Looks } from '../../../kit/looks.ts'
import { type Waiter, WaitingRoom } from '../../../kit/waiting-room.ts'
import type { Fencing } from '../../../spi.ts'
import { type Outlook, readPush, type ScriptAnswer } from './answers.ts'
import { type ClaimKey, lookAt, type Request } from './requests.ts'
import type { OnAnswered } from './sender.ts'

export interface RecordedGrant {
  readonly grantId: string
  readonly since: Instant
  readonly data?: string | undefined
}

export interface RedisWaiter extends Waiter<Fencing, RecordedGrant> {
  readonly claim: ClaimKey
  /** When the last request was sent that is known to have prolonged its position. */
  heartbeat: Instant
}

export interface RedisRoomOptions {
  readonly clock: Clock
  readonly random: Random
  readonly pollMs: number
  readonly look: (
    requests: readonly Request[],
    onAnswered: OnAnswered,
  ) => Promise<readonly (ScriptAnswer | Error)[]>
}

/** For a name whose holder's end is not known, while another process has the first waiter. */
const UNKNOWN_MS = 5_000

export class RedisWaitingRoom extends WaitingRoom<RedisWaiter, RecordedGrant> {
  readonly #look: RedisRoomOptions['look']
  readonly #looks: Looks

  constructor({ look, ...options }: RedisRoomOptions) {
    super({ backend: 'redis', onEmpty: () => this.#looks.stop() })
    this.#look = look
    this.#looks = new Looks({
      ...options,
      isNeeded: () => this.size > 0,
      // Answers are not waited for: on a Cluster one primary may be silent, and must not delay looks at the others.
      look: async (names, isForAll) =>
        this.#lookFor(isForAll ? this.waiters : [...names].flatMap((name) => this.of(name).slice(0, 1))),
    })
  }

  /** Notes a waiter's position and when it is due, as it was told. */
  expect(waiter: RedisWaiter, { isFirst, dueMs, isForeign }: Outlook): void {
    if (!this.isWaiting(waiter)) return
    const pollMs = this.#looks.pollInMs()
    // Redis counts a key as gone when its time has passed, not when it has come.
    let inMs = dueMs + 1
    if (isFirst && isForeign) inMs = dueMs < 0 ? pollMs : Math.min(pollMs, inMs)
    else if (!isFirst) inMs = (dueMs < 0 ? UNKNOWN_MS : dueMs) + pollMs
    this.#looks.due(waiter.request.name, inMs)
  }

  receive(message: string): void {
    const push = readPush(message)
    if (push === null) return
    const found = this.find(push.id)
    const queued = found.filter((waiter) => this.isWaiting(waiter))
    // If the same attempt was asked for twice, the push is for the request that is queued: the other may not be applied yet.
    for (const waiter of queued.length > 0 ? queued : found) {
      if (push.kind === 'granted') this.grant(waiter, { ...push, since: waiter.heartbeat })
      else if (this.enter(waiter)) this.expect(waiter, push.outlook)
    }
  }

  /** Pushes may have been missed. */
  lookForAll(): void {
    this.#looks.lookAtAll()
  }

  override close(error: unknown): void {
    this.#looks.close()
    super.close(error)
  }

  /** A look prolongs nothing, so a grant that it finds counts from the last heartbeat as well. */
  #lookFor(waiters: readonly RedisWaiter[]): void {
    if (waiters.length === 0) return
    const requests = waiters.map(({ claim }) => lookAt(claim))
    const onAnswered: OnAnswered = (indexes, answers) => {
      for (const index of indexes) this.#found(waiters[index] as RedisWaiter, answers[index])
    }
    this.#look(requests, onAnswered).then(
      // A look that failed says nothing of the position.
      (answers) => this.#lookSoon(waiters.filter((_, index) => answers[index] instanceof Error)),
      () => this.#lookSoon(waiters),
    )
  }

  #found(waiter: RedisWaiter, answer: ScriptAnswer | Error | undefined): void {
    if (answer === undefined || answer instanceof Error) return
    if (answer.kind === 'waiting') {
      this.expect(waiter, answer.outlook)
      return
    }
    if (answer.kind === 'granted') this.grant(waiter, { ...answer, since: waiter.heartbeat })
    else this.lost(waiter)
    // There may be other waiters for this name.
    this.#lookSoon([waiter])
  }

  #lookSoon(waiters: readonly RedisWaiter[]): void {
    for (const { request } of waiters) this.#looks.due(request.name, this.#looks.pollInMs())
  }
}
