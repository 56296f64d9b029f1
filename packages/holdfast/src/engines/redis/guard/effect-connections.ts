/**
 * The connections that effects are sent over. A client library may send a command again that was not answered when its
 * connection broke (ioredis does), and the effect would be applied twice (T73, late originals). So effects do not use the user's
 * connection, but one of ours, which is opened at the first effect, and never used again once it is lost:
 *
 *   (none) ──effect──▶ open ──lost, idle, a call was not answered in time, the client has reconnected──▶ (none)
 *
 * An effect that was not answered has an unknown outcome. It may still lie in a socket or in a paused server, so every
 * effect carries a deadline on the server's clock, and the script does nothing after it: a call that was given up
 * does not land later. A server whose clock is set back keeps the deadline that much longer.
 */
import { callWith } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { asNotApplied, BackendUnavailableError, isHoldfastError } from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import {
  type DedicatedConnection,
  OwnConnections,
  type RedisClient,
  type RedisConnection,
  type RedisReply,
  type RedisScript,
} from '../client/index.ts'
import { markScript, outcomes, readScript } from './scripts.ts'

const IDLE_MS = 30_000
/** For a connection, its handshake and the comparison of the clocks. */
const LONGEST_OPENING_MS = 10_000
const MARK_KEPT_MS = 10_000

/** How long a call may take. `signal` aborts at `deadlineMs`, a time of the guard's monotonic clock. */
export interface CallLimit {
  readonly deadlineMs: number
  readonly signal: AbortSignal
}

/** One of them. It is closed when nothing is in flight on it any more. */
class EffectConnection {
  readonly #connection: DedicatedConnection
  readonly #clock: Clock
  /** The offset from the local monotonic clock to a time on the server's clock that is not later than the real one. */
  readonly #serverAheadMs: number
  #inFlight = 0
  #usedMs: number
  #isRetired = false

  constructor(connection: DedicatedConnection, clock: Clock, serverAheadMs: number) {
    this.#connection = connection
    this.#clock = clock
    this.#serverAheadMs = serverAheadMs
    this.#usedMs = clock.monotonicMs()
    this.#closeWhenIdle()
  }

  isOpen(): boolean {
    return !this.#isRetired && this.#connection.isOpen()
  }

  close(): void {
    this.#isRetired = true
    if (this.#inFlight === 0) this.#connection.close()
  }

  /** `refusal`: the server has done nothing, and the connection is of no use any more. */
  async run(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    { deadlineMs, signal }: CallLimit,
  ): Promise<{ readonly reply?: RedisReply; readonly refusal?: unknown }> {
    this.#inFlight++
    try {
      const deadline = String(Math.floor(deadlineMs + this.#serverAheadMs))
      const reply = await this.#connection.run(script, keys, [deadline, ...args], signal)
      if (!isLate(reply)) return { reply }
      this.#isRetired = true
      return { refusal: notSent("the effect came after its deadline on the server's clock") }
    } catch (error) {
      const isElsewhere = isAtAnotherServer(error)
      if (isElsewhere || signal.aborted) this.#isRetired = true
      if (isElsewhere) return { refusal: error }
      throw error
    } finally {
      this.#inFlight--
      this.#usedMs = this.#clock.monotonicMs()
      if (!this.isOpen()) this.close()
    }
  }

  #closeWhenIdle(): void {
    this.#clock.setTimer(IDLE_MS, () => {
      if (this.#isRetired) return
      const isIdle = this.#inFlight === 0 && this.#clock.monotonicMs() - this.#usedMs >= IDLE_MS
      if (isIdle) this.close()
      else this.#closeWhenIdle()
    })
  }
}

/** The effect connections of one client, for all guards on it. */
export class EffectConnections {
  readonly #client: RedisConnection
  readonly #clock: Clock
  readonly #random: Random
  readonly #own: OwnConnections<EffectConnection>

  constructor(client: RedisConnection, clock: Clock, random: Random = systemRandom) {
    this.#client = client
    this.#clock = clock
    this.#random = random
    this.#own = new OwnConnections(client, (key, stop) => this.#open(key, stop))
  }

  /** Sends a framed script; the deadline becomes its first argument. The first key decides about the primary. */
  async run(
    script: RedisScript,
    keys: readonly [string, ...string[]],
    args: readonly string[],
    limit: CallLimit,
  ): Promise<RedisReply> {
    for (let tries = 1; ; tries++) {
      const call = callWith(limit.signal)
      const own = await this.#own.get(keys[0], call, { ms: LONGEST_OPENING_MS, clock: this.#clock })
      const { reply, refusal } = await own.run(script, keys, args, limit)
      if (reply !== undefined) return reply
      if (tries === 2) throw refusal
      // Nothing has been applied. A call of the client's own finds the new primary, if there is one.
      await this.#client.run(readScript, [keys[0]], [], limit.signal)
    }
  }

  async #open(key: string, stop: AbortSignal): Promise<EffectConnection> {
    let connection: DedicatedConnection | undefined
    try {
      connection = await this.#client.dedicated(key, stop)
      return new EffectConnection(connection, this.#clock, await this.#compare(connection, key, stop))
    } catch (error) {
      connection?.close()
      throw isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? asNotApplied(error) : error
    }
  }

  /**
   * Compares the clocks, and makes sure that the connection leads to where the client's own does: after a `select` of the
   * user's, or a fail-over, it may be another database or server. Answers with how far the server's clock is ahead.
   */
  async #compare(connection: DedicatedConnection, key: string, stop: AbortSignal): Promise<number> {
    const text = this.#random.id()
    const mark = `${key}:${text}`
    const serverMs = Number(await connection.run(markScript, [mark], [text, String(MARK_KEPT_MS)], stop))
    const serverAheadMs = serverMs - this.#clock.monotonicMs()
    if ((await this.#client.run(readScript, [mark], [], stop)) !== text)
      throw notSent(
        'a new connection leads to another server or database than that of the client. If you have called `select` on the ' +
          'client, set the database in its options instead',
      )
    return serverAheadMs
  }
}

const ofClients = new WeakMap<RedisClient, WeakMap<Clock, EffectConnections>>()

/** One for each clock: a deadline is a time of the clock with which the connection was opened. */
export function effectConnectionsOf(
  client: RedisClient,
  clock: Clock,
  connection: RedisConnection,
): EffectConnections {
  const byClock = ofClients.get(client) ?? new WeakMap<Clock, EffectConnections>()
  ofClients.set(client, byClock)
  const found = byClock.get(clock) ?? new EffectConnections(connection, clock)
  byClock.set(clock, found)
  return found
}

function isLate(reply: RedisReply): boolean {
  return Array.isArray(reply) && Number(reply[0]) === outcomes.late
}

/** The server has refused the script: its slot has moved, or it is not the primary any more. */
function isAtAnotherServer(error: unknown): boolean {
  return isHoldfastError(error, 'BACKEND_UNAVAILABLE') && /\b(MOVED|READONLY) /.test(error.message)
}

function notSent(why: string): BackendUnavailableError {
  return new BackendUnavailableError('redis', why, 'not-applied')
}
