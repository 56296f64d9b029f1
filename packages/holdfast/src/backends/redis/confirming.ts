/**
 * More than the primary's word: a grant counts only when replicas, or the append-only file, have it as well.
 *
 *   granted ──re-check on a connection of our own, which writes──▶ WAIT | WAITAOF there ──met──▶ handed out
 *                                                                                     ──not met──▶ undone, told
 *
 * The connection is ours because WAIT blocks it; the grants that come meanwhile share the next one. There is one for each
 * primary. What may go wrong between the steps: the grant is over before the re-check (told as such); the connection is lost
 * (unknown, and undone); the name has moved to another primary of a Cluster (the re-check is refused, which undoes that grant
 * alone, and the next goes to the new one); the process dies (the grant ends with its TTL); the undo fails (told as unknown,
 * and core resolves it).
 */

import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import type { DedicatedConnection, RedisReply } from '../../clients/redis/index.ts'
import { Lane } from '../../kit/lane.ts'
import type { Call } from '../../spi.ts'
import type { Connection } from './connection.ts'
import type { ClaimKey } from './requests.ts'
import { recheckScript } from './scripts/operators.ts'

export interface WaitFor {
  readonly aof: boolean
  readonly replicas: number
  readonly timeoutMs: number
}

/** Empty when the grant is as safe as was asked for. */
type Missing = string

const MOST_AT_ONCE = 256

export class Confirming {
  readonly #connection: Connection
  readonly #waitFor: WaitFor
  /** One for each primary. */
  readonly #lanes = new Map<string, Lane<ClaimKey, Missing>>()

  constructor(connection: Connection, waitFor: WaitFor) {
    this.#connection = connection
    this.#waitFor = waitFor
  }

  /** Resolves when the grant is as safe as was asked for; otherwise undoes it and rejects. */
  async confirm(name: string, claim: ClaimKey, undo: () => Promise<void>, call: Call): Promise<void> {
    let problem: string
    let cause: unknown
    try {
      problem = await this.#laneFor(claim).ask(claim, call)
      if (problem === '') return
    } catch (error) {
      cause = error
      problem = `it could not be confirmed${error instanceof Error ? ` (${error.message})` : ''}`
    }
    const what = `acquire of "${name}": the primary granted it, but ${problem}`
    try {
      await undo()
    } catch (error) {
      throw new BackendUnavailableError('redis', `${what}; undoing it failed`, 'unknown', { cause: error })
    }
    throw new BackendUnavailableError('redis', `${what}; it was undone`, 'not-applied', { cause })
  }

  close(): void {
    for (const lane of this.#lanes.values()) lane.close()
  }

  #laneFor({ key }: ClaimKey): Lane<ClaimKey, Missing> {
    const { client } = this.#connection
    const owner = client.ownerOf(key)
    const lane = this.#lanes.get(owner) ?? this.#openLane()
    this.#lanes.set(owner, lane)
    return lane
  }

  #openLane(): Lane<ClaimKey, Missing> {
    const { clock, lifetime, client } = this.#connection
    let own: DedicatedConnection | undefined
    const send = async (claims: readonly ClaimKey[], call: Call) => {
      // All claims had one owner when they came. If a slot has moved since then, the owner refuses its claims.
      own ??= await client.dedicated(claims[0]?.key ?? '', call.signal)
      let isGood = false
      try {
        const found = await this.#reach(own, claims, call)
        isGood = !found.some((each) => each instanceof Error)
        return found
      } finally {
        if (!isGood) {
          own.close()
          own = undefined
        }
      }
    }
    return new Lane({
      backend: 'redis',
      clock,
      maxBatch: MOST_AT_ONCE,
      // With a limit: a connection that is cut off unnoticed is never answered.
      send: (claims) =>
        lifetime.inBackground(async (call) => {
          const wasOpen = own !== undefined
          try {
            return await send(claims, call)
          } catch (error) {
            // One that was open may have ended while it was not used. Both steps can be done again.
            if (!wasOpen || call.cancelled) throw error
            return send(claims, call)
          }
        }, this.#waitFor.timeoutMs + defaults.callTimeoutMs),
    })
  }

  /** One WAIT speaks for all that was written before it. */
  async #reach(
    own: DedicatedConnection,
    claims: readonly ClaimKey[],
    { signal }: Call,
  ): Promise<readonly (Missing | Error)[]> {
    const { aof, replicas, timeoutMs } = this.#waitFor
    const { client, setting } = this.#connection
    const rechecked = claims.map(
      ({ key, who }): Promise<RedisReply | Error> =>
        own
          .send(['EVAL', recheckScript.source, '1', client.keyPrefix + key, setting, who], signal)
          .catch((error: Error) => error),
    )
    const wait = aof ? ['WAITAOF', '1', String(replicas)] : ['WAIT', String(replicas)]
    const waited = own.send([...wait, String(timeoutMs)], signal)
    const [reply, ...held] = await Promise.all([waited, ...rechecked])
    const missing = this.#missing(reply)
    return held.map((each) => {
      if (each instanceof Error) return each
      return Number(each) === 1 ? missing : 'it was lost again before it could be confirmed'
    })
  }

  #missing(reply: RedisReply): Missing {
    const { aof, replicas, timeoutMs } = this.#waitFor
    const [local, reached] = aof ? (reply as readonly RedisReply[]).map(Number) : [1, Number(reply)]
    if (!local) return `the append-only file did not have it after ${timeoutMs} ms`
    if ((reached ?? 0) >= replicas) return ''
    const where = aof ? `the append-only files of only ${reached}` : `only ${reached}`
    return `${where} of ${replicas} replicas had it after ${timeoutMs} ms`
  }
}
