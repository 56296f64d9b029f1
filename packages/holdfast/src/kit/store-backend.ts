/**
 * Operators' calls on a store with ordered keys. Each call reads the name, and then writes on condition of what it has read. So a
 * copy that arrives late finds something else, and does nothing (T74, misaimed force releases; T78, late operators). The store has no clock
 * to compare with, so a call that has expired is refused before its write is sent.
 */
import { callWith } from '../base/aborting.ts'
import type { Clock, Instant } from '../base/clock.ts'
import type { Random } from '../base/ids.ts'
import type {
  AttachedSession,
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  CapacityChange,
  InspectCall,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  SessionHandle,
  SessionRequest,
  SessionState,
} from '../spi.ts'
import { operatorCallExpired } from './backend-kit.ts'
import type { ClaimStore, NameStore } from './conditional-store.ts'
import type { Lifetime } from './lifetime.ts'
import { weightInUse } from './ordered-store.ts'
import type { SessionFacts } from './session.ts'
import { StoreSession } from './store-session.ts'
import type { QueuedClaim, StoredClaim, StoredName } from './stored-name.ts'

/** A session's claims, opened at the engine. `handle`: with which another process goes on; by default the id, the TTL and the holder. */
export interface OpenedClaims<C extends QueuedClaim, Since extends Instant | null>
  extends SessionFacts<Since> {
  readonly claims: ClaimStore<C>
}

export interface StoreBackendOptions<C extends StoredClaim> {
  readonly info: BackendInfo<'fenced'>
  readonly names: NameStore<C>
  readonly clock: Clock
  readonly random: Random
  readonly lifetime: Lifetime
}

/** `Q`: a claim as sessions see it. They may know less of it than operators. */
export abstract class StoreBackend<C extends StoredClaim, Q extends QueuedClaim = C>
  implements Backend<'fenced'>
{
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly names: NameStore<C>
  readonly #lifetime: Lifetime

  constructor({ info, names, clock, random, lifetime }: StoreBackendOptions<C>) {
    this.info = info
    this.clock = clock
    this.random = random
    this.names = names
    this.#lifetime = lifetime
  }

  /** Opens the session at the engine, or finds the one that an earlier request for this id has opened. */
  abstract openClaims(request: SessionRequest, call: Call): Promise<OpenedClaims<Q, Instant>>
  /** Null: the session has gone. */
  abstract findClaims(handle: SessionHandle, call: Call): Promise<OpenedClaims<Q, Instant | null> | null>
  abstract [Symbol.asyncDispose](): Promise<void>

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    this.#lifetime.begin(call)
    return this.#session(await this.openClaims(request, call))
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<AttachedSession<'fenced'> | null> {
    this.#lifetime.begin(call)
    const found = await this.findClaims(handle, call)
    return found === null ? null : this.#session(found)
  }

  async inspect(name: string, call: InspectCall): Promise<NameState | null> {
    const stored = await this.names.read(name, call)
    const leftMs = call.holdersOnly ? undefined : await this.names.timeLeft?.(stored.holders, call)
    return stored.state(name, this.clock.wallMs(), leftMs)
  }

  async list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    const { items, next } = await this.names.list(prefix, page, call)
    const states = items.map(({ name, stored }) => stored.state(name, this.clock.wallMs()))
    return { items: states.filter((state) => state !== null), next }
  }

  sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    return this.names.sessions(page, call)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const { holders } = await this.names.read(holder.name, holdersOf(call))
    return holders.some(({ id, token }) => id === holder.id && token === holder.token)
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const { holders } = await this.#read(name, call, true)
    const mark = { reason: 'force-released', detail: reason } as const
    let count = 0
    for (const claim of holders)
      if (ids.includes(claim.id) && (await this.names.endClaim(claim, mark, call))) count++
    return count
  }

  async resize(
    name: string,
    { from, to }: CapacityChange,
    call: OperatorCall,
  ): Promise<'resized' | 'in-use' | 'changed'> {
    const seen = await this.#read(name, call)
    const { claims, capacity } = seen
    if (claims[0]?.mode !== 'permits' || capacity !== from) return 'changed'
    if (Math.max(weightInUse(claims, from), ...claims.map(({ weight }) => weight)) > to) return 'in-use'
    return (await this.names.changeCapacity(name, seen, to, call)) ? 'resized' : 'changed'
  }

  async forget(name: string, data: string, call: OperatorCall): Promise<'forgotten' | 'in-use' | 'changed'> {
    const seen = await this.#read(name, call)
    if (seen.claims.length > 0) return 'in-use'
    if (seen.data?.data !== data) return 'changed'
    return (await this.names.deleteData(name, seen, call)) ? 'forgotten' : 'changed'
  }

  #session<Since extends Instant | null>({ claims: store, ...facts }: OpenedClaims<Q, Since>) {
    return new StoreSession(
      { store, lifetime: this.#lifetime, clock: this.clock, random: this.random },
      facts,
    )
  }

  async #read(name: string, call: OperatorCall, holdersOnly = false): Promise<StoredName<C>> {
    const stored = await this.names.read(name, holdersOnly ? holdersOf(call) : call)
    if (this.clock.wallMs() >= call.notAfterMs) throw operatorCallExpired(this.info.name)
    return stored
  }
}

function holdersOf({ signal }: Call): InspectCall {
  return callWith(signal, { holdersOnly: true })
}
