/** A client's view of its session: it adds to what the file says since when this client may believe it. */
import assert from 'node:assert/strict'
import { instantOf } from '../../../base/clock.ts'
import { SessionBase, type SessionFacts } from '../../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  EnqueueResult,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
} from '../../../spi.ts'
import * as claims from './claims.ts'
import type { Connection } from './connection.ts'
import type { Transaction } from './transaction.ts'
import type { Granted } from './waiting-room.ts'

export class SqliteSession extends SessionBase<'fenced'> implements BackendSession<'fenced'> {
  readonly #connection: Connection
  readonly #owner: claims.Owner

  /** `no`: the number of its row. */
  constructor(connection: Connection, no: number, facts: SessionFacts) {
    super(facts)
    this.#connection = connection
    this.#owner = { namespace: connection.namespace, session: no }
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { room, clock } = this.#connection
    const { session } = this.#owner
    const since = instantOf(clock)
    const kept = await this.#connection.prolong(call, (tx) => {
      const kept = claims.keepAlive(tx, this.#owner, this.withoutInFlight(listed))
      if (kept !== null)
        tx.afterCommit.push(() => {
          for (const { attempt, ...granted } of kept.granted) room.handOver(session, attempt, granted)
          this.prolonged(since)
        })
      return kept
    })
    if (kept === null) return { kind: 'gone' }
    const granted = kept.granted.map((claim) => this.grantOf(claim, claim))
    const { lost, unlisted } = kept
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    checkWeight(request)
    const admission = await this.asking(request, () =>
      this.#connection.write(call, (tx) => claims.tryAcquire(tx, this.#owner, request)),
    )
    return admission.kind === 'granted' ? this.#granted(request, admission) : admission
  }

  enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    const { room, wakeUps, writer, lifetime } = this.#connection
    return new Promise((resolve, reject) => {
      checkWeight(request)
      lifetime.begin(call)
      const { session } = this.#owner
      const granted = (news: Granted) => this.#granted(request, news)
      const waiter = { request, call, session, granted, resolve, reject }
      room.ask(waiter)
      this.inFlight.add(request.attempt)
      const work = (tx: Transaction) => {
        const queueing = claims.enqueue(tx, this.#owner, request, () => wakeUps.address())
        if (queueing.kind === 'waiting') tx.afterCommit.push(() => room.enter(waiter))
        return queueing
      }
      writer.send(call, work, {
        answered: ({ value }) => {
          this.inFlight.delete(request.attempt)
          if (value.kind === 'waiting') call.onQueued?.()
          else if (value.kind === 'granted') room.grant(waiter, value)
          else room.settle(waiter, { kind: value.kind })
        },
        failed: (error) => {
          this.inFlight.delete(request.attempt)
          room.fail(waiter, error)
        },
      })
    })
  }

  abandon(claim: Claim, call: Call): Promise<void> {
    return this.#connection.write(call, (tx) => {
      claims.abandon(tx, this.#owner, claim)
      tx.afterCommit.push(() => this.#connection.room.abandoned(this.#owner.session, claim.attempt))
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

  #granted(claim: Claim, granted: Granted) {
    return { kind: 'granted' as const, grant: this.grantOf(claim, granted) }
  }
}

function checkWeight({ weight, capacity }: AcquireRequest): void {
  assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
}
