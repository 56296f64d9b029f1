/**
 * A session of an engine with the rules of `rules.ts`: sends each call as a step, and adds to its answer since when this
 * client may believe it.
 */
import assert from 'node:assert/strict'
import { type Clock, instantOf } from '../base/clock.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Attempt,
  BackendSession,
  Call,
  Claim,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  ReleaseResult,
  ReleaseTerms,
} from '../spi.ts'
import type { Asker } from './lane.ts'
import type { Lifetime } from './lifetime.ts'
import * as rules from './rules.ts'
import { SessionBase, type SessionFacts } from './session.ts'
import type { Waiter, WaitingRoom } from './waiting-room.ts'

export type StepWaiter<Id = unknown> = Waiter<'fenced', rules.Granted> & { readonly session: Id }

/**
 * A part of a step, in which nothing is awaited. If it throws a HoldfastError, it is refused for itself alone: it has written nothing
 * but what was due, and the step goes on. Any other error comes from the rows, and undoes the step with all works in it.
 */
export type StepWork<O extends rules.Owner, T> = (step: rules.Step<O>) => T

/** The result of a step; in an object, because a step may return nothing. */
export interface Done<T = unknown> {
  readonly value: T
}

export abstract class StepSession<O extends rules.Owner>
  extends SessionBase<'fenced'>
  implements BackendSession<'fenced'>
{
  /** The session, as the steps of this engine know it. */
  protected readonly owner: O
  protected abstract readonly clock: Clock
  protected abstract readonly lifetime: Lifetime
  /**
   * The calls of `enqueue` that wait, of all sessions of this process. `enqueue` fills it; the engine brings the news. After a commit:
   * `handOver` for each waiter that the step has promoted, `sessionEnded` for each session that it has removed. For what other
   * processes did, at a look (`Looks`): `grant`, `settle` or `lost`. A subclass arms the next look in `enter`, with `looks.due` if time
   * alone may change something at the name, else with `looks.expectNews`; `onEmpty` is for `looks.stop`.
   */
  protected abstract readonly room: WaitingRoom<StepWaiter<O['id']>, rules.Granted>

  constructor(owner: O, facts: SessionFacts) {
    super(facts)
    this.owner = owner
  }

  protected abstract step<T>(call: Call, work: StepWork<O, T>): Promise<T>
  /** A step that does first what is due. It may overtake others: a backlog of requests must not cost the leases that are there. */
  protected abstract prolong<T>(call: Call, work: StepWork<O, T>): Promise<T>
  /**
   * As `step`, without a promise in between; `enqueue` has looked at the lifetime. Call `asker` once: after the hooks of `afterCommit`, or
   * when the call is cancelled before. `Lane.add` does both.
   */
  protected abstract send<T>(call: Call, work: StepWork<O, T>, asker: Asker<Done<T>>): void

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const since = instantOf(this.clock)
    const kept = await this.prolong(call, (step) => {
      const waiting = this.room.withoutAsked(listed.waiting)
      const kept = rules.keepAlive(step, this.owner, { held: listed.held, waiting })
      if (kept !== null)
        step.afterCommit.push(() => {
          for (const { attempt, ...granted } of kept.granted)
            this.room.handOver(this.owner.id, attempt, granted)
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
    const admission = await this.step(call, (step) => rules.tryAcquire(step, this.owner, request))
    return admission.kind === 'granted' ? this.#granted(request, admission) : admission
  }

  enqueue(request: AcquireRequest, attempt: Attempt<'fenced'>): void {
    const { room, owner } = this
    checkWeight(request)
    this.lifetime.begin(attempt)
    const granted = (news: rules.Granted) => this.#granted(request, news)
    const waiter = { request, attempt, session: owner.id, granted }
    room.ask(waiter)
    const work = (step: rules.Step<O>) => {
      const queueing = rules.enqueue(step, owner, request)
      if (queueing.kind === 'waiting') step.afterCommit.push(() => room.enter(waiter))
      return queueing
    }
    this.send(attempt, work, {
      answered: ({ value }) => {
        if (value.kind === 'waiting') attempt.queued()
        else if (value.kind === 'granted') room.grant(waiter, value)
        else room.settle(waiter, { kind: value.kind })
      },
      failed: (error) => room.fail(waiter, error),
    })
  }

  abandon(claim: Claim, call: Call): Promise<void> {
    return this.step(call, (step) => {
      rules.abandon(step, this.owner, claim)
      step.afterCommit.push(() => this.room.abandoned(this.owner.id, claim.attempt))
    })
  }

  setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    return this.step(call, (step) => rules.setData(step, this.owner, claim, data))
  }

  release(claim: GrantedClaim, { keepForMs }: ReleaseTerms, call: Call): Promise<ReleaseResult> {
    return this.step(call, (step) => rules.release(step, this.owner, claim, keepForMs))
  }

  close(call: Call): Promise<void> {
    return this.step(call, (step) => rules.closeSession(step, this.owner))
  }

  #granted(claim: Claim, granted: rules.Granted) {
    return { kind: 'granted' as const, grant: this.grantOf(claim, granted) }
  }
}

function checkWeight({ weight, capacity }: AcquireRequest): void {
  assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
}
