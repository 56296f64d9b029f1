/** A client's knowledge of its session, whatever the engine is: since when it may be believed, and its grants. */
import { type Instant, laterOf } from '../base/clock.ts'
import type { Claim, Fencing, Grant, ListedClaims, SessionHandle } from '../spi.ts'

export interface SessionFacts<Since extends Instant | null = Instant> {
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  readonly since: Since
  /** By default the id, the TTL and the holder. */
  readonly handle?: SessionHandle
}

/** So long ago that nothing may be believed of it. */
const NEVER: Instant = { monotonicMs: Number.NEGATIVE_INFINITY, wallMs: Number.NEGATIVE_INFINITY }

/** `Since` is null for an attached session where the engine cannot tell when it was last prolonged. */
export abstract class SessionBase<F extends Fencing, Since extends Instant | null = Instant> {
  readonly id: string
  readonly since: Since
  readonly handle: SessionHandle
  protected readonly holder: string
  #ttlMs: number
  /** When the request was sent that last prolonged the session; grants count from here (T64, new leases on old sessions; T65, belief from the push). */
  #prolongedAt: Instant

  constructor({ id, ttlMs, holder, since, handle = { id, ttlMs, holder } }: SessionFacts<Since>) {
    this.id = id
    this.#ttlMs = ttlMs
    this.since = since
    this.handle = handle
    this.holder = holder
    this.#prolongedAt = since ?? NEVER
  }

  /** As it was granted last. */
  get ttlMs(): number {
    return this.#ttlMs
  }

  protected get prolongedAt(): Instant {
    return this.#prolongedAt
  }

  /** False until the first keep-alive of an attached session without a `since`. */
  protected get hasBeenProlonged(): boolean {
    return this.#prolongedAt !== NEVER
  }

  /** `since`: when the request was sent that the engine is known to have applied. `ttlMs`: what it granted, where that may change. */
  protected prolonged(since: Instant, ttlMs = this.#ttlMs): void {
    this.#prolongedAt = laterOf(this.#prolongedAt, since)
    this.#ttlMs = ttlMs
  }

  protected grantOf(claim: Claim, facts: GrantFacts<F>): Grant<F> {
    return grantOf(claim, facts, { since: this.#prolongedAt, ttlMs: this.ttlMs })
  }
}

/** A grant of a session that was prolonged then. */
export function grantOf<F extends Fencing>(
  { name, attempt }: Claim,
  { token, grantId = String(token), data, since }: GrantFacts<F>,
  session: { readonly since: Instant; readonly ttlMs: number },
): Grant<F> {
  const grant = { name, attempt, grantId, token, since: since ?? session.since, ttlMs: session.ttlMs }
  return data == null ? grant : { ...grant, previousData: data }
}

/** `token` null: an engine without tokens, which names its grants by an id. */
export interface GrantFacts<F extends Fencing> {
  readonly token: Grant<F>['token']
  readonly grantId?: string
  readonly data?: string | null | undefined
  /** If the grant has a time of its own. */
  readonly since?: Instant
}

/** A claim as an engine has it. */
export interface FoundClaim extends Claim {
  /** Null while it waits. */
  readonly grantId: string | null
}

/** The answer to a keep-alive, from the claims that it lists and all claims that the session has at the engine. */
export function compareClaims<C extends FoundClaim>(
  listed: ListedClaims,
  found: Iterable<C>,
): { readonly lost: readonly Claim[]; readonly granted: readonly C[]; readonly unlisted: readonly Claim[] } {
  const others = new Map<string, C>()
  for (const claim of found) others.set(claim.attempt, claim)
  const lost: Claim[] = []
  const granted: C[] = []
  for (const claim of listed.held)
    if (others.get(claim.attempt)?.grantId === claim.grantId) others.delete(claim.attempt)
    else lost.push(claim)
  for (const claim of listed.waiting) {
    const own = others.get(claim.attempt)
    if (own === undefined) lost.push(claim)
    else if (own.grantId !== null) granted.push(own)
    others.delete(claim.attempt)
  }
  return { lost, granted, unlisted: [...others.values()].map(({ name, attempt }) => ({ name, attempt })) }
}
