/** A client's view of its session: it adds to what the file says since when this client may believe it. */
import assert from 'node:assert/strict'
import { instantOf } from '../../base/clock.ts'
import { SessionBase, type SessionFacts } from '../../kit/session.ts'
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
} from '../../spi.ts'
import * as claims from './claims.ts'
import type { Connection } from './connection.ts'
import type { Work } from './writer.ts'

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
    const since = instantOf(clock)
    const kept = await this.#connection.writeFirst(call, (tx) => {
      this.#connection.checkFile(tx)
      const kept = claims.keepAlive(tx, this.#owner, this.withoutInFlight(listed))
      for (const { attempt, ...granted } of kept?.granted ?? [])
        tx.afterCommit(() => room.handOver(this.#owner.session, attempt, granted))
      if (kept !== null) tx.afterCommit(() => this.prolonged(since))
      return kept
    })
    if (kept === null) return { kind: 'gone' }
    const granted = kept.granted.map((claim) => this.grantOf(claim, claim))
    const { lost, unlisted } = kept
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const admission = await this.#send(request, call, (tx) => claims.tryAcquire(tx, this.#owner, request))
    return admission.kind === 'granted' ? this.#granted(request, admission) : admission
  }

  enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    const { room, wakeUps } = this.#connection
    return new Promise((resolve, reject) => {
      const { session } = this.#owner
      const granted = (news: claims.Granted) => this.#granted(request, news)
      const waiter = { request, call, session, granted, resolve, reject }
      room.ask(waiter)
      const queueing = this.#send(request, call, (tx) => {
        const admission = claims.enqueue(tx, this.#owner, request, () => wakeUps.address())
        if (admission === null) tx.afterCommit(() => room.enter(waiter))
        return admission
      })
      queueing.then(
        (admission) => {
          if (admission === null) call.onQueued?.()
          else if (admission.kind === 'granted') room.grant(waiter, admission)
          else room.settle(waiter, admission)
        },
        (error: unknown) => room.fail(waiter, error),
      )
    })
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

  #send<T>(request: AcquireRequest, call: Call, work: Work<T>): Promise<T> {
    const { weight, capacity } = request
    assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
    return this.asking(request, () => this.#connection.write(call, work))
  }

  #granted(claim: Claim, granted: Pick<claims.Granted, 'token' | 'data'>) {
    return { kind: 'granted' as const, grant: this.grantOf(claim, granted) }
  }
}
