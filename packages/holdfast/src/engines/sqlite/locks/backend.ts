/** The SPI over one SQLite file, shared by the processes of one machine. */

import { type Clock, instantOf } from '../../../base/clock.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { prolongedSince, raisedTtlMs } from '../../../kit/backend-kit.ts'
import { followLog } from '../../../kit/follow-log.ts'
import { forceRelease, forget, resize } from '../../../kit/rules.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
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
  WatchEvent,
} from '../../../spi.ts'
import type { Connection } from './connection.ts'
import { SqliteSession } from './session.ts'
import { inspect, list, sessions } from './states.ts'
import type { Statistics } from './statistics.ts'

export class SqliteBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #connection: Connection

  constructor(connection: Connection, info: BackendInfo<'fenced'>, random: Random) {
    this.info = info
    this.clock = connection.clock
    this.random = random
    this.#connection = connection
  }

  /** Counts of its work so far, for tests and measurements. */
  get statistics(): Readonly<Statistics> {
    return this.#connection.statistics
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    const { namespace, machine } = this.#connection
    const { id, holder } = request
    const ttlMs = raisedTtlMs(this.info, request.ttlMs)
    const since = instantOf(this.clock)
    // Expired sessions are removed first, so that a late repetition does not bring one back (T31, revived locks).
    const opened = await this.#connection.prolong(call, (tx) => {
      const row = tx.sql.openSession.first(id, namespace, holder, ttlMs, tx.nowMs, machine.bootId)
      if (row === undefined)
        throw new InvalidArgumentError('id', 'belongs to a session of another namespace.')
      return row
    })
    return new SqliteSession(this.#connection, opened.no, { id, ttlMs: opened.ttl_ms, holder, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<'fenced'> | null> {
    const id = String(handle.id)
    const now = instantOf(this.clock)
    const found = await this.#connection.read(call, (sql, nowMs) =>
      sql.findSession.first(id, this.#connection.namespace, nowMs),
    )
    if (found === undefined) return null
    const { no, holder, ttl_ms: ttlMs } = found
    const since = prolongedSince(now, { ttlMs, leftMs: found.expires_at - now.monotonicMs })
    return new SqliteSession(this.#connection, no, { id, ttlMs, holder, since })
  }

  inspect(name: string, call: InspectCall): Promise<NameState | null> {
    return this.#connection.read(call, (sql, nowMs) =>
      inspect(sql, this.#named(name), nowMs, call.holdersOnly),
    )
  }

  list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    const { namespace } = this.#connection
    return this.#connection.read(call, (sql, nowMs) => list(sql, { namespace, prefix }, page, nowMs))
  }

  sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    const { namespace } = this.#connection
    return this.#connection.read(call, (sql, nowMs) => sessions(sql, namespace, page, nowMs))
  }

  diagnose(call: Call): Promise<readonly Finding[]> {
    return this.#connection.diagnose(call)
  }

  async check({ name, id, token }: HolderKey, call: Call): Promise<boolean> {
    const found = await this.#connection.read(call, (sql, nowMs) =>
      sql.check.first(this.#connection.namespace, name, Number(token), id, nowMs),
    )
    return found !== undefined
  }

  forceRelease(name: string, ids: readonly string[], reason: string, call: OperatorCall): Promise<number> {
    return this.#connection.write(call, (tx) => forceRelease(tx, this.#named(name), ids, reason, call))
  }

  resize(name: string, capacity: CapacityChange, call: OperatorCall): Promise<ResizeResult> {
    return this.#connection.write(call, (tx) => resize(tx, this.#named(name), capacity, call))
  }

  forget(name: string, data: string, call: OperatorCall): Promise<ForgetResult> {
    return this.#connection.write(call, (tx) => forget(tx, this.#named(name), data, call))
  }

  watch(prefix: string, options: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return followLog(this.#connection.watchers, prefix, options.cursor, call)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }

  #named(name: string): { readonly namespace: string; readonly name: string } {
    return { namespace: this.#connection.namespace, name }
  }
}
