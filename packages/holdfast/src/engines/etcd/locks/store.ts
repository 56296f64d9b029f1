/** One session's claims at etcd: the kit's `ClaimStore` over the transactions of `statements.ts`. */
import { instantOf } from '../../../base/clock.ts'
import type { DataRecord, MarkRecord } from '../../../kit/claim-records.ts'
import type { ClaimStore, GrantedByStore, Joined, Prolonged } from '../../../kit/conditional-store.ts'
import type { QueueEntry, QueueView, WatchedKey } from '../../../kit/ordered-store.ts'
import type { StoredName } from '../../../kit/stored-name.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim, Mode } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { type Committed, type Connection, unavailable } from './connection.ts'
import { type GrantParts, leaseOf, modes, partsOfGrant, tokenOf } from './keys.ts'
import { Found, type FoundClaim } from './records.ts'
import type { Slots } from './slots.ts'
import { type SessionRef, Statements } from './statements.ts'

const ONLY_DELETIONS = [0]

export class EtcdClaims implements ClaimStore<FoundClaim> {
  readonly comparesOrder = true
  readonly #connection: Connection
  readonly #session: SessionRef
  readonly #statements: Statements

  constructor(connection: Connection, session: SessionRef) {
    this.#connection = connection
    this.#session = session
    this.#statements = new Statements(connection.keys, session)
  }

  async join(request: AcquireRequest, mayWait: boolean, call: Call): Promise<Joined<FoundClaim>> {
    if (!this.#session.isOpenedHere) await this.#locate([request], call)
    this.#slots.take(request)
    const nowMs = this.#connection.clock.wallMs()
    const build = (index: number) => this.#statements.join(request, mayWait, nowMs, index)
    const committed = await this.#connection.commit(request.name, build, call)
    const { found, branch, isRepeated: mayLandAgain } = committed
    const { name } = found
    if (branch === 'first') return { ...granted(request.mode, committed), mayLandAgain }
    const key = this.#statements.key(request, request.mode)
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
  async look({ name }: Claim, call: Call): Promise<StoredName<FoundClaim>> {
    return (await this.#connection.look(name, call)).name
  }

  async isAlive(call: Call): Promise<boolean> {
    const read = [etcd.get(this.#connection.keys.session(this.#session.lease))]
    return (await this.#connection.read(read, call)).session?.revision === this.#session.revision
  }

  async confirm(
    request: AcquireRequest,
    { order }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<GrantedByStore | StoredName<FoundClaim>> {
    const [own, version, nowMs] = [Number(order), Number(seen?.version ?? 0), this.#connection.clock.wallMs()]
    const build = (index: number) => this.#statements.confirm(request, own, version, nowMs, index)
    const committed = await this.#connection.commit(request.name, build, call)
    return committed.branch === 'none' ? committed.found.name : granted(request.mode, committed)
  }

  async leave(request: AcquireRequest, call: Call): Promise<void> {
    await this.#commit(request, this.#statements.leave(request), call)
  }

  async release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<boolean> {
    const grant = partsOfGrant(claim.grantId)
    if (grant === null) return false
    await this.#locate([claim], call)
    const closed = keepForMs > 0 ? await this.#releaseClosed(claim, grant, keepForMs, call) : null
    const { isDone, isRepeated } =
      closed ?? (await this.#commit(claim, this.#statements.release(claim, grant, null), call))
    if (!isDone && isRepeated)
      throw unavailable('the release was asked again, and an earlier copy may have been applied', 'unknown')
    return isDone
  }

  async remove(claim: Claim, _isSettled: boolean, call: Call): Promise<void> {
    if (!this.#slots.knows(claim)) await this.#locate([claim], call)
    if (this.#slots.knows(claim)) await this.#commit(claim, this.#statements.remove(claim), call)
  }

  async mark(claim: Claim, call: Call): Promise<void> {
    await this.#commit(claim, this.#statements.mark(claim), call).catch(unlessFull)
  }

  async markOf({ attempt }: Claim, call: Call): Promise<MarkRecord | undefined> {
    const mark = etcd.get(this.#connection.keys.mark(this.#session.lease, attempt))
    return (await this.#connection.read([mark], call)).mark
  }

  async held(claim: GrantedClaim, call: Call): Promise<FoundClaim | undefined> {
    await this.#locate([claim], call)
    const [own] = await this.#claimsIn([etcd.get(this.#keyOf(claim))], call)
    return own
  }

  async putData(own: FoundClaim, record: DataRecord, call: Call): Promise<boolean> {
    if (own.lease !== this.#session.lease) return false
    const request = this.#statements.setData(own, record)
    return (await this.#connection.commit(own.name, () => request, call, false)).branch === 'first'
  }

  async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    const { client, clock, keys } = this.#connection
    const since = instantOf(clock)
    await this.#locate(held, call)
    const { lease } = this.#session
    // Without any read in it, a member would answer a transaction by itself, however old its state is.
    const reads = [keys.session(lease), ...held.map((claim) => this.#keyOf(claim))]
    const operations = reads.map((key) => etcd.get(key, { keys_only: true }))
    const check = etcd.onCondition([this.#statements.alive()], operations.slice(0, etcd.READS_AT_ONCE))
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
    const { client, keys } = this.#connection
    const lease = { ID: this.#session.lease, keys: true }
    const slots = new Set([...known].map((attempt) => this.#slots.of(attempt)))
    const { keys: attached } = await client.ask(etcd.methods.leaseTimeToLive, lease, call)
    const claims = attached
      .map((key) => ({ key, ...keys.parse(key) }))
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
    return this.#connection.keys.part(name, 'capacity').key
  }

  /** The session's key goes first: watchers read claims that are deleted together with it as expired. */
  async close(call: Call): Promise<void> {
    const { client, keys } = this.#connection
    const { lease } = this.#session
    const deletion = etcd.onCondition([this.#statements.alive()], [etcd.remove(keys.session(lease))])
    await this.#connection.transact(deletion, call, () => {})
    await etcd.revokeLease(client, lease, call)
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
    claim: GrantedClaim,
    grant: GrantParts,
    keepForMs: number,
    call: Call,
  ): Promise<Done | null> {
    const { client, namespace, random } = this.#connection
    const ID = leaseOf(namespace, random.id())
    try {
      await etcd.grantLease(client, ID, keepForMs, call)
      // The lease may be over. Then only this release fails, and not a batch.
      const request = this.#statements.release(claim, grant, ID)
      let isRepeated = false
      const { succeeded } = await this.#connection.transact(request, call, () => {
        isRepeated = true
      })
      return { isDone: succeeded, isRepeated }
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
      modes.map((mode) => etcd.getAll(this.#connection.keys.claims(name, mode, this.#session.lease))),
    )
    for (const claim of await this.#claimsIn(reads, call))
      if (unknown.has(claim.attempt)) this.#slots.set(claim, claim.slot)
  }

  async #claimsIn(reads: readonly etcd.Operation[], call: Call): Promise<readonly FoundClaim[]> {
    const { kvs, revision } = await etcd.readAll(this.#connection.client, reads, call)
    return new Found(this.#connection.keys, kvs, revision).name.claims
  }

  async #commit(claim: Claim, request: etcd.TxnRequest, call: Call): Promise<Done> {
    const { branch, isRepeated } = await this.#connection.commit(claim.name, () => request, call)
    return { isDone: branch === 'first', isRepeated }
  }

  #keyOf(claim: GrantedClaim): string {
    return this.#statements.key(claim, partsOfGrant(claim.grantId)?.mode ?? 'exclusive')
  }

  get #slots(): Slots {
    return this.#statements.slots
  }
}

interface Done {
  readonly isDone: boolean
  /** The request was sent more than once. */
  readonly isRepeated: boolean
}

function granted(mode: Mode, { revision, index, found }: Committed): GrantedByStore {
  return { kind: 'granted', token: tokenOf(revision, index, mode), previousData: found.data?.data }
}

function unlessFull(error: unknown): null {
  if (etcd.isFull(error)) return null
  throw error
}
