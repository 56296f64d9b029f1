/**
 * One session's claims at Consul. What may go wrong between the steps:
 *
 *   join       creates the key of the attempt and the claim, and reads the whole name at that index. What is older can only disappear, so
 *              if it leaves room, the claim is granted: a derived grant, whose token is this index. Else it waits. Lost answer: the
 *              attempt asked again finds its key. A copy that lands after the abandon finds the mark (T73, late originals).
 *   confirm    after waiting, compares the index of the own key, which nothing has changed since its creation. The token is the index of
 *              this write (C54, tokens drawn at the grant). A pause before it: the session may have ended, and its keys with it.
 *   release    compares the index of the grant and the session, so a successor is never hit (G7).
 *   abandon    deletes. If a join may still land, the key of the attempt becomes a mark before that. It goes when it is old (`LATE_MS`).
 *   prolong    a renewal, and a linearizable read after it. A renewal (T88, deposed leaders that renew) counts only if the
 *              session is known to have lived at most one TTL before (ADR 0026). Else there are two rounds (`#round`); the first one counts.
 *
 * A session with a lock-delay has a second session, which keeps a key beside each claim that holds. When both sessions end by themselves
 * the claim goes and this key stays, as a tombstone, and Consul refuses to lock it for so long. The next holder has to lock it in its
 * granting write. Release and close delete it before any session ends. Such a session never derives a grant, and neither does another
 * claim beside such a key: who holds is then always written.
 */
import { elapsedUntil, type Instant, instantOf } from '../../../base/clock.ts'
import { outcomeOf } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import { claimRecord, type DataRecord, type MarkRecord } from '../../../kit/claim-records.ts'
import type { ClaimStore, GrantedByStore, Joined, Prolonged } from '../../../kit/conditional-store.ts'
import { isEligible, type QueueEntry, type QueueView, type WatchedKey } from '../../../kit/ordered-store.ts'
import { whileQueued } from '../../../kit/store-queue.ts'
import type { StoredName } from '../../../kit/stored-name.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim } from '../../../spi.ts'
import * as consul from '../client/index.ts'
import { type Connection, foreign, takingAway, unavailable, unreadable } from './connection.ts'
import { indexOf, placeIn, tokens } from './keys.ts'
import {
  type ConsulClaim,
  claimsIn,
  claimValue,
  consulClaim,
  markIn,
  nameIn,
  type OpenedSession,
} from './records.ts'

/** No push tells that a lock-delay is over. The first waiter asks so often. */
const LOOK_AGAIN_MS = 200
/**
 * No copy of a join is in flight for longer than this, so an older mark has nothing left to refuse. A copy that a stopped server applies
 * even later becomes a claim that the next keep-alive finds unlisted.
 */
const LATE_MS = 30_000
/** Tombstones that one granting write takes away. */
const MAX_TOMBSTONES = 28

export interface SessionRef {
  /** Consul's id. */
  readonly id: string
  /** Where its record is. */
  readonly key: string
  readonly record: OpenedSession
  /** Since when it certainly lives. */
  readonly provenAt: Instant | null
}

export class ConsulClaims implements ClaimStore<ConsulClaim> {
  readonly comparesOrder = false
  readonly #connection: Connection
  readonly #session: SessionRef
  /** Claims that this process has joined: their orders, and grants that were derived. Those that were confirmed have none. */
  readonly #joined = new Map<string, { readonly order?: bigint; readonly grant?: GrantedByStore }>()
  /** Snapshots that have woken a waiter, by its key. */
  readonly #woken = new Map<string, readonly consul.Entry[]>()
  /** By what was read. */
  readonly #names = new WeakMap<readonly consul.Entry[], StoredName<ConsulClaim>>()
  /** Marks of attempts that were abandoned or released by force, and when a keep-alive first found each of them. */
  #marks = new Map<string, Instant>()
  /** Since when the session certainly lives, and the keep-alive that proves more as soon as its member answers again. */
  #provenAt: Instant | null
  #verified: { readonly member: consul.Member; readonly since: Instant } | undefined

  constructor(connection: Connection, session: SessionRef) {
    this.#connection = connection
    this.#session = session
    this.#provenAt = session.provenAt
  }

  join(request: AcquireRequest, _mayWait: boolean, call: Call): Promise<Joined<ConsulClaim>> {
    return this.#join(request, [consul.absent(this.#mark(request))], call)
  }

  async #join(
    request: AcquireRequest,
    condition: readonly consul.Operation[],
    call: Call,
  ): Promise<Joined<ConsulClaim>> {
    const { name, attempt, capacity, mode } = request
    const { keys } = this.#connection
    const { id, record } = this.#session
    const [own, mark] = [this.#key(request), this.#mark(request)]
    const build = (position: number) => [
      ...condition,
      consul.lock(mark, JSON.stringify({ name }), id),
      consul.lock(own, this.#value(request, position, null), id),
      consul.tree(keys.name(name)),
    ]
    const committed = await this.#connection.commit(name, build, call, attempt)
    const { entries, refused, isRepeated: mayLandAgain } = committed
    if (refused !== undefined)
      return { ...(await this.#notJoined(request, refused.what, call)), mayLandAgain }
    const stored = this.#name(entries, 'try')
    const claim = stored.claim(attempt)
    const foreignEntry = entries.find(({ isForeign }) => isForeign)
    if (claim?.session !== id || foreignEntry !== undefined) {
      // It was joined, and the error says that nothing was done.
      await whileQueued(this.remove(request, true, call))
      throw foreignEntry === undefined ? unreadable(own) : foreign(foreignEntry.key)
    }
    if (stored.claims.some((other) => (other.mode === 'permits') !== (mode === 'permits'))) {
      await this.#leave(request, claim.revision, call)
      const others = entries.filter(({ key }) => key !== own)
      return { kind: 'refused', name: this.#name(others, 'try'), mayLandAgain }
    }
    const isFirst = stored.capacity === capacity && isEligible(stored.queue(claim, capacity))
    const hasDelay = record.delay !== undefined || entries.some(({ key }) => keys.parse(key).kind === 'delay')
    // Another call for the attempt may have confirmed it, and would have another token.
    if (!isFirst || hasDelay || this.#joined.has(attempt)) {
      this.#joined.set(attempt, { order: claim.order })
      return { kind: 'created', own: claim, name: stored, mayLandAgain }
    }
    const grant = granted(claim.order, stored.data)
    this.#joined.set(attempt, { grant })
    return { ...grant, mayLandAgain }
  }

  async look(claim: Claim, call: Call): Promise<StoredName<ConsulClaim>> {
    const own = this.#key(claim)
    const woken = this.#woken.get(own)
    this.#woken.delete(own)
    return this.#name(woken ?? (await this.#connection.look(claim.name, call)), 'try')
  }

  async isAlive(call: Call): Promise<boolean> {
    return (await this.#entry(this.#session.key, call))?.session === this.#session.id
  }

  async confirm(
    request: AcquireRequest,
    { key: own, order }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<GrantedByStore | StoredName<ConsulClaim>> {
    const { name, attempt, mode } = request
    const { id, record } = this.#session
    const { keys } = this.#connection
    // Another call for the attempt has been granted meanwhile.
    const { grant } = this.#joined.get(attempt) ?? {}
    if (grant !== undefined) return grant
    this.#joined.set(attempt, { order })
    const isNow = async () => this.#name(await this.#connection.look(name, call))
    const tombstones = [...(seen?.versions?.keys() ?? [])].filter((key) => keys.parse(key).kind === 'delay')
    for (const key of tombstones.splice(MAX_TOMBSTONES)) {
      const { refused } = await this.#connection.commit(name, () => takingAway(key, id), call)
      if (refused !== undefined) return isNow()
    }
    const cell = keys.of(name, 'data')
    // An exclusive holder stores its order: nothing younger was beside it.
    const since = mode === 'exclusive' ? String(order) : ''
    const build = (position: number) => [
      consul.cas(own, this.#value(request, placeIn(order), position), indexOf(order)),
      ...(mode === 'permits' ? this.#sameCapacity(name, seen) : []),
      ...(record.delay === undefined
        ? []
        : [consul.lock(keys.of(name, 'delay', attempt), since, record.delay)]),
      ...tombstones.flatMap((key) => takingAway(key, id)),
      consul.tree(cell),
    ]
    const { entries, refused, position } = await this.#connection.commit(name, build, call)
    if (refused !== undefined) {
      if (/invalid session/.test(refused.what)) throw unavailable('a session has gone', 'not-applied')
      return isNow()
    }
    const written = entries.find(({ key }) => key === own)
    if (written === undefined) throw unreadable(own)
    const data = entries.find(({ key, isForeign }) => key === cell && !isForeign)
    return granted(tokens.token(written.modified, position), data && JSON.parse(data.value))
  }

  async leave(request: AcquireRequest, call: Call): Promise<void> {
    const joined = this.#joined.get(request.attempt)
    if (joined?.grant !== undefined) return
    const { order } = joined ?? {}
    const index =
      order === undefined ? (await this.#entry(this.#key(request), call))?.created : indexOf(order)
    if (index !== undefined) await this.#leave(request, index, call)
  }

  async release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<boolean> {
    const grant = tokens.parse(claim.grantId)
    if (grant === null) return false
    const { client, clock, keys, minTtlMs } = this.#connection
    const terms = { ttlMs: Math.max(Math.ceil(keepForMs), minTtlMs), behavior: 'delete' } as const
    const kept = keepForMs > 0 ? await consul.createSession(client, terms, call) : undefined
    const deletions = [
      consul.unchanged(this.#key(claim), BigInt(grant.version)),
      // This process knows whose it is if it has joined it.
      ...this.#deletions(claim, true, this.#joined.has(claim.attempt)),
      ...(kept === undefined ? [] : [consul.lock(keys.of(claim.name, 'kept', claim.attempt), '', kept)]),
    ]
    // The name opens in time even if a copy lands later. If this backend is closed first, Consul ends the session, after up to twice the time.
    let openInMs = keepForMs
    try {
      const { refused, isRepeated } = await this.#connection.commit(claim.name, () => deletions, call)
      if (refused === undefined) return true
      if (isRepeated) throw unavailable('an earlier copy of the release may have been applied', 'unknown')
      openInMs = 0
      return false
    } catch (error) {
      if (outcomeOf(error) !== 'unknown') openInMs = 0
      throw error
    } finally {
      if (kept !== undefined) clock.setTimer(openInMs, () => this.#connection.end(kept))
    }
  }

  async remove(claim: Claim, isSettled: boolean, call: Call): Promise<void> {
    const { name } = claim
    const deletions = this.#deletions(claim, isSettled, false)
    const { refused } = await this.#connection.commit(name, () => deletions, call)
    if (refused !== undefined && isSettled)
      await this.#connection.commit(name, () => [consul.remove(this.#mark(claim))], call)
  }

  /** A session that has gone has left nothing, so there is nothing to do. */
  async mark(claim: Claim, call: Call): Promise<void> {
    const mark = consul.lock(this.#mark(claim), '{"reason":"abandoned"}', this.#session.id)
    await this.#connection.commit(claim.name, () => [mark], call)
  }

  async markOf(claim: Claim, call: Call): Promise<MarkRecord | undefined> {
    return markIn(await this.#entry(this.#mark(claim), call))
  }

  async held(claim: GrantedClaim, call: Call): Promise<ConsulClaim | undefined> {
    const entry = await this.#entry(this.#key(claim), call)
    return entry?.session === undefined ? undefined : consulClaim(this.#connection.keys, entry)
  }

  /** It is never asked again: a late copy would undo what the same holder has stored since. */
  async putData({ name, key, revision }: ConsulClaim, record: DataRecord, call: Call): Promise<boolean> {
    const { client, keys } = this.#connection
    const isOwn = [consul.unchanged(key, revision), consul.lockedBy(key, this.#session.id)]
    const cell = consul.set(keys.of(name, 'data'), JSON.stringify(record))
    return (await client.transact([...isOwn, cell], call)).refused === undefined
  }

  /**
   * A renewal is a timer in the memory of the leader, and a leader that was deposed confirms one that its successor never sees (T88, resumed leaders). An
   * election and a renewal set this timer to twice the TTL, and we believe for one. So a renewal counts if there is an instant at most
   * one TTL before it since which the session certainly lives: it was created then, or a read was verified by the leader after it, and
   * the same member, which never goes back to an older leader, has been asked for a renewal since and has answered. Where there is none,
   * it takes two rounds, and counts from the first.
   */
  async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    let since: Instant | undefined
    for (;;) {
      const sent = instantOf(this.#connection.clock)
      since ??= sent
      const found = await this.#round(held, sent, call)
      if (found === null) return null
      if (this.#provenAt !== null && elapsedUntil(since, this.#provenAt) <= this.#session.record.ttlMs)
        return { since, ...this.#compared(held, found) }
      since = sent
    }
  }

  ended({ attempt }: Claim): void {
    this.#joined.delete(attempt)
  }

  capacityKey(name: string): string {
    return this.#connection.keys.of(name, 'capacity', '')
  }

  /** Keys with a lock-delay go before any session does. All others go with the session. */
  async close(call: Call): Promise<void> {
    const { client, keys } = this.#connection
    const { id, record } = this.#session
    const { entries } =
      record.delay === undefined ? { entries: [] } : await this.#connection.read([keys.attempt(id)], call)
    const delays = claimsIn(keys, id, entries).map(({ name, attempt }) => keys.of(name, 'delay', attempt))
    await this.#removeAll(delays, call)
    await consul.destroySession(client, id, call)
    if (record.delay !== undefined) await consul.destroySession(client, record.delay, call)
  }

  watch(
    keys: readonly WatchedKey[],
    version: bigint,
    onWake: (wake: 'changed' | 'lost') => void,
  ): () => void {
    const own = keys[0]?.key ?? ''
    const stop = this.#connection.watches.watch(keys, version, (wake, seen) => {
      if (seen !== undefined) this.#woken.set(own, seen)
      onWake(wake)
    })
    return () => {
      this.#woken.delete(own)
      stop()
    }
  }

  /** Renews, and reads after it what the session has. Null: it has gone. */
  async #round(
    held: readonly GrantedClaim[],
    since: Instant,
    call: Call,
  ): Promise<readonly consul.Entry[] | null> {
    const { client, keys } = this.#connection
    const { id, key, record } = this.#session
    const before = this.#verified
    // The second session first: if this process dies between the two, the lock-delay begins later, not earlier.
    const delay = record.delay === undefined || (await consul.renewSession(client, record.delay, call))
    const renewedBy = await consul.renewSession(client, id, call)
    const own = [key, keys.attempt(id), ...held.map((claim) => this.#key(claim))]
    const { entries, member } = await this.#connection.read(own, call)
    const found = new Set(entries.map((entry) => entry.key))
    const missing = own.filter((each) => !found.has(each) && each !== keys.attempt(id))
    const isThere = entries.some((entry) => entry.key === key && entry.session === id)
    await this.#connection.requireRights(isThere ? missing : [key], call)
    if (!isThere) return null
    // A leader may be asked before it has applied all that its predecessor had.
    if (delay === null || renewedBy === null)
      throw unavailable('a session is not known to the leader', 'unknown')
    if (renewedBy === before?.member) this.#provenAt = before.since
    this.#verified = { member, since }
    return entries
  }

  #compared(held: readonly GrantedClaim[], found: readonly consul.Entry[]) {
    const { keys } = this.#connection
    const { id, record } = this.#session
    const byKey = new Map(found.map((entry) => [entry.key, entry]))
    const lost = held.filter((claim) => {
      const entry = byKey.get(this.#key(claim))
      return entry?.session !== id || String(consulClaim(keys, entry).token) !== claim.grantId
    })
    const listed = new Set(held.map(({ attempt }) => attempt))
    const deleted = new Set(
      lost.filter((claim) => !byKey.has(this.#key(claim))).map((claim) => this.#mark(claim)),
    )
    const attempts = found.filter(({ key, session }) => session === id && key.startsWith(keys.attempt(id)))
    const [gone, others] = [
      attempts.filter((entry) => deleted.has(entry.key) && markIn(entry) === undefined),
      attempts.filter(({ key }) => !deleted.has(key)),
    ]
    const { 'force-released': forced = [], abandoned = [] } = Object.fromEntries(
      Map.groupBy(attempts, (entry) => markIn(entry)?.reason ?? 'claim'),
    )
    const now = instantOf(this.#connection.clock)
    const before = this.#marks
    this.#marks = new Map([...abandoned, ...forced].map(({ key }) => [key, before.get(key) ?? now]))
    const late = abandoned.filter(({ key }) => elapsedUntil(now, before.get(key) ?? now) > LATE_MS)
    // An earlier keep-alive has told these. A mark that is new may be that of a lease that was granted while this keep-alive was in flight.
    const told = forced.filter(({ key }) => before.has(key) && !listed.has(keys.parse(key).id))
    this.#delete([
      ...[...gone, ...told, ...late].map(({ key }) => key),
      ...(record.delay === undefined ? [] : lost.map(({ name, attempt }) => keys.of(name, 'delay', attempt))),
    ])
    return { lost, besides: claimsIn(keys, id, others) }
  }

  /** Nobody waits for it. What is left is deleted after the next keep-alive. */
  #delete(needless: readonly string[]): void {
    if (needless.length === 0) return
    this.#connection.lifetime.inBackground((call) => this.#removeAll(needless, call)).catch(ignore)
  }

  async #removeAll(paths: readonly string[], call: Call): Promise<void> {
    const deletions = paths.map(consul.remove)
    while (deletions.length > 0) {
      const some = deletions.splice(0, consul.MAX_OPERATIONS)
      await this.#connection.client.transact(some, call, { onAgain: () => {} })
      call.onProgress?.(deletions.length)
    }
  }

  /** Why nothing was joined: the attempt has a key, or there is no session. */
  async #notJoined(request: AcquireRequest, what: string, call: Call): Promise<Joined<ConsulClaim>> {
    if (/invalid session/.test(what)) return { kind: 'session-gone' }
    const { keys } = this.#connection
    const { key: session, id } = this.#session
    const [own, mark] = [this.#key(request), this.#mark(request)]
    const { entries } = await this.#connection.read([mark, keys.name(request.name), session], call)
    if (!entries.some((entry) => entry.key === session && entry.session === id))
      return { kind: 'session-gone' }
    const found = entries.find(({ key }) => key === mark)
    if (markIn(found) !== undefined) return { kind: 'abandoned' }
    const isThere = entries.some(({ key }) => key === own)
    // The claim was deleted by hand, and the key of its attempt is there still (T84, late duplicates).
    if (found !== undefined && !isThere)
      return this.#join(request, [consul.unchanged(mark, found.modified), consul.absent(own)], call)
    const { grant } = this.#joined.get(request.attempt) ?? {}
    if (grant !== undefined && isThere) return grant
    return {
      kind: 'refused',
      name: this.#name(
        entries.filter(({ key }) => key.startsWith(keys.names)),
        'try',
      ),
    }
  }

  /** `index`: that of its creation, so it still waits. */
  async #leave(request: Claim, index: bigint, call: Call): Promise<void> {
    const own = this.#key(request)
    const deletions = [consul.unchanged(own, index), consul.remove(own), consul.remove(this.#mark(request))]
    await this.#connection.commit(request.name, () => deletions, call)
  }

  async #entry(key: string, call: Call): Promise<consul.Entry | undefined> {
    return (await this.#connection.read([key], call)).entries[0]
  }

  /** Requests of one moment share what was read, so it is looked through once for all of them. */
  #name(entries: readonly consul.Entry[], tombstones?: 'try'): StoredName<ConsulClaim> {
    const known = tombstones && this.#names.get(entries)
    if (known !== undefined) return known
    const name = nameIn(this.#connection.keys, entries, { tombstones, lookAgainMs: LOOK_AGAIN_MS })
    if (tombstones !== undefined) this.#names.set(entries, name)
    return name
  }

  /** `withMark`: nothing needs the key of the attempt any more. `isOwn`: it is certainly this session's. */
  #deletions(claim: Claim, withMark: boolean, isOwn: boolean): consul.Operation[] {
    const own = this.#key(claim)
    const delay = this.#connection.keys.of(claim.name, 'delay', claim.attempt)
    return [
      ...(isOwn ? [] : [consul.lockedBy(own, this.#session.id)]),
      consul.remove(own),
      ...(withMark ? [consul.remove(this.#mark(claim))] : []),
      ...(this.#session.record.delay === undefined ? [] : [consul.remove(delay)]),
    ]
  }

  /** The capacity is that of the view. A change writes it for every session that has claims. */
  #sameCapacity(name: string, seen: QueueView | null): consul.Operation[] {
    const { keys } = this.#connection
    const key = keys.of(name, 'capacity', this.#session.id)
    const index = seen?.versions?.get(key)
    const isSame = index === undefined ? consul.absent(key) : consul.unchanged(key, index)
    return [consul.absent(keys.of(name, 'operator')), isSame]
  }

  #value(request: AcquireRequest, place: number, grantedAt: number | null): string {
    const { delay: _, ...session } = this.#session.record
    const record = claimRecord(request, session, this.#connection.clock.wallMs())
    return claimValue(record, request.mode, place, grantedAt)
  }

  #key({ name, attempt }: Claim): string {
    return this.#connection.keys.of(name, 'c', attempt)
  }

  #mark({ attempt }: Claim): string {
    return this.#connection.keys.attempt(this.#session.id, attempt)
  }
}

function granted(token: bigint, data: DataRecord | undefined): GrantedByStore {
  return { kind: 'granted', token, previousData: data?.data }
}
