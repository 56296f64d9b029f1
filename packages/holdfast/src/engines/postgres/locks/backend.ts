/** The SPI over one schema of a PostgreSQL database. */

import { type Clock, instantOf } from '../../../base/clock.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { operatorCallExpired, prolongedSince, raisedTtlMs } from '../../../kit/backend-kit.ts'
import { followLog } from '../../../kit/follow-log.ts'
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
import { arrayLiteral, type Parameter, pageOfSessions } from '../client/index.ts'
import type { AnswerRow } from './batches.ts'
import type { Connection } from './connection.ts'
import { PostgresSession } from './session.ts'
import { pageOfStates, statesOf } from './states.ts'

export class PostgresBackend implements Backend<'fenced'> {
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

  get statistics(): Readonly<Connection['statistics']> {
    return this.#connection.statistics
  }

  /** Whether waiters are told of their grants; otherwise they poll. */
  get hears(): boolean {
    return this.#connection.hears
  }

  whyUnanswered(): string | undefined {
    return this.#connection.shortage
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    const { id, holder } = request
    const ttlMs = raisedTtlMs(this.info, request.ttlMs)
    const since = instantOf(this.clock)
    const [row] = await this.#query(call, 'openSession', [id, holder, ttlMs])
    if (row === undefined) throw new InvalidArgumentError('id', 'belongs to a session of another namespace.')
    void this.#connection.sweep()
    const [no, granted] = row.map(Number) as [number, number]
    return new PostgresSession(this.#connection, no, { id, ttlMs: granted, holder, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<'fenced'> | null> {
    const id = String(handle.id)
    const now = instantOf(this.clock)
    const [row] = await this.#query(call, 'findSession', [id])
    if (row === undefined) return null
    const [no, ttlMs, leftMs] = row.map(Number) as [number, number, number]
    const since = prolongedSince(now, { ttlMs, leftMs })
    return new PostgresSession(this.#connection, no, { id, ttlMs, holder: String(row[3]), since })
  }

  async inspect(name: string, call: InspectCall): Promise<NameState | null> {
    return statesOf(await this.#query(call, 'state', [name, String(call.holdersOnly !== true)]))[0] ?? null
  }

  async list(prefix: string, { cursor = '', limit }: PageRequest, call: Call): Promise<Page<NameState>> {
    return pageOfStates(await this.#query(call, 'list', [prefix, cursor, limit]))
  }

  async sessions({ cursor, limit }: PageRequest, call: Call): Promise<Page<SessionState>> {
    // The cursor is the public half of an id. What stands behind it in byte order is no id that begins with it.
    const after = cursor === undefined ? '' : `${cursor}~`
    return pageOfSessions(await this.#query(call, 'sessions', [after, limit + 1]), limit)
  }

  diagnose(call: Call): Promise<readonly Finding[]> {
    return this.#connection.diagnose(call)
  }

  async check({ name, id, token }: HolderKey, call: Call): Promise<boolean> {
    return (await this.#query(call, 'check', [name, String(token), id])).length > 0
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const [, , , released] = await this.#operate(call, 'forceRelease', [name, arrayLiteral(ids), reason])
    return Number(released)
  }

  async resize(name: string, { from, to }: CapacityChange, call: OperatorCall): Promise<ResizeResult> {
    const [, , kind] = await this.#operate(call, 'resize', [name, from, to])
    return kind as ResizeResult
  }

  async forget(name: string, data: string, call: OperatorCall): Promise<ForgetResult> {
    const [, , kind] = await this.#operate(call, 'forget', [name, data])
    return kind as ForgetResult
  }

  watch(prefix: string, { cursor }: { readonly cursor?: string }, call: Call): AsyncIterable<WatchEvent> {
    return followLog(this.#connection.watchers, prefix, cursor, call)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#connection.close()
  }

  /** All statements begin with the namespace. */
  #query(
    call: Call,
    statement: 'openSession' | 'findSession' | 'state' | 'list' | 'sessions' | 'check',
    parameters: readonly Parameter[],
  ) {
    const { sql, namespace } = this.#connection
    return this.#connection.query(call, sql[statement], [namespace, ...parameters])
  }

  async #operate(
    call: OperatorCall,
    statement: 'forceRelease' | 'resize' | 'forget',
    parameters: readonly Parameter[],
  ): Promise<AnswerRow> {
    const [row] = await this.#connection.rows(call, statement, [...parameters, call.notAfterMs])
    if (row === undefined || row[2] === 'too-late') throw operatorCallExpired('postgres')
    return row
  }
}
