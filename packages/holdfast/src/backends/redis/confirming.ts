/**
 * More than the primary's word: a grant counts only when replicas, or the append-only file, have it as well.
 *
 *   granted ──re-check on a connection of our own, which writes──▶ WAIT | WAITAOF there ──met──▶ handed out
 *                                                                                     ──not met──▶ undone, told
 *
 * The connection is ours because WAIT blocks it; the grants that come meanwhile share the next one. There is one for each
 * primary. WAIT counts what its own connection has written, so the re-check is a write: its offset in the stream of
 * replication is later than the grant's. What may go wrong between the steps: the grant is over before the re-check (told
 * as such); the connection is lost (unknown, and undone); the name has moved to another primary of a Cluster (the re-check
 * is refused, which undoes that grant alone, and the next goes to the new one); the process dies (the grant ends with its
 * TTL); the undo fails (told as unknown, and core resolves it).
 */

import { callWith } from '../../base/aborting.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError, ClosedError } from '../../base/errors.ts'
import { SingleFlight } from '../../base/single-flight.ts'
import { type DedicatedConnection, type RedisReply, redisScript } from '../../clients/redis/index.ts'
import { Lane } from '../../kit/lane.ts'
import type { Call } from '../../spi.ts'
import type { Engine } from './engine.ts'
import { library } from './scripts/library.ts'
import { prelude, SLOT_IS_MOVING } from './scripts/prelude.ts'

export interface WaitFor {
  readonly aof: boolean
  readonly replicas: number
  readonly timeoutMs: number
}

export interface ConfirmedClaim {
  readonly key: string
  readonly name: string
  readonly who: string
}

/** KEYS lock; ARGV fencing, who. Renames nothing and prolongs nothing, but is a write: the expiry is set to what it is. */
const recheckScript = redisScript(`${prelude}${library}
lib = library()
if is_moving(KEYS[1]) then return redis.error_reply('${SLOT_IS_MOVING}') end
local n = lib.open(KEYS[1])
if not lib.holding(n, ARGV[2]) then return 0 end
local left = call('PTTL', KEYS[1])
if left > 0 then call('PEXPIRE', KEYS[1], left) end
return 1
`)

/** Null when the grant is as safe as was asked for. */
interface Reached {
  readonly missing: string | null
}

/** One for each primary. */
interface Desk {
  /** One that is lost, or leads to the wrong primary, is replaced. */
  connection: SingleFlight<DedicatedConnection> | undefined
  readonly lane: Lane<ConfirmedClaim, Reached>
}

const MOST_AT_ONCE = 256

export class Confirming {
  readonly #engine: Engine
  readonly #waitFor: WaitFor
  readonly #desks = new Map<string, Desk>()
  readonly #closing = new AbortController()

  constructor(engine: Engine, waitFor: WaitFor) {
    this.#engine = engine
    this.#waitFor = waitFor
  }

  /** Resolves when the grant is as safe as was asked for; otherwise undoes it and rejects. */
  async confirm(claim: ConfirmedClaim, undo: () => Promise<void>, call: Call): Promise<void> {
    let problem: string
    let cause: unknown
    try {
      const reached = await this.#reach(claim, call)
      if (reached === null) return
      problem = reached
    } catch (error) {
      cause = error
      problem = `it could not be confirmed${error instanceof Error ? ` (${error.message})` : ''}`
    }
    const what = `acquire of "${claim.name}": the primary granted it, but ${problem}`
    try {
      await undo()
    } catch (error) {
      throw new BackendUnavailableError('redis', `${what}; undoing it failed`, 'unknown', { cause: error })
    }
    throw new BackendUnavailableError('redis', `${what}; it was undone`, 'not-applied', { cause })
  }

  close(): void {
    this.#closing.abort(new ClosedError('The redis backend'))
    for (const { connection } of this.#desks.values())
      connection?.started?.then((each) => each.close()).catch(() => {})
    this.#desks.clear()
  }

  /** Null when it is safe; otherwise what is missing. */
  async #reach(claim: ConfirmedClaim, call: Call): Promise<string | null> {
    const owner = this.#engine.connection.ownerOf(claim.key)
    let desk = this.#desks.get(owner)
    if (desk === undefined) {
      desk = this.#openDesk()
      this.#desks.set(owner, desk)
    }
    const { missing } = await desk.lane.ask(claim, call)
    return missing
  }

  #openDesk(): Desk {
    const desk: Desk = {
      connection: undefined,
      lane: new Lane({
        backend: 'redis',
        clock: this.#engine.clock,
        maxBatch: MOST_AT_ONCE,
        send: (claims) =>
          this.#within(async (signal) => {
            const wasOpen = desk.connection !== undefined
            try {
              return await this.#reachThrough(desk, claims, signal)
            } catch (error) {
              // One that was open may have ended while it was not used. Both steps can be done again.
              if (!wasOpen || signal.aborted) throw error
              return this.#reachThrough(desk, claims, signal)
            }
          }),
      }),
    }
    return desk
  }

  async #reachThrough(
    desk: Desk,
    claims: readonly ConfirmedClaim[],
    signal: AbortSignal,
  ): Promise<readonly (Reached | Error)[]> {
    // All claims of the desk had one owner when they came; whose slot has moved since then is refused there.
    desk.connection ??= this.#connect(claims[0]?.key ?? '')
    let own: DedicatedConnection | undefined
    let isGood = false
    try {
      own = await desk.connection.join(callWith(signal))
      const reached = await this.#reachAll(own, claims, signal)
      isGood = !reached.some((each) => each instanceof Error)
      return reached
    } finally {
      if (!isGood) {
        desk.connection = undefined
        own?.close()
      }
    }
  }

  #connect(key: string): SingleFlight<DedicatedConnection> {
    return new SingleFlight('redis', (signal) => this.#engine.connection.dedicated(key, signal))
  }

  /** On a connection that is cut off unnoticed nobody would hear anything any more. */
  async #within<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const limitMs = this.#waitFor.timeoutMs + defaults.callTimeoutMs
    const limit = new AbortController()
    const timer = this.#engine.clock.setTimer(limitMs, () =>
      limit.abort(new Error(`no answer within ${limitMs} ms`)),
    )
    try {
      return await work(AbortSignal.any([this.#closing.signal, limit.signal]))
    } finally {
      timer.cancel()
    }
  }

  /** One WAIT speaks for all that was written before it. */
  async #reachAll(
    own: DedicatedConnection,
    claims: readonly ConfirmedClaim[],
    signal: AbortSignal,
  ): Promise<readonly (Reached | Error)[]> {
    const { aof, replicas, timeoutMs } = this.#waitFor
    const { connection, setting } = this.#engine
    const rechecked = claims.map(
      ({ key, who }): Promise<RedisReply | Error> =>
        own
          .send(['EVAL', recheckScript.source, '1', connection.keyPrefix + key, setting, who], signal)
          .catch((error: Error) => error),
    )
    const waited = own.send(
      aof
        ? ['WAITAOF', '1', String(replicas), String(timeoutMs)]
        : ['WAIT', String(replicas), String(timeoutMs)],
      signal,
    )
    const [reply, ...held] = await Promise.all([waited, ...rechecked])
    const missing = this.#missing(reply)
    return held.map((each) => {
      if (each instanceof Error) return each
      const isHeld = Number(each) === 1
      return { missing: isHeld ? missing : 'it was lost again before it could be confirmed' }
    })
  }

  #missing(reply: RedisReply): string | null {
    const { aof, replicas, timeoutMs } = this.#waitFor
    if (!aof) {
      const reached = Number(reply)
      return reached >= replicas
        ? null
        : `only ${reached} of ${replicas} replicas had it after ${timeoutMs} ms`
    }
    const [local, remote] = (reply as readonly RedisReply[]).map(Number)
    if ((local ?? 0) < 1) return `the append-only file did not have it after ${timeoutMs} ms`
    return (remote ?? 0) >= replicas
      ? null
      : `the append-only files of only ${remote} of ${replicas} replicas had it after ${timeoutMs} ms`
  }
}
