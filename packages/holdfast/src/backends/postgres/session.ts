/** A client's view of its session: it adds to what the database says since when this client may believe it. */
import assert from 'node:assert/strict'
import { type Instant, instantOf, laterOf } from '../../base/clock.ts'
import { BackendUnavailableError, CapacityMismatchError, type LossReason } from '../../base/errors.ts'
import { arrayLiteral } from '../../clients/postgres/index.ts'
import { cancelledCall, tokenGrant } from '../../kit/backend-kit.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  EnqueueResult,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
  SessionHandle,
} from '../../spi.ts'
import type { Answer, Item, Operation } from './batches.ts'
import type { Connection } from './connection.ts'

export interface SessionFacts {
  readonly id: string
  /** The number of its row. Numbers are never used again. */
  readonly no: number
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
}

export class PostgresSession implements BackendSession<'fenced'> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly #connection: Connection
  readonly #no: number
  /** When the request was sent that last prolonged the session; grants count from here (T64, T65). */
  #prolongedAt: Instant
  /** Attempts whose request is in flight: a keep-alive that overtakes them must not take them for lost. */
  readonly #onTheWay = new Set<string>()

  constructor(connection: Connection, { id, no, ttlMs, holder, since }: SessionFacts) {
    this.#connection = connection
    this.#no = no
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    this.#prolongedAt = since
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { sql, namespace, room, clock } = this.#connection
    const hasArrived = ({ attempt }: Claim) => !this.#onTheWay.has(attempt)
    const waiting = listed.waiting.filter(hasArrived)
    const held = listed.held.filter(hasArrived)
    const claims = [...held, ...waiting]
    const parameters = [
      namespace,
      this.#no,
      arrayLiteral(claims.map(({ attempt }) => attempt)),
      arrayLiteral(claims.map(({ name }) => name)),
      arrayLiteral([...held.map(({ grantId }) => grantId), ...waiting.map(() => undefined)]),
      arrayLiteral(waiting.map(({ attempt }) => attempt)),
    ]
    const since = instantOf(clock)
    const rows = (await this.#connection.query(call, sql.keepAlive, parameters)) as readonly KeptRow[]
    if (rows[0]?.[0] !== 'alive') {
      room.sessionEnded(this.#no)
      return { kind: 'gone' }
    }
    this.#prolongedAt = laterOf(this.#prolongedAt, since)
    const lost: LostClaim[] = []
    const unlisted: Claim[] = []
    const granted: Grant<'fenced'>[] = []
    for (const [kind, name, attempt, token, data] of rows) {
      if (kind === 'lost') lost.push(lostClaim(attempt, data as LossReason, token))
      else if (kind === 'unlisted') unlisted.push({ name, attempt })
      else if (kind === 'granted') {
        granted.push(this.#grant({ name, attempt }, BigInt(token ?? 0), data))
        room.granted(this.#no, attempt, BigInt(token ?? 0), data)
      } else if (kind === 'stale') void this.#connection.sweep()
    }
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const answer = await this.#ask('t', request, call)
    if (answer.kind !== 'busy') return this.#admitted(request, answer)
    return answer.ms === null ? { kind: 'busy' } : { kind: 'busy', retryAfterMs: answer.ms }
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    const { room } = this.#connection
    const { name, attempt } = request
    const turn = Promise.withResolvers<EnqueueResult<'fenced'>>()
    // Whether somebody listens to it depends on which comes first, the answer or the turn.
    turn.promise.catch(() => {})
    const entry = room.add({
      name,
      attempt,
      session: this.#no,
      signal: call.signal,
      granted: (token, data) => ({ kind: 'granted', grant: this.#grant(request, token, data) }),
      resolve: turn.resolve,
      reject: turn.reject,
    })
    let answer: Answer
    try {
      answer = await this.#ask('q', request, call)
    } catch (error) {
      if (entry.isSettled && !call.signal.aborted) return turn.promise
      room.leave(entry)
      throw error
    }
    if (answer.kind === 'queued') {
      room.placed(entry, answer.ms)
      if (!entry.isSettled) {
        call.onQueued?.()
        this.#connection.expectNews()
      }
      return turn.promise
    }
    room.leave(entry)
    if (answer.kind === 'late') {
      call.onQueued?.()
      return untilCancelled(call)
    }
    return answer.kind === 'queue-full' ? { kind: 'queue-full' } : this.#admitted(request, answer)
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    await this.#send('a', claim, call)
    this.#connection.room.abandoned(this.#no, claim.attempt)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const answer = await this.#send('d', claim, call, { token: claim.grantId, text: data })
    return answer.kind === 'stored' ? 'stored' : 'not-held'
  }

  async release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    const answer = await this.#send('r', claim, call, { token: claim.grantId, ms: keepForMs })
    if (keepForMs > 0) this.#connection.noteClosedName()
    return answer.kind === 'released' ? 'released' : 'not-held'
  }

  /** The first query ends the session with all that it has; the others, if it has many claims, only tidy up. */
  async close(call: Call): Promise<void> {
    const { sql, namespace, channel, room } = this.#connection
    for (let isMore = true; isMore; ) {
      const rows = await this.#connection.query(call, sql.closeSession, [namespace, channel, this.#no])
      isMore = false
      for (const [kind, attempt, token, data, session] of rows as readonly ClosedRow[]) {
        if (kind === 'more') isMore = true
        else room.granted(Number(session), attempt, BigInt(token), data)
      }
      room.sessionEnded(this.#no)
      call.onProgress?.(0)
    }
  }

  #send(
    op: Operation,
    { name, attempt }: Claim,
    call: Call,
    rest: Pick<Item, 'token' | 'ms' | 'text'> = {},
  ): Promise<Answer> {
    return this.#connection.apply({ op, name, attempt, session: this.#no, ...rest }, call)
  }

  async #ask(op: 't' | 'q', request: AcquireRequest, call: Call): Promise<Answer> {
    const { name, attempt, mode, weight, capacity, lockDelayMs, note, owner, maxWaiters, waitMs } = request
    assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
    this.#onTheWay.add(attempt)
    try {
      const wanted = { mode, weight, capacity, ms: lockDelayMs, text: note, owner, maxWaiters, waitMs }
      return await this.#connection.apply({ op, name, attempt, session: this.#no, ...wanted }, call)
    } finally {
      this.#onTheWay.delete(attempt)
    }
  }

  #admitted(
    request: AcquireRequest,
    { kind, token, data }: Answer,
  ): Exclude<AcquireResult<'fenced'>, { kind: 'busy' }> {
    if (kind === 'granted' && token !== null)
      return { kind: 'granted', grant: this.#grant(request, BigInt(token), data) }
    if (kind === 'session-gone') {
      this.#connection.room.sessionEnded(this.#no)
      return { kind: 'session-gone' }
    }
    if (kind === 'mismatch') throw new CapacityMismatchError(request.name, request.capacity, Number(data))
    throw new BackendUnavailableError('postgres', 'the attempt was abandoned', 'not-applied')
  }

  #grant(claim: Claim, token: bigint, data: string | null): Grant<'fenced'> {
    return tokenGrant(claim, token, { since: this.#prolongedAt, ttlMs: this.ttlMs }, data)
  }
}

/**
 * The time of its caller is over, or will be in a moment; the caller cancels the call then. If only the server's clock was set
 * forward, the next keep-alive says that the position is lost, and core asks again.
 */
function untilCancelled(call: Call): Promise<never> {
  return new Promise((_, reject) => {
    call.onCancel(() => reject(cancelledCall('postgres', call.signal, 'not-applied')))
  })
}

/** `detail` is missing where a client of an older version released it by force. */
function lostClaim(attempt: string, reason: LossReason, detail: string | null): LostClaim {
  return detail === null ? { attempt, reason } : { attempt, reason, detail }
}

/** See `keep_alive` in `sql/sessions.ts`. */
type KeptRow = readonly [
  kind: string,
  name: string,
  attempt: string,
  tokenOrDetail: string | null,
  data: string | null,
]
type ClosedRow = readonly [kind: string, attempt: string, token: string, data: string | null, session: string]
