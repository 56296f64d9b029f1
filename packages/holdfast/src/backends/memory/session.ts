/** A client's view of its session: it adds to the engine's answers since when this client may believe them. */
import assert from 'node:assert/strict'
import { type Instant, instantOf } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
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
import type { Connection } from './connection.ts'
import type { Claim as EngineClaim, WaitOutcome } from './state.ts'

export interface SessionFacts {
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
}

export class MemorySession implements BackendSession<'fenced'> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly #connection: Connection
  /** When the request was sent that last prolonged the session; grants count from here (T64, T65). */
  #prolongedAt: Instant

  constructor(connection: Connection, facts: SessionFacts) {
    const { id, ttlMs, holder, since } = facts
    this.#connection = connection
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    this.#prolongedAt = since
  }

  async keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { engine, namespace, clock } = this.#connection.begin(call)
    const since = instantOf(clock)
    const kept = engine.keepAlive(namespace, this.id, claims)
    if (kept === null) return { kind: 'gone' }
    this.#prolongedAt = since
    const granted = kept.granted.map((claim) => this.#granted(claim).grant)
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost: kept.lost, granted, unlisted: kept.unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const { engine, namespace } = this.#connection.begin(call)
    const admission = engine.tryAcquire(namespace, this.id, request)
    return admission.kind === 'granted' ? this.#granted(admission.claim) : admission
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    const { engine, namespace } = this.#connection.begin(call)
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
    const untie = this.#connection.onCut(call, (error) => {
      queueing.stopListening()
      answer.reject(error)
    })
    return answer.promise.finally(untie)
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    const { engine, namespace } = this.#connection.begin(call)
    engine.abandon(namespace, this.id, claim.attempt)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const { engine, namespace } = this.#connection.begin(call)
    return engine.setData(namespace, this.id, claim, data)
  }

  async release(
    claim: GrantedClaim,
    options: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    const { engine, namespace } = this.#connection.begin(call)
    return engine.release(namespace, this.id, claim, options.keepForMs)
  }

  async close(call: Call): Promise<void> {
    const { engine, namespace } = this.#connection.begin(call)
    engine.closeSession(namespace, this.id)
  }

  #granted(claim: EngineClaim): { readonly kind: 'granted'; readonly grant: Grant<'fenced'> } {
    const { record, attempt, token, previousData } = claim
    assert(token !== null, 'a claim that holds has a token')
    const terms = { since: this.#prolongedAt, ttlMs: this.ttlMs }
    return { kind: 'granted', grant: tokenGrant({ name: record.name, attempt }, token, terms, previousData) }
  }
}
