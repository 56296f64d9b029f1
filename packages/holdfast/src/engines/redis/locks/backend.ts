/** The SPI over the user's Redis client. */

import { type Clock, instantOf } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import { prolongedSince, raisedTtlMs } from '../../../kit/backend-kit.ts'
import { followLog } from '../../../kit/follow-log.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  Fencing,
  Finding,
  ForgetResult,
  HolderKey,
  InspectCall,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  ResizeResult,
  SessionHandle,
  SessionRequest,
  SessionState,
} from '../../../spi.ts'
import type { Connection } from './connection.ts'
import { diagnoseServer } from './diagnosis.ts'
import { EventLog } from './event-log.ts'
import { withoutRights } from './failures.ts'
import { listPage, sessionPage } from './paging.ts'
import { forceReleaseScript, forgetScript, resizeScript } from './scripts/operators.ts'
import { openSessionScript } from './scripts/sessions.ts'
import { RedisSession } from './session.ts'
import { findSession, inspect } from './states.ts'

/** A force-released holder must learn it at its next keep-alive, whatever its TTL is. */
const FORCE_MARK_MS = 86_400_000

export class RedisBackend<F extends Fencing> implements Backend<F> {
  readonly info: BackendInfo<F>
  readonly clock: Clock
  readonly random: Random
  /** Missing on a Cluster, where no script can write to a log that the locks of all slots share: core compares lists. */
  readonly watch?: Backend['watch'] & {}
  readonly #connection: Connection
  readonly #closeClient: (() => Promise<void>) | undefined
  #closeLog: ((error: unknown) => void) | undefined

  /** `closeClient`: for a client that was made for this backend alone, and ends with it. */
  constructor(connection: Connection, info: BackendInfo<F>, closeClient?: () => Promise<void>) {
    this.info = info
    this.clock = connection.clock
    this.random = connection.random
    this.#connection = connection
    this.#closeClient = closeClient
    if (connection.client.isCluster) return
    const log = new EventLog(connection)
    this.#closeLog = (error) => log.close(error)
    this.watch = (prefix, { cursor }, call) => followLog(log, prefix, cursor, call)
  }

  whyUnanswered(): string | undefined {
    return this.#connection.client.whyUnanswered
  }

  async openSession({ id, ttlMs, holder }: SessionRequest, call: Call): Promise<BackendSession<F>> {
    const { client, keys, channel, lifetime } = this.#connection
    lifetime.begin(call)
    const since = instantOf(this.clock)
    await this.#connection.prepare(call)
    const terms = [String(raisedTtlMs(this.info, ttlMs)), holder, channel]
    const granted = await client
      .run(openSessionScript, [keys.session(id)], terms, call.signal)
      .catch((error: unknown) => {
        throw withoutRights('running scripts that write and publish', error)
      })
    return new RedisSession<F>(this.#connection, { id, ttlMs: Number(granted), holder, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<F> | null> {
    const id = String(handle.id)
    const now = instantOf(this.clock)
    const found = await findSession(this.#connection, id, call)
    if (found === null) return null
    const { ttlMs, holder } = found
    return new RedisSession<F>(this.#connection, { id, ttlMs, holder, since: prolongedSince(now, found) })
  }

  async inspect(name: string, call: InspectCall): Promise<NameState | null> {
    return inspect(this.#connection, name, call)
  }

  async list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    return listPage(this.#connection, prefix, page, call)
  }

  async sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    return sessionPage(this.#connection, page, call)
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    return diagnoseServer(this.#connection.client, this.#connection.demands, call)
  }

  async check(holder: HolderKey, call: Call): Promise<boolean> {
    const found = await this.inspect(holder.name, call)
    return found?.holders.some(({ id, token }) => id === holder.id && token === holder.token) ?? false
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const args = [String(FORCE_MARK_MS), reason, ...ids]
    return Number(await this.#connection.operate(forceReleaseScript, name, args, call))
  }

  async resize(name: string, { from, to }: CapacityChange, call: OperatorCall): Promise<ResizeResult> {
    const answer = await this.#connection.operate(resizeScript, name, [String(from), String(to)], call)
    return answer as ResizeResult
  }

  async forget(name: string, data: string, call: OperatorCall): Promise<ForgetResult> {
    const answer = await this.#connection.operate(forgetScript, name, [data], call)
    return answer as ForgetResult
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#connection.lifetime.isOver) return
    const closed = this.#connection.close()
    this.#closeLog?.(closed)
    await this.#closeClient?.()
  }
}
