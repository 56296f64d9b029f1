/**
 * One session's claims at Consul. What may go wrong between the steps:
 *
 *   join       creates the key of the attempt and the claim, and reads the whole name at that index. What is older can only disappear, so
 *              if it leaves room, the claim is granted: a derived grant, whose token is this index. Else it waits. Lost answer: the
 *              attempt asked again finds its key. A copy that lands after the abandon finds the mark (T73, late originals).
 *   confirm    after waiting, compares the index of the own key, which nothing has changed since its creation. The token is the index of
 *              this write (C54). A pause before it: the session may have ended, and its keys with it.
 *   release    compares the index of the grant and the session, so a successor is never hit (G7).
 *   abandon    deletes. If a join may still land, the key of the attempt becomes a mark before that.
 *
 * A session with a lock-delay has a second session, which keeps a key beside each claim that holds. When both sessions end by themselves
 * the claim goes and this key stays, as a tombstone, and Consul refuses to lock it for so long. The next holder has to lock it in its
 * granting write. Release and close delete it before any session ends. Such a session never derives a grant, and neither does another
 * claim beside such a key: who holds is then always written.
 */
import { elapsedUntil, type Instant, instantOf } from '../../../base/clock.ts'
import { ignore } from '../../../base/ignore.ts'
import { claimRecord, type DataRecord, type MarkRecord } from '../../../kit/claim-records.ts'
import type { ClaimStore, GrantedByStore, Joined, Prolonged } from '../../../kit/conditional-store.ts'
import { isEligible, type QueueEntry, type QueueView, type WatchedKey } from '../../../kit/ordered-store.ts'
import type { StoredName } from '../../../kit/stored-name.ts'
import type { AcquireRequest, Call, Claim, GrantedClaim } from '../../../spi.ts'
import * as consul from '../client/index.ts'
import { type Committed, type Connection, takingAway, unavailable, unreadable } from './connection.ts'
import { tokens } from './keys.ts'
import { claimValue, type FoundClaim, foundClaim, markIn, nameIn, type OpenedSession } from './records.ts'

/** No push tells that a lock-delay is over. The first waiter asks so often. */
const LOOK_AGAIN_MS = 200
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

export class ConsulClaims implements ClaimStore<FoundClaim> {
  readonly comparesOrder = false
  readonly #connection: Connection
  readonly #session: SessionRef
  /** Claims that this process has joined: their orders, and grants that were derived. Those that were confirmed have none. */
  readonly #joined = new Map<string, { readonly order?: bigint; readonly grant?: GrantedByStore }>()
  /** Snapshots that have woken a waiter, by its key. */
  readonly #woken = new Map<string, readonly consul.Entry[]>()
  /** Since when the session certainly lives, and the keep-alive that proves more as soon as its member answers again. */
  #provenAt: Instant | null
  #verified: { readonly member: consul.Member; readonly since: Instant } | undefined

  constructor(connection: Connection, session: SessionRef) {
    this.#connection = connection
    this.#session = session
    this.#provenAt = session.provenAt
  }

  join(request: AcquireRequest, _mayWait: boolean, call: Call): Promise<Joined<FoundClaim>> {
    return this.#join(request, [consul.absent(this.#mark(request))], call)
  }

  async #join(
    request: AcquireRequest,
    condition: readonly consul.Operation[],
    call: Call,
  ): Promise<Joined<FoundClaim>> {
    const { name, attempt } = request
    const [own, mark] = [this.#key(request), this.#mark(request)]
    const build = (position: number) => [
      ...condition,
      consul.lock(mark, JSON.stringify({ name }), this.#session.id),
      consul.lock(own, this.#value(request, position, false), this.#session.id),
      consul.tree(this.#connection.keys.name(name)),
    ]
    const { entries, refused, isRepeated: mayLandAgain, position } = await this.#commit(request, build, call)
    if (refused !== undefined)
      return { ...(await this.#notJoined(request, refused.what, call)), mayLandAgain }
    const stored = this.#name(entries, 'try')
    const claim = stored.claim(attempt)
    if (claim?.session !== this.#session.id) throw unreadable(own)
    const isPermits = request.mode === 'permits'
    if (stored.claims.some(({ mode }) => (mode === 'permits') !== isPermits)) {
      await this.#leave(request, claim.order, call)
      const others = entries.filter(({ key }) => key !== own)
      return { kind: 'refused', name: this.#name(others, 'try'), mayLandAgain }
    }
    const hasDelay = entries.some(({ key }) => this.#connection.keys.parse(key).kind === 'delay')
    const isFirst = stored.capacity === request.capacity && isEligible(stored.queue(claim, request.capacity))
    const wasConfirmed = this.#joined.has(attempt)
    if (!isFirst || hasDelay || wasConfirmed || this.#session.record.delay !== undefined) {
      this.#joined.set(attempt, { order: claim.order })
      return { kind: 'created', own: claim, name: stored, mayLandAgain }
    }
    const grant = granted(claim.order, position, stored.data)
    this.#joined.set(attempt, { grant })
    return { ...grant, mayLandAgain }
  }

  async look(claim: Claim, call: Call): Promise<StoredName<FoundClaim>> {
    const own = this.#key(claim)
    const woken = this.#woken.get(own)
    this.#woken.delete(own)
    return this.#name(woken ?? (await this.#connection.look(claim.name, call)), 'try')
  }

  async isAlive(call: Call): Promise<boolean> {
    const { entries } = await this.#connection.read([this.#session.key], call)
    return entries[0]?.session === this.#session.id
  }

  async confirm(
    request: AcquireRequest,
    { key: own, order }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<GrantedByStore | StoredName<FoundClaim>> {
    const { keys } = this.#connection
    const { id, record } = this.#session
    // Another call for the attempt has been granted meanwhile.
    const { grant } = this.#joined.get(request.attempt) ?? {}
    if (grant !== undefined) return grant
    this.#joined.set(request.attempt, { order })
    const tombstones = [...(seen?.versions?.keys() ?? [])].filter((key) => keys.parse(key).kind === 'delay')
    for (const key of tombstones.splice(MAX_TOMBSTONES)) {
      const { refused } = await this.#commit(request, () => takingAway(key, id), call)
      if (refused !== undefined) return this.#refused(request, call)
    }
    const delayed = record.delay === undefined ? [] : [this.#lockDelay(request, order, record.delay)]
    const cell = keys.of(request.name, 'data')
    const build = (position: number) => [
      consul.cas(own, this.#value(request, position, true), order),
      ...(request.mode === 'permits' ? this.#capacity(request.name, seen) : []),
      ...delayed,
      ...tombstones.flatMap((key) => takingAway(key, id)),
      consul.tree(cell),
    ]
    const { entries, refused, position } = await this.#commit(request, build, call)
    if (refused !== undefined) {
      if (/invalid session/.test(refused.what))
        throw unavailable('a session of Consul has gone', 'not-applied')
      return this.#refused(request, call)
    }
    const written = entries.find(({ key }) => key === own)
    if (written === undefined) throw unreadable(own)
    const data = entries.find(({ key }) => key === cell)
    return granted(written.modified, position, data && JSON.parse(data.value))
  }

  async leave(request: AcquireRequest, call: Call): Promise<void> {
    const joined = this.#joined.get(request.attempt)
    if (joined?.grant !== undefined) return
    const order = joined?.order ?? (await this.#found(request, call))?.order
    if (order !== undefined) await this.#leave(request, order, call)
  }

  async release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<boolean> {
    const grant = tokens.parse(claim.grantId)
    if (grant === null) return false
    const { client, clock, keys, minTtlMs } = this.#connection
    const terms = { ttlMs: Math.max(Math.ceil(keepForMs), minTtlMs), behavior: 'delete' } as const
    const kept = keepForMs > 0 ? await consul.createSession(client, terms, call) : undefined
    const closing =
      kept === undefined ? [] : [consul.lock(keys.of(claim.name, 'kept', claim.attempt), '', kept)]
    const isGrant = consul.unchanged(this.#key(claim), BigInt(grant.version))
    const isKnown = this.#joined.has(claim.attempt)
    const build = () => [isGrant, ...this.#deletion(claim, true, isKnown), ...closing]
    const { refused, isRepeated } = await this.#commit(claim, build, call)
    if (refused === undefined) {
      // If this process ends before, the session does so by itself, after up to twice the time.
      if (kept !== undefined) clock.setTimer(keepForMs, () => this.#connection.end(kept))
      return true
    }
    this.#connection.end(kept)
    if (isRepeated)
      throw unavailable('the release was asked again, and an earlier copy may have been applied', 'unknown')
    return false
  }

  async remove(claim: Claim, isSettled: boolean, call: Call): Promise<void> {
    const { refused } = await this.#commit(claim, () => this.#deletion(claim, isSettled, false), call)
    if (refused !== undefined && isSettled)
      await this.#commit(claim, () => [consul.remove(this.#mark(claim))], call)
  }

  /** A session that has gone has left nothing, so there is nothing to do. */
  async mark(claim: Claim, call: Call): Promise<void> {
    const mark = JSON.stringify({ reason: 'abandoned' } satisfies MarkRecord)
    await this.#commit(claim, () => [consul.lock(this.#mark(claim), mark, this.#session.id)], call)
  }

  async markOf(claim: Claim, call: Call): Promise<MarkRecord | undefined> {
    const { entries } = await this.#connection.read([this.#mark(claim)], call)
    return markIn(entries[0])
  }

  held(claim: GrantedClaim, call: Call): Promise<FoundClaim | undefined> {
    return this.#found(claim, call)
  }

  async putData(own: FoundClaim, record: DataRecord, call: Call): Promise<boolean> {
    const { client, keys } = this.#connection
    const isOwn = [consul.unchanged(own.key, own.revision), consul.lockedBy(own.key, this.#session.id)]
    const cell = consul.set(keys.of(own.name, 'data'), JSON.stringify(record))
    // It is never asked again: a late copy would undo what the same holder has stored since.
    return (await client.transact([...isOwn, cell], call)).refused === undefined
  }

  /**
   * A renewal is a timer in the memory of the leader, and a leader that was deposed confirms one that its successor never sees (T88). An
   * election and a renewal set this timer to twice the TTL, and we believe for one. So a renewal counts if there is an instant at most
   * one TTL before it since which the session certainly lives: it was created then, or a read was verified by the leader after it, and
   * the same member, which never goes back to an older leader, has answered a renewal since. Where there is none, it takes two rounds,
   * and counts from the first.
   */
  async prolong(held: readonly GrantedClaim[], call: Call): Promise<Prolonged | null> {
    const { record } = this.#session
    let since: Instant | undefined
    for (;;) {
      const sent = instantOf(this.#connection.clock)
      since ??= sent
      const found = await this.#round(held, sent, call)
      if (found === null) return null
      if (this.#provenAt !== null && elapsedUntil(since, this.#provenAt) <= record.ttlMs)
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
    if (record.delay !== undefined) {
      const { entries } = await this.#connection.read([keys.attempt(id)], call)
      const claims = claimsIn(entries, this.#attemptOf)
      for (let at = 0; at < claims.length; at += consul.MAX_OPERATIONS) {
        const some = claims.slice(at, at + consul.MAX_OPERATIONS)
        const deletions = some.map(({ name, attempt }) => consul.remove(keys.of(name, 'delay', attempt)))
        await client.transact(deletions, call, { onAgain: () => {} })
        call.onProgress?.(claims.length - at)
      }
    }
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
    // The second session first: its lock-delay must not begin before the first session is over.
    if (record.delay !== undefined && (await consul.renewSession(client, record.delay, call)) === null)
      return null
    const renewedBy = await consul.renewSession(client, id, call)
    if (renewedBy === null) return null
    if (renewedBy === this.#verified?.member) this.#provenAt = this.#verified.since
    const own = [key, keys.attempt(id), ...held.map((claim) => this.#key(claim))]
    const { entries, member } = await this.#connection.read(own, call)
    this.#verified = { member, since }
    return entries.some((entry) => entry.key === key && entry.session === id) ? entries : null
  }

  #compared(held: readonly GrantedClaim[], found: readonly consul.Entry[]) {
    const { keys, client, lifetime } = this.#connection
    const byKey = new Map(found.map((entry) => [entry.key, entry]))
    const isLost = (claim: GrantedClaim) => {
      const entry = byKey.get(this.#key(claim))
      const isOwn = entry?.session === this.#session.id
      return !isOwn || String(foundClaim(keys, entry).token) !== claim.grantId
    }
    const lost = held.filter(isLost)
    const deleted = new Set(
      lost.filter((claim) => !byKey.has(this.#key(claim))).map(({ attempt }) => attempt),
    )
    const listed = new Set(held.map(({ attempt }) => attempt))
    const attempts = found.filter(({ key }) => key.startsWith(keys.attempt(this.#session.id)))
    const isClaim = (entry: consul.Entry) =>
      markIn(entry) === undefined && !deleted.has(this.#attemptOf(entry))
    // Of claims that were deleted by hand, and marks that were told at an earlier keep-alive.
    const needless = attempts.filter((entry) =>
      deleted.has(this.#attemptOf(entry))
        ? markIn(entry) === undefined
        : markIn(entry)?.reason === 'force-released' && !listed.has(this.#attemptOf(entry)),
    )
    const delays = this.#session.record.delay === undefined ? [] : lost
    const deletions = [
      ...needless.map(({ key }) => consul.remove(key)),
      ...delays.map(({ name, attempt }) => consul.remove(keys.of(name, 'delay', attempt))),
    ].slice(0, consul.MAX_OPERATIONS)
    if (deletions.length > 0)
      lifetime.inBackground((call) => client.transact(deletions, call, { onAgain: () => {} })).catch(ignore)
    return { lost, besides: claimsIn(attempts.filter(isClaim), this.#attemptOf) }
  }

  /** Why nothing was joined: the attempt has a key, or there is no session. */
  async #notJoined(request: AcquireRequest, what: string, call: Call): Promise<Joined<FoundClaim>> {
    if (/invalid session/.test(what)) return { kind: 'session-gone' }
    const { keys } = this.#connection
    const mark = this.#mark(request)
    const { entries } = await this.#connection.read([mark, keys.name(request.name), this.#session.key], call)
    if (!entries.some(({ key, session }) => key === this.#session.key && session === this.#session.id))
      return { kind: 'session-gone' }
    const found = entries.find(({ key }) => key === mark)
    if (markIn(found) !== undefined) return { kind: 'abandoned' }
    const name = this.#name(
      entries.filter(({ key }) => key.startsWith(keys.names)),
      'try',
    )
    const grant = this.#joined.get(request.attempt)?.grant
    const own = name.claim(request.attempt)
    // The claim was deleted by hand, and the key of its attempt is there still (T84).
    if (own === undefined && found !== undefined)
      return this.#join(
        request,
        [consul.unchanged(mark, found.modified), consul.absent(this.#key(request))],
        call,
      )
    return grant !== undefined && own !== undefined ? grant : { kind: 'refused', name }
  }

  async #refused({ name }: Claim, call: Call): Promise<StoredName<FoundClaim>> {
    return this.#name(await this.#connection.look(name, call))
  }

  async #leave(request: Claim, order: bigint, call: Call): Promise<void> {
    const own = this.#key(request)
    const deletion = [consul.unchanged(own, order), consul.remove(own), consul.remove(this.#mark(request))]
    await this.#commit(request, () => deletion, call)
  }

  async #found(claim: Claim, call: Call): Promise<FoundClaim | undefined> {
    const [entry] = (await this.#connection.read([this.#key(claim)], call)).entries
    return entry && foundClaim(this.#connection.keys, entry)
  }

  #name(entries: readonly consul.Entry[], tombstones?: 'try'): StoredName<FoundClaim> {
    const view = { lookAgainMs: LOOK_AGAIN_MS, ...(tombstones && { tombstones }) }
    return nameIn(this.#connection.keys, entries, view)
  }

  /** If it is this session's, which this process knows of what it has joined. `withMark`: nothing needs the key of the attempt any more. */
  #deletion(claim: Claim, withMark: boolean, isKnown: boolean): consul.Operation[] {
    const own = this.#key(claim)
    const delay = this.#connection.keys.of(claim.name, 'delay', claim.attempt)
    return [
      ...(isKnown ? [] : [consul.lockedBy(own, this.#session.id)]),
      consul.remove(own),
      ...(withMark ? [consul.remove(this.#mark(claim))] : []),
      ...(this.#session.record.delay === undefined ? [] : [consul.remove(delay)]),
    ]
  }

  /** Exclusive holders store their order: nothing younger was beside them. */
  #lockDelay({ name, attempt, mode }: AcquireRequest, order: bigint, session: string): consul.Operation {
    const key = this.#connection.keys.of(name, 'delay', attempt)
    return consul.lock(key, mode === 'exclusive' ? String(order) : '', session)
  }

  /** The capacity is that of the view. A change writes it for every session that has claims. */
  #capacity(name: string, seen: QueueView | null): consul.Operation[] {
    const { keys } = this.#connection
    const key = keys.of(name, 'capacity', this.#session.id)
    const index = seen?.versions?.get(key)
    return [
      consul.absent(keys.of(name, 'operator')),
      index === undefined ? consul.absent(key) : consul.unchanged(key, index),
    ]
  }

  #commit(
    claim: Claim,
    build: (position: number) => readonly consul.Operation[],
    call: Call,
  ): Promise<Committed> {
    return this.#connection.commit(claim.name, build, call)
  }

  #value(request: AcquireRequest, position: number, isGranted: boolean): string {
    const { delay: _, ...session } = this.#session.record
    const record = claimRecord(request, session, this.#connection.clock.wallMs())
    return claimValue(record, request.mode, position, isGranted)
  }

  #key({ name, attempt }: Claim): string {
    return this.#connection.keys.of(name, 'c', attempt)
  }

  #mark({ attempt }: Claim): string {
    return this.#connection.keys.attempt(this.#session.id, attempt)
  }

  readonly #attemptOf = ({ key }: consul.Entry): string => this.#connection.keys.parse(key).id
}

function granted(index: bigint, position: number, data: DataRecord | undefined): GrantedByStore {
  return { kind: 'granted', token: tokens.token(index, position), previousData: data?.data }
}

/** The claims among a session's attempts. The others are marks. */
function claimsIn(attempts: readonly consul.Entry[], attemptOf: (entry: consul.Entry) => string): Claim[] {
  return attempts
    .filter((entry) => markIn(entry) === undefined)
    .map((entry) => ({ name: (JSON.parse(entry.value) as Claim).name, attempt: attemptOf(entry) }))
}
