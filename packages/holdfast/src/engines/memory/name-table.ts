/**
 * The state of the engine, as the rules read and change it (`kit/rules.ts`). One step after the other: what a step
 * changes is seen by the next, and told to watchers and waiters at once.
 *
 *   session   (none) ──open──▶ alive ──prolong──▶ alive        [open, prolong]
 *             alive ──closed, or its time is up──▶ gone        [deleteSession]
 */
import assert from 'node:assert/strict'
import { publicIdOf } from '../../base/ids.ts'
import type { Ending, Granted, NameKey, NameSituation, Situation, Step } from '../../kit/rules.ts'
import type { FoundClaim } from '../../kit/session.ts'
import type { AcquireRequest, Claim, GrantedClaim, SessionRequest } from '../../spi.ts'
import { Deadlines } from './deadlines.ts'
import type { EventLog } from './event-log.ts'
import { keyOf, type MemoryClaim, NameRecord, type Room, type Session } from './state.ts'

export class NameTable implements Step<Session> {
  readonly backend = 'memory'
  nowMs = 0
  /** A step that has been made is certain. */
  readonly afterCommit = { push: (hook: () => void) => hook() }
  /** By namespace and id. */
  readonly #sessions = new Map<string, Session>()
  /** By namespace, then by name. */
  readonly #names = new Map<string, Map<string, NameRecord>>()
  readonly #ends = new Deadlines<Session>()
  readonly #closings = new Deadlines<NameRecord>()
  readonly #log: EventLog
  #lastToken = 0n
  #waiting = 0

  constructor(log: EventLog) {
    this.#log = log
  }

  /** How many claims wait, on all names together. */
  get waiting(): number {
    return this.#waiting
  }

  get size(): { sessions: number; names: number; waiters: number; deadlines: number } {
    let names = 0
    for (const inNamespace of this.#names.values()) names += inNamespace.size
    const deadlines = this.#ends.size + this.#closings.size
    return { sessions: this.#sessions.size, names, waiters: this.#waiting, deadlines }
  }

  get sessions(): Iterable<Session> {
    return this.#sessions.values()
  }

  names(namespace: string): Iterable<NameRecord> {
    return this.#names.get(namespace)?.values() ?? []
  }

  find({ namespace, name }: NameKey): NameRecord | undefined {
    return this.#names.get(namespace)?.get(name)
  }

  session(namespace: string, id: string): Session | undefined {
    return this.#sessions.get(keyOf(namespace, id))
  }

  /** Asked again, it prolongs the session that there is. */
  open(namespace: string, { id, ttlMs, holder }: SessionRequest): Session {
    let session = this.session(namespace, id)
    if (session === undefined) {
      const own = { claims: new Map(), marks: new Map(), rooms: new Set<Room>(), isOver: false }
      session = { namespace, id, ttlMs, holder, expiresAtMs: this.nowMs + ttlMs, ...own }
      this.#sessions.set(keyOf(namespace, id), session)
    }
    this.prolong(session)
    return session
  }

  dueMs(): number {
    return Math.min(this.#ends.nextMs, this.#closings.nextMs)
  }

  look(session: Session, claimed: Claim): Situation {
    const claim = this.#claimOf(session, claimed)
    const record = this.#names.get(session.namespace)?.get(claimed.name)
    const { held, capacity, isWaitedFor, closedUntilMs, data } = situationOf(record)
    return {
      dueMs: this.dueMs(),
      isAlive: !session.isOver,
      isMarked: session.marks.has(claimed.attempt),
      holds: claim !== undefined && claim.token !== null,
      waits: claim !== undefined && claim.token === null,
      held,
      capacity,
      isWaitedFor,
      closedUntilMs,
      data,
    }
  }

  lookAt(name: NameKey): NameSituation {
    return situationOf(this.find(name))
  }

  firstWaiter(name: NameKey): MemoryClaim | undefined {
    return this.find(name)?.queue.first
  }

  heaviestWaiter(name: NameKey): number {
    let heaviest = 0
    for (const { weight } of this.find(name)?.queue ?? []) heaviest = Math.max(heaviest, weight)
    return heaviest
  }

  hasWaiters(name: NameKey, atLeast: number): boolean {
    return (this.find(name)?.queue.length ?? 0) >= atLeast
  }

  grantOf(session: Session, claimed: Claim): Granted | undefined {
    const { token = null, data = null } = this.#claimOf(session, claimed) ?? {}
    return token === null ? undefined : { token, data }
  }

  claimsOf(session: Session): Iterable<FoundClaim> {
    return session.claims.values()
  }

  forcedBecause(session: Session, attempt: string): string | undefined {
    return session.marks.get(attempt) ?? undefined
  }

  insertHolder(session: Session, request: AcquireRequest, data: string | null): Granted {
    return this.#hold(this.#newClaim(session, request), data)
  }

  insertWaiter(session: Session, request: AcquireRequest): void {
    const claim = this.#newClaim(session, request)
    claim.record.queue.join(claim)
    this.#waiting++
    this.#log.append('waiting', claim)
  }

  promote(_name: NameKey, claim: MemoryClaim, data: string | null): void {
    const { session, attempt } = claim
    claim.record.queue.leave(claim)
    this.#waiting--
    const granted = this.#hold(claim, data)
    for (const room of session.rooms) room.handOver(session.id, attempt, granted)
  }

  deleteHolder(session: Session, claimed: GrantedClaim) {
    const claim = this.#holding(session, claimed)
    if (claim === undefined) return undefined
    const { capacity, queue } = claim.record
    this.#remove(claim, 'released')
    return { capacity, isWaitedFor: queue.length > 0 }
  }

  deleteClaim(session: Session, claimed: Claim): boolean {
    const claim = this.#claimOf(session, claimed)
    if (claim !== undefined) this.#remove(claim, 'released')
    return claim !== undefined
  }

  deleteForced(name: NameKey, ids: readonly string[], reason: string): number {
    const holders = [...(this.find(name)?.holders.values() ?? [])]
    const forced = holders.filter(({ attempt }) => ids.includes(publicIdOf(attempt)))
    for (const claim of forced) {
      claim.session.marks.set(claim.attempt, reason)
      this.#remove(claim, 'force-released')
    }
    return forced.length
  }

  /** They vanish, and no client is told why. */
  deleteHolders(name: NameKey): void {
    for (const claim of [...(this.find(name)?.holders.values() ?? [])]) this.#remove(claim, 'released')
  }

  markAbandoned(session: Session, attempt: string): void {
    session.marks.set(attempt, null)
    for (const room of session.rooms) room.abandoned(session.id, attempt)
  }

  prolong(session: Session): boolean {
    if (session.isOver) return false
    session.expiresAtMs = Math.max(session.expiresAtMs, this.nowMs + session.ttlMs)
    this.#ends.set(session, session.expiresAtMs)
    return true
  }

  expiredSessions(): readonly Session[] {
    return this.#ends.takeDue(this.nowMs)
  }

  deleteSession(session: Session, ending: Ending): readonly NameRecord[] {
    if (session.isOver) return []
    session.isOver = true
    this.#sessions.delete(keyOf(session.namespace, session.id))
    this.#ends.delete(session)
    const touched = new Set<NameRecord>()
    for (const claim of session.claims.values()) {
      const { record, lockDelayMs } = claim
      touched.add(record)
      if (ending === 'expired' && claim.token !== null && lockDelayMs > 0)
        this.close(record, record.capacity, session.expiresAtMs + lockDelayMs)
      this.#remove(claim, ending)
    }
    for (const room of session.rooms) room.sessionEnded(session.id)
    return [...touched]
  }

  close(name: NameKey, capacity: number, untilMs: number): void {
    const record = this.#record(name, capacity)
    if (untilMs <= Math.max(this.nowMs, record.closedUntilMs ?? 0)) return
    record.closedUntilMs = untilMs
    this.#closings.set(record, untilMs)
  }

  openNames(): readonly NameRecord[] {
    const opened = this.#closings.takeDue(this.nowMs)
    for (const record of opened) {
      record.closedUntilMs = null
      this.#dropIfUnused(record)
    }
    return opened
  }

  putData(session: Session, claimed: GrantedClaim, data: string): boolean {
    const claim = this.#holding(session, claimed)
    if (claim === undefined) return false
    claim.record.data = data
    this.#log.append('data', claim)
    return true
  }

  dropData(name: NameKey): void {
    const record = this.find(name)
    if (record === undefined) return
    record.data = null
    this.#dropIfUnused(record)
  }

  putCapacity(name: NameKey, capacity: number): void {
    const record = this.find(name)
    if (record !== undefined) record.capacity = capacity
  }

  /** The claim that the attempt has, held or waiting. */
  #claimOf(session: Session, claimed: Claim): MemoryClaim | undefined {
    const claim = session.claims.get(claimed.attempt)
    assert(claim === undefined || claim.name === claimed.name, 'an attempt is for one name')
    return claim
  }

  /** The claim, if it is this session's and holds by this grant: no other is ever touched (G7). */
  #holding(session: Session, claimed: GrantedClaim): MemoryClaim | undefined {
    const claim = this.#claimOf(session, claimed)
    return claim?.grantId === claimed.grantId ? claim : undefined
  }

  #record(name: NameKey, capacity: number): NameRecord {
    const found = this.find(name)
    if (found !== undefined) return found
    const record = new NameRecord(name, capacity)
    const inNamespace = this.#names.get(name.namespace) ?? new Map<string, NameRecord>()
    this.#names.set(name.namespace, inNamespace)
    inNamespace.set(name.name, record)
    return record
  }

  #dropIfUnused(record: NameRecord): void {
    if (record.isInUse || record.data !== null || record.closedUntilMs !== null) return
    this.#names.get(record.namespace)?.delete(record.name)
  }

  #newClaim(session: Session, request: AcquireRequest): MemoryClaim {
    const { name, attempt, mode, weight, capacity, note, owner, lockDelayMs } = request
    const record = this.#record({ namespace: session.namespace, name }, capacity)
    // A name without holders and waiters is kept for its data or its closing only: its capacity is free to change.
    record.capacity = capacity
    // Field by field, as in a situation: to spread an object costs a twentieth of an acquire.
    const claim: MemoryClaim = {
      name,
      attempt,
      mode,
      weight,
      note,
      owner,
      lockDelayMs,
      session,
      record,
      token: null,
      grantId: null,
      sinceMs: this.nowMs,
      data: null,
      before: undefined,
      behind: undefined,
    }
    session.claims.set(attempt, claim)
    return claim
  }

  #hold(claim: MemoryClaim, data: string | null): Granted {
    const { record } = claim
    const token = ++this.#lastToken
    claim.token = token
    claim.grantId = String(token)
    claim.sinceMs = this.nowMs
    claim.data = data
    record.holders.set(claim.attempt, claim)
    record.held += claim.weight
    this.#log.append('acquired', claim)
    return { token, data }
  }

  /** Ends a claim, held or waiting. */
  #remove(claim: MemoryClaim, ending: Ending | 'force-released'): void {
    const { record, session, attempt } = claim
    session.claims.delete(attempt)
    if (claim.token === null) {
      record.queue.leave(claim)
      this.#waiting--
      this.#log.append('gave-up', claim)
    } else {
      record.holders.delete(attempt)
      record.held -= claim.weight
      this.#log.append(ending, claim)
    }
    this.#dropIfUnused(record)
  }
}

const unused: NameSituation = {
  held: 0,
  capacity: null,
  isWaitedFor: false,
  closedUntilMs: null,
  data: null,
}

function situationOf(record: NameRecord | undefined): NameSituation {
  if (record === undefined) return unused
  const { held, capacity, queue, closedUntilMs, data, isInUse } = record
  return { held, capacity: isInUse ? capacity : null, isWaitedFor: queue.length > 0, closedUntilMs, data }
}
