/** A client with a session, and what it does in a case: short words for the calls of the SPI. */
import assert from 'node:assert/strict'
import { callWith } from '../../base/aborting.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import type {
  AcquireRequest,
  AcquireResult,
  AttachedSession,
  Backend,
  Claim,
  EnqueueResult,
  Fencing,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  LostClaim,
  ReleaseResult,
} from '../../spi.ts'
import { enqueued } from '../enqueued.ts'
import { Operator } from './operator.ts'
import { call, request } from './requests.ts'
import type { Stage } from './stage.ts'

/** A name stands for an exclusive request with an attempt of its own. */
export type Wanted = string | AcquireRequest

interface Listed {
  readonly held?: readonly (Claim | GrantedClaim)[]
  readonly waiting?: readonly Claim[]
}

export class Actor {
  readonly stage: Stage
  readonly backend: Backend
  readonly session: AttachedSession
  readonly holder: string
  readonly operator: Operator
  /** When the last request was sent that is known to have prolonged the session, on the suite's own record. */
  prolongedMs: number

  constructor(
    stage: Stage,
    backend: Backend,
    session: AttachedSession,
    known: { readonly holder: string; readonly prolongedMs: number },
  ) {
    const { holder, prolongedMs } = known
    this.prolongedMs = prolongedMs
    this.stage = stage
    this.backend = backend
    this.session = session
    this.holder = holder
    this.operator = new Operator(backend)
  }

  try(wanted: Wanted): Promise<AcquireResult> {
    return this.session.tryAcquire(asRequest(wanted), call())
  }

  /** Acquires, and insists on it. */
  async take(wanted: Wanted): Promise<Grant> {
    return expectGranted(await this.try(wanted))
  }

  async expectBusy(wanted: Wanted): Promise<Extract<AcquireResult, { kind: 'busy' }>> {
    return expectBusy(await this.try(wanted))
  }

  /** Joins the queue, and returns when it has joined (or is already granted). */
  async enqueue(wanted: Wanted): Promise<QueuedCall> {
    const wait = new QueuedCall(this, asRequest(wanted))
    await this.stage.eventually('the waiter is in the queue', async () => {
      if (wait.state !== 'waiting') return true
      const found = await this.backend.inspect(wait.request.name, call())
      return found?.waiters.some((waiter) => waiter.id === wait.id) ?? false
    })
    return wait
  }

  release(claim: Claim | GrantedClaim, keepForMs = 0): Promise<ReleaseResult> {
    return this.session.release(granted(claim), { keepForMs }, call())
  }

  abandon(claim: Claim): Promise<void> {
    return this.session.abandon(claim, call())
  }

  async keepAlive(claims: Listed = {}): Promise<KeepAliveResult> {
    const held = (claims.held ?? []).map(granted)
    const sentMs = this.stage.clock.monotonicMs()
    const result = await this.session.keepAlive({ held, waiting: claims.waiting ?? [] }, call())
    if (result.kind === 'alive') this.prolongedMs = Math.max(this.prolongedMs, sentMs)
    return result
  }

  /** A keep-alive that the session must survive; what it lost. */
  async stayAlive(claims: Listed = {}): Promise<readonly LostClaim[]> {
    return expectAlive(await this.keepAlive(claims)).lost
  }

  setData(claim: Claim | GrantedClaim, data: string): Promise<'stored' | 'not-held'> {
    assert(this.session.setData !== undefined, 'a backend with a data cell has setData')
    return this.session.setData(granted(claim), data, call())
  }

  close(): Promise<void> {
    return this.session.close(call())
  }

  /** Whether the engine says that this grant holds the name. */
  async holds(grant: Claim): Promise<boolean> {
    const found = await this.backend.inspect(grant.name, call())
    return found?.holders.some((holder) => holder.id === publicIdOf(grant.attempt)) ?? false
  }

  async expectHolding(grant: Claim): Promise<void> {
    assert(await this.holds(grant), `${this.holder} does not hold ${grant.name} any more`)
  }
}

/** A call of `enqueue`, and what has become of it. */
export class QueuedCall {
  readonly request: AcquireRequest
  readonly id: string
  state: 'waiting' | EnqueueResult['kind'] | 'rejected' = 'waiting'
  error: unknown
  /** How often it was told that it has to wait. */
  queued = 0
  readonly #stage: Stage
  readonly #controller = new AbortController()
  #grant: Grant | undefined

  constructor(actor: Actor, wanted: AcquireRequest) {
    assert(actor.session.enqueue !== undefined, 'a backend with a queue has enqueue')
    this.#stage = actor.stage
    this.request = wanted
    this.id = publicIdOf(wanted.attempt)
    const queued = () => void this.queued++
    enqueued(actor.session, wanted, callWith(this.#controller.signal, { queued })).then(
      (result) => {
        this.state = result.kind
        if (result.kind === 'granted') this.#grant = result.grant
      },
      (error: unknown) => {
        this.state = 'rejected'
        this.error = error
      },
    )
  }

  /** Waits for its grant, which must come soon. */
  async granted(withinMs?: number): Promise<Grant> {
    const { name } = this.request
    await this.#stage.eventually(`the waiter for ${name} is served`, () => this.state !== 'waiting', withinMs)
    if (this.state === 'rejected') throw this.error
    assert.equal(this.state, 'granted')
    return checkGrant(this.#grant, this.request)
  }

  async ends(as: 'session-gone' | 'rejected'): Promise<void> {
    await this.#stage.eventually('the wait ends', () => this.state !== 'waiting')
    assert.equal(this.state, as)
  }

  /** The caller has lost interest. */
  abort(): void {
    this.#controller.abort(new Error('the caller has lost interest'))
  }
}

export function expectGranted(result: AcquireResult): Grant {
  assert.equal(result.kind, 'granted')
  return checkGrant((result as Extract<AcquireResult, { kind: 'granted' }>).grant)
}

export function expectBusy(result: AcquireResult): Extract<AcquireResult, { kind: 'busy' }> {
  assert.equal(result.kind, 'busy')
  return result as Extract<AcquireResult, { kind: 'busy' }>
}

export function expectAlive(result: KeepAliveResult): Extract<KeepAliveResult, { kind: 'alive' }> {
  assert.equal(result.kind, 'alive')
  return result as Extract<KeepAliveResult, { kind: 'alive' }>
}

/** For the error of a call that failed without an answer. */
export function expectUnavailable(error: unknown): void {
  assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'), `BACKEND_UNAVAILABLE, not ${error}`)
}

/** The token of a grant that must have one. */
export function tokenOf(grant: Grant<Fencing>): bigint {
  assert(typeof grant.token === 'bigint', 'a fenced grant has a token')
  return grant.token
}

/** For `assert.rejects`: the call failed, and says that nothing has come of it. */
export function isNotApplied(error: unknown): boolean {
  return isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'
}

/** A claim that was never granted is named with a grant that the engine never made. */
function granted(claim: Claim | GrantedClaim): GrantedClaim {
  return { grantId: '0', ...claim }
}

function asRequest(wanted: Wanted): AcquireRequest {
  return typeof wanted === 'string' ? request(wanted) : wanted
}

function checkGrant(grant: Grant | undefined, asked?: AcquireRequest): Grant {
  assert(grant !== undefined, 'granted, with a grant')
  assert(asked === undefined || (grant.name === asked.name && grant.attempt === asked.attempt))
  return grant
}
