/** A client's view of its session: it adds to what the database says since when this client may believe it. */
import assert from 'node:assert/strict'
import { instantOf } from '../../../base/clock.ts'
import { BackendUnavailableError, CapacityMismatchError, type LossReason } from '../../../base/errors.ts'
import { cancelledCall } from '../../../kit/backend-kit.ts'
import { SessionBase, type SessionFacts } from '../../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Attempt,
  BackendSession,
  Call,
  Claim,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
  ReleaseResult,
  ReleaseTerms,
} from '../../../spi.ts'
import { arrayLiteral } from '../client/index.ts'
import type { AnswerRow } from './batches.ts'
import type { Connection } from './connection.ts'
import type { PostgresWaiter, RecordedGrant } from './waiting-room.ts'

export class PostgresSession extends SessionBase<'fenced'> implements BackendSession<'fenced'> {
  readonly #connection: Connection
  readonly #no: number

  /** `no`: the number of its row. Numbers are never used again. */
  constructor(connection: Connection, no: number, facts: SessionFacts) {
    super(facts)
    this.#connection = connection
    this.#no = no
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { sql, namespace, room, clock } = this.#connection
    const { held } = listed
    const waiting = room.withoutAsked(listed.waiting)
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
    this.prolonged(since)
    const lost: LostClaim[] = []
    const unlisted: Claim[] = []
    const granted: Grant<'fenced'>[] = []
    for (const [kind, name, attempt, token, data] of rows) {
      if (kind === 'lost') {
        // With the operator's words, if it was released by force.
        lost.push({ attempt, reason: data as LossReason, ...(token !== null && { detail: token }) })
      } else if (kind === 'unlisted') unlisted.push({ name, attempt })
      else if (kind === 'granted') {
        const news = { token: BigInt(token ?? 0), data }
        granted.push(this.grantOf({ name, attempt }, news))
        room.granted(this.#no, attempt, news)
      } else if (kind === 'stale') void this.#connection.sweep()
    }
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const answer = await this.#ask(request, false, call)
    const [, , kind, , , ms] = answer
    if (kind !== 'busy') return this.#resultOf(request, answer)
    return ms == null ? { kind } : { kind, retryAfterMs: ms }
  }

  enqueue(request: AcquireRequest, attempt: Attempt<'fenced'>): void {
    const { room } = this.#connection
    const granted = (news: RecordedGrant) => this.#granted(request, news)
    const waiter: PostgresWaiter = { request, attempt, session: this.#no, granted }
    room.ask(waiter)
    this.#ask(request, true, attempt)
      .then((answer) => this.#queued(waiter, answer))
      .catch((error: unknown) => room.fail(waiter, error))
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    await this.#connection.apply({ op: 'a', ...this.#own(claim) }, call)
    this.#connection.room.abandoned(this.#no, claim.attempt)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const item = { op: 'd' as const, ...this.#own(claim), token: claim.grantId, text: data }
    const [, , kind] = await this.#connection.apply(item, call)
    return kind === 'stored' ? 'stored' : 'not-held'
  }

  async release(claim: GrantedClaim, { keepForMs }: ReleaseTerms, call: Call): Promise<ReleaseResult> {
    const item = { op: 'r' as const, ...this.#own(claim), token: claim.grantId, ms: keepForMs }
    const [, , kind] = await this.#connection.apply(item, call)
    if (keepForMs > 0) this.#connection.noteClosedName()
    return kind === 'released' ? 'released' : 'not-held'
  }

  /** The first query ends the session with all that it has; the others, if it has many claims, only clean up. */
  async close(call: Call): Promise<void> {
    for (let isMore = true; isMore; ) {
      isMore = (await this.#connection.rows(call, 'endSession', [this.#no])).length > 0
      this.#connection.room.sessionEnded(this.#no)
      call.onProgress?.(0)
    }
  }

  #own({ name, attempt }: Claim) {
    return { name, attempt, session: this.#no }
  }

  #ask(request: AcquireRequest, waits: boolean, call: Call): Promise<AnswerRow> {
    const { mode, weight, capacity, lockDelayMs: ms, note: text, owner, maxWaiters, waitMs } = request
    assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
    const own = { op: 'g' as const, ...this.#own(request), waits, mode, weight, capacity, ms, text, owner }
    const asked = { ...own, max_waiters: maxWaiters, wait_ms: waitMs }
    return this.#connection.apply(asked, call)
  }

  #queued(waiter: PostgresWaiter, answer: AnswerRow): void {
    const { request, attempt } = waiter
    const { room } = this.#connection
    const [, , kind, , , ms = null] = answer
    if (kind === 'queue-full') room.settle(waiter, { kind })
    else if (kind === 'queued') {
      if (!room.queued(waiter, ms)) return
      attempt.queued()
      this.#connection.expectNews()
    } else if (kind !== 'late') room.settle(waiter, this.#resultOf(request, answer))
    else if (room.leave(waiter)) {
      // Its caller's time is over, or will be in a moment; the caller cancels the call then. If only the server's clock was set
      // forward, the next keep-alive says that the position is lost, and core asks again.
      attempt.queued()
      attempt.onCancel(() => attempt.fail(cancelledCall('postgres', attempt.signal, 'not-applied')))
    }
  }

  #resultOf(
    request: AcquireRequest,
    [, , kind, token, data = null]: AnswerRow,
  ): Exclude<AcquireResult<'fenced'>, { kind: 'busy' }> {
    if (kind === 'granted' && token != null) return this.#granted(request, { token: BigInt(token), data })
    if (kind === 'session-gone') {
      this.#connection.room.sessionEnded(this.#no)
      return { kind: 'session-gone' }
    }
    if (kind === 'mismatch') throw new CapacityMismatchError(request.name, request.capacity, Number(data))
    throw new BackendUnavailableError('postgres', 'the attempt was abandoned', 'not-applied')
  }

  #granted(claim: Claim, news: RecordedGrant) {
    return { kind: 'granted' as const, grant: this.grantOf(claim, news) }
  }
}

/** See `keep_alive` in `sql/sessions.ts`. */
type KeptRow = readonly [
  kind: string,
  name: string,
  attempt: string,
  tokenOrDetail: string | null,
  data: string | null,
]
