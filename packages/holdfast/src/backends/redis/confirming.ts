/**
 * More than the primary's word: a grant counts only when replicas, or the append-only file, have it as well.
 *
 *   granted ──re-check on a connection of our own, which writes──▶ WAIT | WAITAOF there ──met──▶ handed out
 *                                                                                     ──not met──▶ undone, told
 *
 * The connection is ours because WAIT blocks it. WAIT counts what its own connection has written, so the re-check is a
 * write: its offset in the stream of replication is later than the grant's. What may go wrong between the steps: the
 * grant is over before the re-check (told as such); the connection is lost (unknown, and undone); the process dies (the
 * grant ends with its TTL); the undo fails (told as unknown, and core resolves it).
 */

import { type DedicatedConnection, type RedisReply, redisScript, slotOf } from '../../clients/redis/index.ts'
import { BackendUnavailableError } from '../../core/errors.ts'
import type { Call } from '../../spi.ts'
import type { Engine } from './engine.ts'
import { library } from './scripts/library.ts'
import { prelude } from './scripts/prelude.ts'

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
local n = lib.open(KEYS[1])
if not lib.holding(n, ARGV[2]) then return 0 end
local left = call('PTTL', KEYS[1])
if left > 0 then call('PEXPIRE', KEYS[1], left) end
return 1
`)

export class Confirming {
  readonly #engine: Engine
  readonly #waitFor: WaitFor
  /** One for each node, by the slot that it was asked for; a lost one is replaced. */
  readonly #connections = new Map<number, Promise<DedicatedConnection>>()

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
    for (const connection of this.#connections.values())
      connection.then((each) => each.close()).catch(() => {})
    this.#connections.clear()
  }

  /** Null when it is safe; otherwise what is missing. */
  async #reach({ key, who }: ConfirmedClaim, call: Call): Promise<string | null> {
    const { aof, replicas, timeoutMs } = this.#waitFor
    const { connection, tokens } = this.#engine
    const slot = connection.isCluster ? slotOf(connection.keyPrefix + key) : 0
    const own = await this.#connectionFor(slot, key, call)
    try {
      const keyed = connection.keyPrefix + key
      const rechecked = own.send(['EVAL', recheckScript.source, '1', keyed, tokens, who], call.signal)
      const waited = aof
        ? own.send(['WAITAOF', '1', String(replicas), String(timeoutMs)], call.signal)
        : own.send(['WAIT', String(replicas), String(timeoutMs)], call.signal)
      const [held, reply] = await Promise.all([rechecked, waited])
      if (Number(held) !== 1) return 'it was lost again before it could be confirmed'
      return this.#missing(reply)
    } catch (error) {
      this.#connections.delete(slot)
      own.close()
      throw error
    }
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

  async #connectionFor(slot: number, key: string, call: Call): Promise<DedicatedConnection> {
    let opening = this.#connections.get(slot)
    if (opening === undefined) {
      opening = this.#engine.connection.dedicated(key, call.signal)
      this.#connections.set(slot, opening)
    }
    try {
      return await opening
    } catch (error) {
      this.#connections.delete(slot)
      throw error
    }
  }
}
