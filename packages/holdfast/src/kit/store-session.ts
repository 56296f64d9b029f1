/**
 * A session of an engine with ordered keys: what it answers, from what its `ClaimStore` says.
 *
 *   join      Lost answer: core abandons the attempt. A copy that lands after the abandon finds the mark (T73, late originals); after the end of
 *             the session, no session.
 *   grant     counts from the session's last prolongation (T65, belief from the push). After a pause the session may have gone, and its keys with it.
 *   release   names the grant, so a late copy never hits a successor (G7). Lost answer: unknown, and core abandons the attempt.
 *   abandon   deletes. If a join of the attempt may still land, a mark comes first, so that no copy lands in between. A full engine
 *             refuses the mark: then a keep-alive finds what has landed (`unlisted`), and core abandons it again (T99, full engines).
 */
import type { Clock, Instant } from '../base/clock.ts'
import { outcomeOf } from '../base/errors.ts'
import type { Random } from '../base/ids.ts'
import { RecentSet } from '../base/recent-set.ts'
import { TransientMap } from '../base/transient-map.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Attempt,
  Call,
  Claim,
  EnqueueResult,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
} from '../spi.ts'
import { answering } from './answering.ts'
import type { DataRecord } from './claim-records.ts'
import type { ClaimStore, Joined } from './conditional-store.ts'
import type { Lifetime } from './lifetime.ts'
import { PredecessorQueue } from './predecessor-queue.ts'
import { SessionBase, type SessionFacts } from './session.ts'
import { StoreQueue, wasAbandoned } from './store-queue.ts'
import type { QueuedClaim, StoredClaim } from './stored-name.ts'

/** Core asks for no attempt that it has abandoned, so it is enough to know those of which a call may still be under way. */
const MAX_ABANDONED = 10_000

export interface StoreSessionOptions<C extends QueuedClaim> {
  readonly store: ClaimStore<C>
  readonly lifetime: Lifetime
  readonly clock: Clock
  readonly random: Random
}

export class StoreSession<
  C extends QueuedClaim = StoredClaim,
  Since extends Instant | null = Instant,
> extends SessionBase<'fenced', Since> {
  readonly #store: ClaimStore<C>
  readonly #lifetime: Lifetime
  readonly #queue: PredecessorQueue
  readonly #joins = new Joins()
  /** Attempts that were abandoned here. Those that left no mark at the engine are refused by this. */
  readonly #abandoned = new RecentSet<string>(MAX_ABANDONED)

  constructor({ store, lifetime, clock, random }: StoreSessionOptions<C>, facts: SessionFacts<Since>) {
    super(facts)
    this.#store = store
    this.#lifetime = lifetime
    const session = () => ({ since: this.prolongedAt, ttlMs: this.ttlMs })
    const queue = new StoreQueue(lifetime.backend, store, (request, join) => this.#joins.send(request, join))
    this.#queue = new PredecessorQueue({ lifetime, store: queue, clock, random, session })
  }

  get isFull(): boolean {
    return this.#store.isFull === true
  }

  tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    return this.#acquire(request, () => this.#queue.tryAcquire(request, call), call)
  }

  enqueue(request: AcquireRequest, attempt: Attempt<'fenced'>): void {
    answering(
      attempt,
      this.#acquire(request, () => this.#queue.enqueue(request, attempt), attempt),
    )
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    this.#lifetime.begin(call)
    const { held } = listed
    const waiting = this.#joins.withoutAsked(listed.waiting)
    const prolonged = await this.#store.prolong(held, call)
    if (prolonged === null) {
      this.#queue.end()
      return { kind: 'gone' }
    }
    const { since } = prolonged
    this.prolonged(since, prolonged.ttlMs)
    const granted = new Map((await this.#queue.check(waiting, call)).map((grant) => [grant.attempt, grant]))
    const missing = [...prolonged.lost]
    // Waiters whose calls still wait have been looked for just now.
    const seen = this.#queue.attempts
    const unseen = waiting.filter(({ attempt }) => !granted.has(attempt) && !seen.has(attempt))
    const claims = await Promise.all(unseen.map((claim) => this.#claimOf(claim, call)))
    for (const [index, claim] of unseen.entries()) {
      const own = claims[index]
      if (own === undefined) missing.push(claim)
      else if (own.granted && own.token !== null)
        granted.set(claim.attempt, this.grantOf(claim, { token: own.token }))
    }
    const known = new Set([...held, ...waiting].map(({ attempt }) => attempt))
    for (const { attempt } of missing) known.delete(attempt)
    const [lost, unlisted] = await Promise.all([
      Promise.all(missing.map((claim) => this.#lossOf(claim, call))),
      prolonged.besides?.filter(({ attempt }) => !known.has(attempt)) ??
        this.#store.claimsBesides?.(known, call) ??
        [],
    ])
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted: [...granted.values()], unlisted }
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    this.#lifetime.begin(call)
    const own = await (this.#store.held?.(claim, call) ?? this.#claimOf(claim, call))
    if (own === undefined || String(own.token) !== claim.grantId) return 'not-held'
    const owner = own.record?.owner
    const written = { data, id: own.id, holder: this.holder, token: claim.grantId }
    const record: DataRecord = owner === undefined ? written : { ...written, owner }
    return (await this.#store.putData(own, record, call)) ? 'stored' : 'not-held'
  }

  async release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    this.#lifetime.begin(call)
    const isReleased = await this.#store.release(claim, keepForMs, call)
    this.#ended(claim, isReleased)
    return isReleased ? 'released' : 'not-held'
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    this.#lifetime.begin(call)
    this.#abandoned.add(claim.attempt)
    const isSettled = this.#joins.areSettled(claim)
    if (!isSettled) await this.#store.mark(claim, call)
    await this.#store.remove(claim, isSettled, call)
    this.#ended(claim, true)
  }

  async close(call: Call): Promise<void> {
    this.#lifetime.begin(call)
    await this.#store.close(call)
    this.#queue.end()
  }

  async #acquire<R extends EnqueueResult<'fenced'> | AcquireResult<'fenced'>>(
    request: AcquireRequest,
    ask: () => Promise<R>,
    call: Call,
  ): Promise<R | { readonly kind: 'session-gone' }> {
    this.#lifetime.begin(call)
    if (!(await this.#isKnown(call))) return { kind: 'session-gone' }
    if (this.#abandoned.has(request.attempt)) throw wasAbandoned(this.#lifetime.backend)
    const isNew = !this.#joins.has(request)
    try {
      const result = await ask()
      // An attempt that was asked for before may have its position still.
      if (isNew && result.kind !== 'granted') this.#ended(request, true)
      return result
    } catch (error) {
      // After an unknown outcome the attempt is abandoned later.
      if (isNew && outcomeOf(error) !== 'unknown') this.#ended(request, false)
      throw error
    }
  }

  /** An attached session does not know its time before it has been prolonged. */
  async #isKnown(call: Call): Promise<boolean> {
    return this.hasBeenProlonged || (await this.keepAlive({ held: [], waiting: [] }, call)).kind === 'alive'
  }

  async #claimOf(claim: Claim, call: Call): Promise<C | undefined> {
    return (await this.#store.look(claim, call)).claim(claim.attempt)
  }

  /** The engine's own reason comes first. */
  async #lossOf(claim: Claim, call: Call): Promise<LostClaim> {
    const { attempt } = claim
    this.#ended(claim, false)
    const [mark, stored] = await Promise.all([this.#store.markOf(claim, call), this.#store.look(claim, call)])
    if (mark?.reason === 'force-released')
      return { attempt, ...(mark.detail !== undefined && { detail: mark.detail }), reason: 'force-released' }
    const isTaken = stored.holders.some((holder) => holder.attempt !== attempt)
    return { attempt, reason: isTaken ? 'taken-over' : 'deleted' }
  }

  /** `isGone`: its key is not there any more, for certain. */
  #ended(claim: Claim, isGone: boolean): void {
    this.#store.ended?.(claim, isGone && this.#joins.areSettled(claim))
    this.#joins.forget(claim)
  }
}

/** The joins that this process has sent, by attempt. */
class Joins {
  /** `asked`: how many are in flight. `open`: how many may still land. */
  readonly #sent = new TransientMap<string, { count: number; asked: number; open: number }>()

  has({ attempt }: Claim): boolean {
    return this.#sent.has(attempt)
  }

  /** Every join of the attempt was sent by this process, once, and answered. So no copy of one can land. */
  areSettled({ attempt }: Claim): boolean {
    return this.#sent.get(attempt)?.open === 0
  }

  /** Without those whose join is in flight: the engine may not know them yet, and must not call them lost. */
  withoutAsked(claims: readonly Claim[]): readonly Claim[] {
    return claims.filter(({ attempt }) => (this.#sent.get(attempt)?.asked ?? 0) === 0)
  }

  async send<C extends QueuedClaim>({ attempt }: Claim, join: () => Promise<Joined<C>>) {
    const sent = this.#sent.get(attempt) ?? { count: 0, asked: 0, open: 0 }
    this.#sent.set(attempt, sent)
    const isFirst = ++sent.count === 1
    sent.asked++
    sent.open++
    try {
      const joined = await join()
      if (!joined.mayLandAgain) sent.open--
      return { joined, isFirst }
    } catch (error) {
      if (outcomeOf(error) !== 'unknown') sent.open--
      throw error
    } finally {
      sent.asked--
    }
  }

  forget({ attempt }: Claim): void {
    this.#sent.delete(attempt)
  }
}
