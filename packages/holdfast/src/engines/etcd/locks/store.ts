/**
 * One session's claims at etcd. What may go wrong between the steps of its transactions:
 *
 *   join       creates the key, granted if nothing is in the way. Lost answer: the attempt asked again finds its key, and an abandon
 *              deletes it. A copy that lands after the abandon finds the mark (T73, late originals); after the end of the session, no session key.
 *              A join that was sent once and answered cannot land again, so its abandon needs no mark.
 *   confirm    after waiting, on condition that the same key is there (T17, checks after waiting) and waits, and nothing older is there
 *              (T92, predecessors that cancel). The grant is this write, so its token is not older than the wait (C54, tokens drawn at the grant). A pause before it:
 *              the session may have ended, and its keys with it. A pause after it: belief counts from the session's last prolongation.
 *   release    compares the revision of the grant, so a successor is never hit (G7). Lost answer: core abandons the attempt. Asked
 *              again and refused: unknown, because the first copy may have done it.
 *   abandon    deletes the key, if it is the attempt's. If a join may still land, the mark is written before that: of what lands in
 *              between, the deletion comes after. A full etcd refuses the mark, and never a deletion (T99, full engines): what lands late is
 *              found by the next keep-alive.
 *
 * A transaction that writes on the session's lease compares the session's key, which is on the same lease. So the lease lives, and a
 * batch cannot fail because of one request. Comparisons see what was before the whole batch, so a batch has one request for a name.
 */
import { instantOf } from '../../../base/clock.ts'
import {
  claimRecord,
  type DataRecord,
  type MarkRecord,
  type SessionRecord,
} from '../../../kit/claim-records.ts'
import type { ClaimStore, GrantedByStore, Joined, Prolonged } from '../../../kit/conditional-store.ts'
import type { QueueEntry, QueueView, WatchedKey } from '../../../kit/ordered-store.ts'
import type { StoredName } from '../../../kit/stored-name.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim, Mode } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { type Committed, type Connection, unavailable } from './connection.ts'
import { type Keys, leaseOf, modes, partsOfGrant, tokenOf } from './keys.ts'
import { claimValue, type EtcdClaim, Found, isOf, waits } from './records.ts'
import { Slots } from './slots.ts'

/** A session as its transactions name it. `revision`: that of its key's creation. */
export interface SessionRef {
  readonly lease: number
  readonly revision: number
  readonly record: SessionRecord
  /** By this process, so that it knows the keys of all its claims. */
  readonly isOpenedHere: boolean
}

const ONLY_DELETIONS = [0]

export class EtcdClaims implements ClaimStore<EtcdClaim> {
  readonly comparesOrder = true
  readonly #connection: Connection
  readonly #keys: Keys
  readonly #session: SessionRef
  readonly #slots = new Slots()

  constructor(connection: Connection, session: SessionRef) {
    this.#connection = connection
    this.#keys = connection.keys
    this.#session = session
  }

  async join(request: AcquireRequest, mayWait: boolean, call: Call): Promise<Joined<EtcdClaim>> {
    if (!this.#session.isOpenedHere) await this.#locate([request], call)
    this.#slots.take(request)
    const build = (index: number) => this.#join(request, mayWait, index)
    const committed = await this.#connection.commit(request.name, build, call)
    const { found, branch, isRepeated: mayLandAgain } = committed
    const { name } = found
    if (branch === 'first') return { ...granted(request.mode, committed), mayLandAgain }
    const key = this.#key(request, request.mode)
    if (branch === 'second') {
      const own = { key, order: BigInt(found.revision), weight: request.weight, granted: false }
      return { kind: 'created', own, name, mayLandAgain }
    }
    if (found.session?.revision !== this.#session.revision) return { kind: 'session-gone' }
    if (found.mark !== undefined) return { kind: 'abandoned' }
    if (name.claim(request.attempt) === undefined && name.claims.some((claim) => claim.key === key)) {
      // A late request of an ended attempt has it. With a second key, a late copy of this request could get the first one as
      // well (T84, late duplicates). As `unknown` the attempt is abandoned, and its mark refuses all copies.
      this.#slots.set(request, request.attempt)
      throw unavailable('a late request of an earlier attempt has taken its key', 'unknown')
    }
    return { kind: 'refused', name, mayLandAgain }
  }

  /** Waiters that look at one name at the same moment share the read. */
  async look({ name }: Claim, call: Call): Promise<StoredName<EtcdClaim>> {
    return (await this.#connection.look(name, call)).name
  }

  async isAlive(call: Call): Promise<boolean> {
    const read = [etcd.get(this.#keys.session(this.#session.lease))]
    return (await this.#connection.read(read, call)).session?.revision === this.#session.revision
  }

  async confirm(
    request: AcquireRequest,
    { order }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<GrantedByStore | StoredName<EtcdClaim>> {
    const [own, version] = [Number(order), Number(seen?.version ?? 0)]
    const build = (index: number) => this.#confirm(request, own, version, index)
    const committed = await this.#connection.commit(request.name, build, call)
    return committed.branch === 'none' ? committed.found.name : granted(request.mode, committed)
  }

  async leave(request: AcquireRequest, call: Call): Promise<void> {
    const own = this.#key(request, request.mode)
    await this.#commit(request, etcd.onCondition(waits(own, request.attempt), [etcd.remove(own)]), call)
  }

  async release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<boolean> {
    const grant = partsOfGrant(claim.grantId)
    if (grant === null) return false
    await this.#locate([claim], call)
    const own = this.#key(claim, grant.mode)
    const release = (...closing: readonly etcd.Operation[]) =>
      etcd.onCondition([etcd.written(own, grant.revision)], [etcd.remove(own), ...closing])
    const closed = keepForMs > 0 ? await this.#releaseClosed(claim, release, keepForMs, call) : null
    const { branch, isRepeated } = closed ?? (await this.#commit(claim, release(), call))
    if (branch === 'none' && isRepeated)
      throw unavailable('the release was asked again, and an earlier copy may have been applied', 'unknown')
    return branch === 'first'
  }

  /** Whether it waits or is granted, and in whichever mode. */
  async remove(claim: Claim, _isSettled: boolean, call: Call): Promise<void> {
    if (!this.#slots.knows(claim)) await this.#locate([claim], call)
    if (!this.#slots.knows(claim)) return
    const { attempt } = claim
    const removals = modes.map((mode) => {
      const own = this.#key(claim, mode)
      return { txn: etcd.onCondition(isOf(own, attempt), [etcd.remove(own)]) }
    })
    await this.#commit(claim, etcd.always(removals), call)
  }

  /** A session that has gone has left nothing, so there is nothing to do. */
  async mark(claim: Claim, call: Call): Promise<void> {
    const { lease } = this.#session
    const mark = etcd.put(this.#keys.mark(lease, claim.attempt), '{"reason":"abandoned"}', lease)
    await this.#commit(claim, etcd.onCondition([this.#alive], [mark]), call).catch(unlessFull)
  }

  async markOf({ attempt }: Claim, call: Call): Promise<MarkRecord | undefined> {
    const mark = etcd.get(this.#keys.mark(this.#session.lease, attempt))
    return (await this.#connection.read([mark], call)).mark
  }

  async held(claim: GrantedClaim, call: Call): Promise<EtcdClaim | undefined> {
    await this.#locate([claim], call)
    const [own] = await this.#claimsIn([etcd.get(this.#keyOf(claim))], call)
    return own
  }

  async putData(own: EtcdClaim, record: DataRecord, call: Call): Promise<boolean> {
    if (own.lease !== this.#session.lease) return false
    const cell = etcd.put(this.#keys.data(own.name), JSON.stringify(record))
    const request = etcd.onCondition([etcd.written(own.key, own.revision)], [cell])
    return (await this.#connection.commit(own.name, () => request, call, false)).branch === 'first'
  }

  async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    const { client, clock } = this.#connection
    const since = instantOf(clock)
    await this.#locate(held, call)
    const { lease } = this.#session
    // Without any read in it, a member would answer a transaction by itself, however old its state is.
    const reads = [this.#keys.session(lease), ...held.map((claim) => this.#keyOf(claim))]
    const operations = reads.map((key) => etcd.get(key, { keys_only: true }))
    const check = etcd.onCondition([this.#alive], operations.slice(0, etcd.READS_AT_ONCE))
    const { isProlonged, response } = await etcd.prolongLease(client, lease, check, call)
    if (!response.succeeded) return null
    if (!isProlonged)
      throw unavailable('the leader has changed, and may not know of the keep-alive', 'unknown')
    const others = await etcd.readAll(client, operations.slice(etcd.READS_AT_ONCE), call)
    const kvs = [...etcd.kvsOf(response), ...others.kvs]
    const revisions = new Map(kvs.map(({ key, mod_revision }) => [key, mod_revision]))
    const isLost = (claim: GrantedClaim) =>
      revisions.get(this.#keyOf(claim)) !== (partsOfGrant(claim.grantId)?.revision ?? 0)
    return { since, lost: held.filter(isLost) }
  }

  /** The leader lists the keys on the lease. They are read, because the list may be old. */
  async claimsBesides(known: ReadonlySet<string>, call: Call): Promise<readonly Claim[]> {
    const lease = { ID: this.#session.lease, keys: true }
    const slots = new Set([...known].map((attempt) => this.#slots.of(attempt)))
    const { keys } = await this.#connection.client.ask(etcd.methods.leaseTimeToLive, lease, call)
    const claims = keys
      .map((key) => ({ key, ...this.#keys.parse(key) }))
      .filter(({ mode }) => mode !== undefined)
    // A late join may have the slot of a known attempt, in another mode.
    const reads = [...Map.groupBy(claims, ({ id = '' }) => id)].flatMap(([id, found]) =>
      slots.has(id) && found.length === 1 ? [] : found.map(({ key }) => etcd.get(key)),
    )
    return (await this.#claimsIn(reads, call)).filter(({ attempt }) => !known.has(attempt))
  }

  ended(claim: Claim, isReusable: boolean): void {
    if (isReusable) this.#slots.free(claim)
    else this.#slots.forget(claim)
  }

  capacityKey(name: string): string {
    return this.#keys.part(name, 'capacity').key
  }

  /** The session's key goes first: watchers read claims that are deleted together with it as expired. */
  async close(call: Call): Promise<void> {
    const { lease } = this.#session
    const deletion = etcd.onCondition([this.#alive], [etcd.remove(this.#keys.session(lease))])
    await this.#connection.transact(deletion, call, () => {})
    await etcd.revokeLease(this.#connection.client, lease, call)
  }

  watch(
    keys: readonly WatchedKey[],
    version: bigint,
    onWake: (wake: 'changed' | 'lost') => void,
  ): () => void {
    const watched = keys.map(({ key, until }) => ({
      // The capacity is a range of keys.
      ...(key.endsWith('/') ? etcd.prefixed(key) : { key }),
      start_revision: Number(version) + 1,
      filters: until === 'deleted' ? ONLY_DELETIONS : [],
    }))
    return this.#connection.watches.once(watched, onWake)
  }

  /**
   * Closes the name on a lease of its own. If the release is not applied, the lease ends by itself. Null: etcd is full, and refuses
   * what would keep the name closed. It refuses every new grant as well.
   */
  async #releaseClosed(
    claim: Claim,
    release: (closing: etcd.Operation) => etcd.TxnRequest,
    keepForMs: number,
    call: Call,
  ): Promise<Outcome | null> {
    const { client, namespace, random } = this.#connection
    const ID = leaseOf(namespace, random.id())
    try {
      await etcd.grantLease(client, ID, keepForMs, call)
      const kept = this.#keys.of(claim.name, 'kept', 0, this.#slots.of(claim.attempt))
      let isRepeated = false
      // The lease may be over. Then only this release fails, and not a batch.
      const { succeeded } = await this.#connection.transact(release(etcd.put(kept, '', ID)), call, () => {
        isRepeated = true
      })
      return { branch: succeeded ? 'first' : 'none', isRepeated }
    } catch (error) {
      return unlessFull(error)
    }
  }

  /** Finds the keys of claims that another process has made. */
  async #locate(claims: readonly Claim[], call: Call): Promise<void> {
    const unknown = new Map(
      claims.filter((claim) => !this.#slots.knows(claim)).map((claim) => [claim.attempt, claim]),
    )
    const reads = [...unknown.values()].flatMap(({ name }) =>
      modes.map((mode) => etcd.getAll(this.#keys.claims(name, mode, this.#session.lease))),
    )
    for (const claim of await this.#claimsIn(reads, call))
      if (unknown.has(claim.attempt)) this.#slots.set(claim, claim.slot)
  }

  async #claimsIn(reads: readonly etcd.Operation[], call: Call): Promise<readonly EtcdClaim[]> {
    const { kvs, revision } = await etcd.readAll(this.#connection.client, reads, call)
    return new Found(this.#keys, kvs, revision).name.claims
  }

  #commit(claim: Claim, request: etcd.TxnRequest, call: Call): Promise<Committed> {
    return this.#connection.commit(claim.name, () => request, call)
  }

  #key({ name, attempt }: Claim, mode: Mode): string {
    return this.#keys.of(name, mode, this.#session.lease, this.#slots.of(attempt))
  }

  #keyOf(claim: GrantedClaim): string {
    return this.#key(claim, partsOfGrant(claim.grantId)?.mode ?? 'exclusive')
  }

  get #alive(): etcd.Compare {
    return etcd.created(this.#keys.session(this.#session.lease), this.#session.revision)
  }

  /** Granted if nothing is in the way; else it waits, if it may; else it is read why not. */
  #join(request: AcquireRequest, mayWait: boolean, index: number): etcd.TxnRequest {
    const { name, attempt, mode } = request
    const own = this.#key(request, mode)
    const mark = etcd.absent(this.#keys.mark(this.#session.lease, attempt))
    const may = [this.#alive, mark, etcd.absent(own)]
    const inTheWay = this.#keys.part(name, 'exclusive', mode === 'shared' ? 'permits' : 'shared')
    // Locks and semaphores do not mix.
    const others = (mode === 'permits' ? (['exclusive', 'shared'] as const) : (['permits'] as const)).map(
      (each) => this.#keys.part(name, each),
    )
    const refused = [...this.#status(request), ...others.map((each) => etcd.getAll(each, { limit: 1 }))]
    const waits = [...this.#older(request), this.#put(request)]
    const waiting = etcd.onCondition([...may, ...others.map(etcd.none)], waits, refused)
    const otherwise = mayWait || mode === 'permits' ? [{ txn: waiting }] : refused
    return etcd.onCondition([...may, etcd.none(inTheWay)], this.#grant(request, index), otherwise)
  }

  /** For permits: the claim was eligible at the revision `version`, and stays so unless the capacity was changed since. */
  #confirm(request: AcquireRequest, order: number, version: number, index: number) {
    const { name, attempt, mode } = request
    const own = this.#key(request, mode)
    const isOpen = etcd.none(this.#keys.part(name, 'kept'))
    const same = [etcd.created(own, order), ...waits(own, attempt), isOpen]
    const grant = this.#grant(request, index)
    const otherwise = [...this.#status(request), ...this.#older(request, order - 1)]
    const conflicts = this.#keys.part(name, 'exclusive', mode === 'shared' ? 'exclusive' : 'shared')
    const isEligible =
      mode === 'permits'
        ? etcd.unchangedSince(this.#keys.part(name, 'capacity'), version)
        : etcd.nothingOlder(conflicts, order)
    const confirm = etcd.onCondition([...same, isEligible], grant, otherwise)
    // The own key is among the writers, so there is one. For a reader there may be none.
    return mode === 'shared'
      ? etcd.onCondition([...same, etcd.none(conflicts)], grant, [{ txn: confirm }])
      : confirm
  }

  /** Claims that stand in front of it. Of locks the youngest is enough, unless the waiters are counted. */
  #older({ name, mode, maxWaiters }: AcquireRequest, before?: number): etcd.Operation[] {
    const all = [this.#keys.part(name, 'exclusive', 'shared'), this.#keys.part(name, 'capacity')]
    if (mode === 'permits' || maxWaiters !== undefined) return all.map((range) => etcd.getAll(range))
    const kept = etcd.getAll(this.#keys.part(name, 'kept'), { limit: 1 })
    const writer = etcd.youngest(this.#keys.part(name, 'exclusive'), before)
    return mode === 'shared'
      ? [kept, writer]
      : [kept, writer, etcd.youngest(this.#keys.part(name, 'shared'), before)]
  }

  /** `index`: it is granted at this position of a batch. */
  #put(request: AcquireRequest, index?: number): etcd.Operation {
    const { lease, record } = this.#session
    const written = claimRecord(request, record, this.#connection.clock.wallMs())
    return etcd.put(this.#key(request, request.mode), claimValue(request.attempt, written, index), lease)
  }

  #grant(request: AcquireRequest, index: number): etcd.Operation[] {
    return [this.#put(request, index), etcd.get(this.#keys.data(request.name))]
  }

  #status(request: AcquireRequest): etcd.Operation[] {
    const { lease } = this.#session
    const own = this.#key(request, request.mode)
    const data = this.#keys.data(request.name)
    return [this.#keys.session(lease), this.#keys.mark(lease, request.attempt), own, data].map((key) =>
      etcd.get(key),
    )
  }
}

type Outcome = Pick<Committed, 'branch' | 'isRepeated'>

function granted(mode: Mode, { revision, index, found }: Committed): GrantedByStore {
  return { kind: 'granted', token: tokenOf(revision, index, mode), previousData: found.data?.data }
}

function unlessFull(error: unknown): null {
  if (etcd.isFull(error)) return null
  throw error
}
