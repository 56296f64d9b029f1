/**
 * The interface that an author writes for an engine with ordered keys: keys, values, writes on conditions, and what makes a session live. The kit
 * makes sessions (`StoreSession`) and the operators' calls (`StoreBackend`) out of it, and `describeStore` says when it is right.
 *
 * How engines fit:
 *
 *                       etcd                          ZooKeeper                        Consul
 *   a claim lives on    the session's lease           an ephemeral node                the session's lock
 *   order               create revision               sequence number                  CreateIndex
 *   join grants         in its own write, if          if its answer shows that it      as ZooKeeper
 *                       nothing is in the way         is alone: a derived grant
 *   confirm             compares a range              own version, after a look        own index, after a look
 *   token               revision of the granting      zxid of the granting write       index of the granting write
 *                       write
 *   keys of a session   the lease lists them          getEphemerals                    a prefix
 *   keys that expire    with a lease                  none: `closedForMs`              with a session
 *
 * Every call has three outcomes, as in the SPI: an answer, or a rejection that is `not-applied` or `unknown`.
 */
import type { Instant } from '../base/clock.ts'
import type {
  AcquireRequest,
  Call,
  Claim,
  GrantedClaim,
  InspectCall,
  Page,
  PageRequest,
  SessionState,
} from '../spi.ts'
import type { DataRecord, MarkRecord } from './claim-records.ts'
import type { OrderedStore, QueueEntry, QueueStanding, QueueView } from './ordered-store.ts'
import type { QueuedClaim, StoredClaim, StoredName } from './stored-name.ts'

export type GrantedByStore = Extract<QueueStanding, { kind: 'granted' }>

/** `mayLandAgain`: the engine was asked more than once, so a copy of the join may land later than this answer. */
export type Joined<C extends QueuedClaim> = { readonly mayLandAgain?: boolean } & (
  | GrantedByStore
  /** The key was created. `name`: at least what is older than `own` and in its way. */
  | { readonly kind: 'created'; readonly own: QueueEntry; readonly name: StoredName<C> }
  /** No key was created: the session has gone, or a mark of the attempt is there. */
  | { readonly kind: 'session-gone' }
  | { readonly kind: 'abandoned' }
  /**
   * No key was created, because the attempt has one, or a claim is in the way that waits for nothing. `name`: at least the attempt's
   * own claim, or a claim of another kind. A store that has derived the grant of this attempt answers it again instead.
   */
  | { readonly kind: 'refused'; readonly name: StoredName<C> }
)

export interface Prolonged {
  readonly since: Instant
  /** If the engine grants another TTL than before. */
  readonly ttlMs?: number
  /** Held claims that were listed, and that the session has no longer under the grant that was named. */
  readonly lost: readonly Claim[]
  /** All claims of the session at the engine, if the same answers tell them. `claimsBesides` is not asked then. */
  readonly besides?: readonly Claim[]
}

/** The claims of one session. */
export interface ClaimStore<C extends QueuedClaim = StoredClaim>
  extends Pick<OrderedStore, 'comparesOrder' | 'watch'> {
  /**
   * Creates the claim's key if the session lives and no mark of the attempt is there. Where the same answer proves that nothing
   * older is in the way, it grants. A late copy finds the key, the mark, or that the session has gone (T73, late originals).
   */
  join(request: AcquireRequest, mayWait: boolean, call: Call): Promise<Joined<C>>

  /**
   * A read of the claim's name that sees the session's own writes; without a key of this attempt, the name as it is. Reads of one
   * moment should leave together, and those of one name be one (`Lane`).
   */
  look(claim: Claim, call: Call): Promise<StoredName<C>>

  isAlive(call: Call): Promise<boolean>

  /** The session has at least half of the claims that the engine allows in one session (`BackendSession.isFull`). */
  readonly isFull?: boolean

  /** The granting write of a claim that waits, as `OrderedStore.confirm`. Refused: the name as it is now. */
  confirm(
    request: AcquireRequest,
    own: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<GrantedByStore | StoredName<C>>

  /** Deletes the claim's key if it waits. One that holds by a derived grant stays, too. */
  leave(request: AcquireRequest, call: Call): Promise<void>

  /** Deletes the claim's key if it has this grant; false if it has not (G7). `keepForMs`: the name stays closed for so long. */
  release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<boolean>

  /**
   * Deletes the claim's key, whether it holds or waits. It needs nothing that a full engine refuses (T99, full engines). `isSettled`: no join of
   * the attempt can land any more, so what was kept to refuse one may go as well.
   */
  remove(claim: Claim, isSettled: boolean, call: Call): Promise<void>

  /**
   * Leaves a mark that late joins of the attempt meet. A full engine may refuse it: then what lands late is found by
   * `claimsBesides` at a keep-alive.
   */
  mark(claim: Claim, call: Call): Promise<void>

  /** The attempt's mark, if there is one. */
  markOf(claim: Claim, call: Call): Promise<MarkRecord | undefined>

  /** The claim that has this grant, where this costs less than a look at the name and all its waiters. */
  held?(claim: GrantedClaim, call: Call): Promise<C | undefined>

  /** Writes the data cell if the claim is this session's, and still has the grant under which it was read (G7). */
  putData(own: C, record: DataRecord, call: Call): Promise<boolean>

  /** Prolongs the session at the engine. Null: it has gone. */
  prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null>

  /** The session's claims at the engine, but for these attempts. Without it, late joins are found by their marks alone. */
  claimsBesides?(known: ReadonlySet<string>, call: Call): Promise<readonly Claim[]>

  /**
   * The attempt has ended here. `isReusable`: its key is gone, and no copy of a join can create it again, so an engine that
   * prefers to use keys again may do so.
   */
  ended?(claim: Claim, isReusable: boolean): void

  /** The key that changes with the capacity of a name. */
  capacityKey?(name: string): string

  /** Gives up everything that the session has, and ends it. */
  close(call: Call): Promise<void>
}

/** The names of a namespace, as operators see them. */
export interface NameStore<C extends StoredClaim = StoredClaim> {
  /** A linearizable read. `holdersOnly`: the waiters are not needed. */
  read(name: string, call: InspectCall): Promise<StoredName<C>>
  list(
    prefix: string,
    page: PageRequest,
    call: Call,
  ): Promise<Page<{ readonly name: string; readonly stored: StoredName<C> }>>
  sessions(page: PageRequest, call: Call): Promise<Page<SessionState>>
  /** How much of the time of these claims' sessions is left, by the session's public id, where the engine can tell. */
  timeLeft?(claims: readonly C[], call: Call): Promise<ReadonlyMap<string, number>>
  /** Deletes the key of a holder if it is as it was read, and leaves the mark for its session. */
  endClaim(claim: C, mark: MarkRecord, call: Call): Promise<boolean>
  /** Writes another capacity if the claims and the capacity are as they were read. */
  changeCapacity(name: string, seen: StoredName<C>, capacity: number, call: Call): Promise<boolean>
  /** Deletes the data cell if it is as it was read, and the name has no claims. */
  deleteData(name: string, seen: StoredName<C>, call: Call): Promise<boolean>
}
