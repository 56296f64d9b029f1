/**
 * The waiters of this process. A grant by this process is told at once. Others are found in the file: when another process
 * wakes a waiter, and at polls.
 */
import type { Granted } from '../../../kit/rules.ts'
import type { StepWaiter } from '../../../kit/step-session.ts'
import { WaitingRoom } from '../../../kit/waiting-room.ts'
import type { Context } from './connection.ts'
import type { FilePoll, Onlooker } from './poll.ts'

type SqliteWaiter = StepWaiter<number>

type RoomContext = Pick<Context, 'sql' | 'clock' | 'namespace'>

export class SqliteWaitingRoom extends WaitingRoom<SqliteWaiter, Granted> implements Onlooker {
  readonly #context: RoomContext
  readonly #poll: FilePoll
  #hasNewcomers = false

  constructor(context: RoomContext, poll: FilePoll) {
    super({ backend: 'sqlite', onEmpty: () => poll.arm() })
    this.#context = context
    this.#poll = poll
    poll.add(this)
  }

  get isIdle(): boolean {
    return this.size === 0
  }

  /** The timer is armed later, once for all waiters of a transaction: `armForNewcomers`. */
  override enter(waiter: SqliteWaiter): boolean {
    this.#hasNewcomers = true
    return super.enter(waiter)
  }

  armForNewcomers(): void {
    if (this.#hasNewcomers) this.#poll.arm()
    this.#hasNewcomers = false
  }

  /** Another process says that these have been granted; the file knows. If it cannot be read, the next poll finds out. */
  wake(ids: readonly string[]): void {
    try {
      this.#ask(ids.flatMap((id) => this.find(id)))
    } catch {}
  }

  look(): void {
    this.#ask(this.waiters)
  }

  /** Looks up what has become of these. Waiters that are still queued stay. */
  #ask(waiters: readonly SqliteWaiter[]): void {
    if (waiters.length === 0) return
    const { sql, clock, namespace } = this.#context
    const asked = JSON.stringify(
      waiters.map(({ session, request }) => [session, request.name, request.attempt]),
    )
    for (const { index, alive, token, data, mark } of sql.outcomes.all(
      asked,
      namespace,
      clock.monotonicMs(),
    )) {
      const waiter = waiters[index]
      if (waiter === undefined) continue
      if (alive !== 1) this.settle(waiter, { kind: 'session-gone' })
      else if (token !== null) this.grant(waiter, { token: BigInt(token), data })
      else this.lost(waiter, mark ?? undefined)
    }
  }
}
