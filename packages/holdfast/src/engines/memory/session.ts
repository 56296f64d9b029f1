/** A client's view of its session: it adds to the engine's answers since when this client may believe them. */
import assert from 'node:assert/strict'
import { instantOf } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { SessionBase, type SessionFacts } from '../../kit/session.ts'
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
} from '../../spi.ts'
import type { Connection } from './backend.ts'
import type { Claim as EngineClaim, WaitOutcome } from './state.ts'

export class MemorySession extends SessionBase<'fenced'> implements BackendSession<'fenced'> {
  readonly #connection: Connection

  constructor(connection: Connection, facts: SessionFacts) {
    super(facts)
    this.#connection = connection
  }

  async keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { engine, namespace, clock } = this.#begin(call)
    const since = instantOf(clock)
    const kept = engine.keepAlive(namespace, this.id, claims)
    if (kept === null) return { kind: 'gone' }
    this.prolonged(since)
    const granted = kept.granted.map((claim) => this.#granted(claim).grant)
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost: kept.lost, granted, unlisted: kept.unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const { engine, namespace } = this.#begin(call)
    const admission = engine.tryAcquire(namespace, this.id, request)
    return admission.kind === 'granted' ? this.#granted(admission.claim) : admission
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    const { engine, namespace } = this.#begin(call)
    const answer = Promise.withResolvers<EnqueueResult<'fenced'>>()
    const onOutcome = (outcome: WaitOutcome | { readonly kind: 'queue-full' }) => {
      if (outcome.kind === 'granted') answer.resolve(this.#granted(outcome.claim))
      else if (outcome.kind !== 'abandoned') answer.resolve(outcome)
      else answer.reject(new BackendUnavailableError('memory', 'the attempt was abandoned', 'not-applied'))
    }
    const queueing = engine.enqueue(namespace, this.id, request, onOutcome)
    if (queueing.kind !== 'waiting') {
      onOutcome(queueing)
      return answer.promise
    }
    call.onQueued?.()
    const untie = this.#connection.lifetime.onCut(call, (error) => {
      queueing.stopListening()
      answer.reject(error)
    })
    return answer.promise.finally(untie)
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    const { engine, namespace } = this.#begin(call)
    engine.abandon(namespace, this.id, claim.attempt)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const { engine, namespace } = this.#begin(call)
    return engine.setData(namespace, this.id, claim, data)
  }

  async release(
    claim: GrantedClaim,
    options: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    const { engine, namespace } = this.#begin(call)
    return engine.release(namespace, this.id, claim, options.keepForMs)
  }

  async close(call: Call): Promise<void> {
    const { engine, namespace } = this.#begin(call)
    engine.closeSession(namespace, this.id)
  }

  #begin(call: Call): Connection {
    this.#connection.lifetime.begin(call)
    return this.#connection
  }

  #granted(claim: EngineClaim): { readonly kind: 'granted'; readonly grant: Grant<'fenced'> } {
    const { token, grantId, previousData } = claim
    assert(token !== null && grantId !== null, 'a claim that holds has a token')
    return { kind: 'granted', grant: this.grantOf(claim, { token, grantId, data: previousData }) }
  }
}
