/** A session of an engine in which waiters serve themselves: what it answers, from what the engine says of its claims. */
import type { Instant } from '../base/clock.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Call,
  Claim,
  EnqueueResult,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
} from '../spi.ts'
import type { PredecessorQueue } from './predecessor-queue.ts'
import { SessionBase } from './session.ts'

export interface Prolonged {
  readonly since: Instant
  /** Of the held claims that were listed: those that it has no longer, under the grant that was named. */
  readonly lost: readonly Claim[]
}

export abstract class QueueSession<Since extends Instant | null> extends SessionBase<'fenced', Since> {
  protected abstract readonly queue: PredecessorQueue

  /** Prolongs the session at the engine. Null: it has gone. */
  protected abstract prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null>
  /** The token of a claim that was listed as waiting; null while it waits; undefined if there is no such claim. */
  protected abstract tokenOf(claim: Claim, call: Call): Promise<bigint | null | undefined>
  /** Why a claim is lost. */
  protected abstract lossOf(claim: Claim, call: Call): Promise<LostClaim>
  /** What the session has at the engine, but for these attempts. */
  protected abstract claimsBesides(known: ReadonlySet<string>, call: Call): Promise<readonly Claim[]>

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { held, waiting } = this.withoutInFlight(listed)
    const prolonged = await this.prolong(held, call)
    if (prolonged === null) {
      this.queue.end()
      return { kind: 'gone' }
    }
    const { since } = prolonged
    this.prolonged(since)
    const [checked, tokens] = await Promise.all([
      this.queue.check(waiting, call),
      Promise.all(waiting.map((claim) => this.tokenOf(claim, call))),
    ])
    const granted = new Map(checked.map((grant) => [grant.attempt, grant]))
    const missing = [...prolonged.lost]
    for (const [index, claim] of waiting.entries()) {
      const token = granted.get(claim.attempt)?.token ?? tokens[index]
      if (token === undefined) missing.push(claim)
      else if (token !== null && !granted.has(claim.attempt))
        granted.set(claim.attempt, this.grantOf(claim, { token }))
    }
    const known = new Set([...held, ...waiting].map(({ attempt }) => attempt))
    for (const { attempt } of missing) known.delete(attempt)
    const [lost, unlisted] = await Promise.all([
      Promise.all(missing.map((claim) => this.lossOf(claim, call))),
      this.claimsBesides(known, call),
    ])
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted: [...granted.values()], unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    return (await this.#isKnown(call)) ? this.queue.tryAcquire(request, call) : { kind: 'session-gone' }
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<'fenced'>> {
    return (await this.#isKnown(call)) ? this.queue.enqueue(request, call) : { kind: 'session-gone' }
  }

  /** An attached session does not know its time before it has been prolonged. */
  async #isKnown(call: Call): Promise<boolean> {
    return this.hasBeenProlonged || (await this.keepAlive({ held: [], waiting: [] }, call)).kind === 'alive'
  }
}
