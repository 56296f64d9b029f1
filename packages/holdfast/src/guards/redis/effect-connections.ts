/**
 * The connections that effects are sent over. A client library may send a command again that was not answered when its
 * connection broke (ioredis does), and the effect would be applied twice (T73). So effects do not use the user's
 * connection, but one of ours, which is opened at the first effect, and never used again once it is lost:
 *
 *   (none) ──effect──▶ open ──lost, idle, a call was not answered in time, the client has reconnected──▶ (none)
 *
 * An effect that was not answered has an unknown outcome. It may still lie in a socket or in a paused server, so every
 * effect carries a deadline on the server's clock, and the script does nothing after it: a call that was given up
 * does not land later. A server whose clock is set back keeps the deadline that much longer.
 */
import { unlessAborted } from '../../base/aborting.ts'
import type { Clock } from '../../base/clock.ts'
import { asNotApplied, BackendUnavailableError, isHoldfastError } from '../../base/errors.ts'
import { type Random, systemRandom } from '../../base/ids.ts'
import type {
  DedicatedConnection,
  RedisClient,
  RedisConnection,
  RedisReply,
  RedisScript,
} from '../../clients/redis/index.ts'
import { markScript, outcomes, readScript } from './scripts.ts'

const IDLE_MS = 30_000
const MARK_KEPT_MS = 10_000

/** How long a call may take. `signal` aborts at `deadlineMs`, which is a time of `clock.monotonicMs()`. */
export interface CallLimit {
  readonly clock: Clock
  readonly deadlineMs: number
  readonly signal: AbortSignal
}

interface OpenConnection {
  readonly connection: DedicatedConnection
  /** What to add to the local monotonic clock for a time on the server's clock that is not later than the real one. */
  readonly serverAheadMs: number
  /** `lossCount` of the client when it was opened. */
  readonly losses: number
  inFlight: number
  usedMs: number
  isRetired: boolean
}

/** Those of one client, for all guards on it: one for each primary. */
export class EffectConnections {
  readonly #client: RedisConnection
  readonly #random: Random
  readonly #byPrimary = new Map<string, Promise<OpenConnection>>()

  constructor(client: RedisConnection, random: Random = systemRandom) {
    this.#client = client
    this.#random = random
  }

  /** Sends a framed script; the deadline becomes its first argument. The first key decides about the primary. */
  async run(
    script: RedisScript,
    keys: readonly [string, ...string[]],
    args: readonly string[],
    limit: CallLimit,
  ): Promise<RedisReply> {
    for (let tries = 1; ; tries++) {
      const { reply, refusal } = await this.#runOnce(script, keys, args, limit)
      if (reply !== undefined) return reply
      if (tries === 2) throw refusal
      // Nothing has been applied. A call of the client's own finds the new primary, if there is one.
      await this.#client.run(readScript, [keys[0]], [], limit.signal)
    }
  }

  /** `refusal`: the server has done nothing, and the connection is of no use any more. */
  async #runOnce(
    script: RedisScript,
    keys: readonly [string, ...string[]],
    args: readonly string[],
    { clock, deadlineMs, signal }: CallLimit,
  ): Promise<{ readonly reply?: RedisReply; readonly refusal?: unknown }> {
    const primary = this.#client.ownerOf(keys[0])
    const opening = this.#opened(primary, keys[0], clock, deadlineMs - clock.monotonicMs())
    const open = await unlessAborted(opening, signal, () => notSent('no connection for the effect in time'))
    open.inFlight++
    try {
      const deadline = String(Math.floor(deadlineMs + open.serverAheadMs))
      const reply = await open.connection.run(script, keys, [deadline, ...args], signal)
      if (!isLate(reply)) return { reply }
      this.#retire(primary, open)
      return { refusal: notSent("the effect came after its deadline on the server's clock") }
    } catch (error) {
      const isElsewhere = isAtAnotherServer(error)
      if (isElsewhere || signal.aborted || !open.connection.isOpen()) this.#retire(primary, open)
      if (isElsewhere) return { refusal: error }
      throw error
    } finally {
      open.inFlight--
      open.usedMs = clock.monotonicMs()
      if (open.isRetired && open.inFlight === 0) open.connection.close()
    }
  }

  /** The one that is open or being opened. If the client has reconnected since, maybe to another primary, a new one. */
  async #opened(primary: string, key: string, clock: Clock, withinMs: number): Promise<OpenConnection> {
    const known = await this.#byPrimary.get(primary)
    if (known !== undefined) {
      if (known.connection.isOpen() && known.losses === this.#client.lossCount()) return known
      this.#retire(primary, known)
    }
    let opening = this.#byPrimary.get(primary)
    if (opening === undefined) {
      opening = this.#open(primary, key, clock, withinMs)
      this.#byPrimary.set(primary, opening)
      opening.catch(() => this.#byPrimary.delete(primary))
    }
    return opening
  }

  async #open(primary: string, key: string, clock: Clock, withinMs: number): Promise<OpenConnection> {
    const losses = this.#client.lossCount()
    const limit = new AbortController()
    const timer = clock.setTimer(withinMs, () => limit.abort(new Error('no answer in time')))
    let connection: DedicatedConnection | undefined
    try {
      connection = await this.#client.dedicated(key, limit.signal)
      const serverAheadMs = await this.#compare(connection, key, clock, limit.signal)
      const usedMs = clock.monotonicMs()
      const open = { connection, serverAheadMs, losses, inFlight: 0, usedMs, isRetired: false }
      this.#closeWhenIdle(primary, open, clock)
      return open
    } catch (error) {
      connection?.close()
      throw isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? asNotApplied(error) : error
    } finally {
      timer.cancel()
    }
  }

  /**
   * Compares the clocks, and makes sure that the connection leads to where the client's own does: after a `select` of the
   * user's, or a fail-over, it may be another database or server. Answers with `serverAheadMs`.
   */
  async #compare(
    connection: DedicatedConnection,
    key: string,
    clock: Clock,
    signal: AbortSignal,
  ): Promise<number> {
    const text = this.#random.id()
    const mark = `${key}:${text}`
    const serverMs = Number(await connection.run(markScript, [mark], [text, String(MARK_KEPT_MS)], signal))
    const serverAheadMs = serverMs - clock.monotonicMs()
    if ((await this.#client.run(readScript, [mark], [], signal)) !== text)
      throw notSent(
        'a new connection leads to another server or database than that of the client. If you have called `select` on the ' +
          'client, set the database in its options instead',
      )
    return serverAheadMs
  }

  #closeWhenIdle(primary: string, open: OpenConnection, clock: Clock): void {
    clock.setTimer(IDLE_MS, () => {
      if (open.isRetired) return
      if (open.inFlight > 0 || clock.monotonicMs() - open.usedMs < IDLE_MS)
        return this.#closeWhenIdle(primary, open, clock)
      this.#retire(primary, open)
    })
  }

  /** What is in flight on it is still awaited. */
  #retire(primary: string, open: OpenConnection): void {
    if (open.isRetired) return
    open.isRetired = true
    this.#byPrimary.delete(primary)
    if (open.inFlight === 0) open.connection.close()
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
  const found = byClock.get(clock) ?? new EffectConnections(connection)
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
