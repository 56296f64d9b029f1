/** A client's view of its session: it adds to what the file says since when this client may believe it. */
import assert from 'node:assert/strict'
import { type Instant, instantOf, laterOf } from '../../base/clock.ts'
import { tokenGrant } from '../../kit/backend-kit.ts'
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
  SessionHandle,
} from '../../spi.ts'
import * as claims from './claims.ts'
import type { Connection } from './connection.ts'
import type { Work } from './writer.ts'

export interface SessionFacts {
  readonly id: string
  /** The number of its row. */
  readonly no: number
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
}

export class SqliteSession implements BackendSession<'fenced'> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly #connection: Connection
  readonly #owner: claims.Owner
  /** When the request was sent that last prolonged the session; grants count from here (T64, T65). */
  #prolongedAt: Instant
  /** Attempts that wait to be written: a keep-alive that overtakes them must not take them for lost. */
  readonly #onTheWay = new Set<string>()

  constructor(connection: Connection, { id, no, ttlMs, holder, since }: SessionFacts) {
    this.#connection = connection
    this.#owner = { namespace: connection.namespace, session: no }
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    this.#prolongedAt = since
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { room, clock } = this.#connection
    const since = instantOf(clock)
    const kept = await this.#connection.writeFirst(call, (tx) => {
      this.#connection.checkFile(tx)
      const hasArrived = ({ attempt }: Claim) => !this.#onTheWay.has(attempt)
      const arrived = { held: listed.held.filter(hasArrived), waiting: listed.waiting.filter(hasArrived) }
      const kept = claims.keepAlive(tx, this.#owner, arrived)
      for (const { attempt, token, data } of kept?.granted ?? [])
        tx.afterCommit(() => room.granted(this.#owner.session, attempt, token, data))
      if (kept !== null) tx.afterCommit(() => this.#prolonged(since))
      return kept
    })
    if (kept === null) return { kind: 'gone' }
    const granted = kept.granted.map(({ token, data, ...claim }) => this.#grant(claim, token, data))
    const { lost, unlisted } = kept
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const admission = await this.#send(request, call, (tx) => claims.tryAcquire(tx, this.#owner, request))
    return admission.kind === 'granted' ? this.#granted(request, admission) : admission
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    const { room, wakeUps } = this.#connection
    const turn = Promise.withResolvers<EnqueueResult<'fenced'>>()
    const { name, attempt } = request
    const admission = await this.#send(request, call, (tx) => {
      const admission = claims.enqueue(tx, this.#owner, request, () => wakeUps.address())
      if (admission === null)
        tx.afterCommit(() =>
          room.add({
            name,
            attempt,
            session: this.#owner.session,
            signal: call.signal,
            granted: (token, data) => ({ kind: 'granted', grant: this.#grant(request, token, data) }),
            resolve: turn.resolve,
            reject: turn.reject,
          }),
        )
      return admission
    })
    if (admission?.kind === 'granted') return this.#granted(request, admission)
    if (admission !== null) return admission
    call.onQueued?.()
    return turn.promise
  }

  abandon(claim: Claim, call: Call): Promise<void> {
    return this.#connection.write(call, (tx) => {
      claims.abandon(tx, this.#owner, claim)
      tx.afterCommit(() => this.#connection.room.abandoned(this.#owner.session, claim.attempt))
    })
  }

  setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    return this.#connection.write(call, (tx) => claims.setData(tx, this.#owner, claim, data))
  }

  release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    return this.#connection.write(call, (tx) => claims.release(tx, this.#owner, claim, keepForMs))
  }

  close(call: Call): Promise<void> {
    return this.#connection.write(call, (tx) => claims.closeSession(tx, this.#owner))
  }

  async #send<T>(request: AcquireRequest, call: Call, work: Work<T>): Promise<T> {
    const { attempt, weight, capacity } = request
    assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
    this.#onTheWay.add(attempt)
    try {
      return await this.#connection.write(call, work)
    } finally {
      this.#onTheWay.delete(attempt)
    }
  }

  #prolonged(since: Instant): void {
    this.#prolongedAt = laterOf(this.#prolongedAt, since)
  }

  #granted(claim: Claim, { token, data }: claims.Granted): { kind: 'granted'; grant: Grant<'fenced'> } {
    return { kind: 'granted', grant: this.#grant(claim, token, data) }
  }

  #grant(claim: Claim, token: bigint, data: string | null): Grant<'fenced'> {
    return tokenGrant(claim, token, { since: this.#prolongedAt, ttlMs: this.ttlMs }, data)
  }
}
