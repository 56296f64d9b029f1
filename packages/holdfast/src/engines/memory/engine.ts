/**
 * The reference model: what every other engine is compared with, as synchronous operations on one process's
 * memory. One step is one operation: it sees no dead session, changes what it says, and hands over what became
 * free before it returns.
 *
 *   session   (none) ──open──▶ alive ──keepAlive──▶ alive      [openSession, keepAlive]
 *             alive ──its time is up──▶ gone                   [#expireDue]   before every step, and by timer
 *             alive ──close──▶ gone                            [closeSession]
 */
import assert from 'node:assert/strict'
import { type Clock, systemClock, type Timer } from '../../base/clock.ts'
import { publicIdOf, type Random, systemRandom } from '../../base/ids.ts'
import { operatorCallExpired, pageOf } from '../../kit/backend-kit.ts'
import { compareClaims } from '../../kit/session.ts'
import type * as spi from '../../spi.ts'
import { Deadlines } from './deadlines.ts'
import { EventLog } from './event-log.ts'
import { type Ending, NameTable } from './name-table.ts'
import {
  type Claim,
  describeName,
  describeSession,
  isInUse,
  keyOf,
  type NameRecord,
  type Session,
  type WaitListener,
  type WaitOutcome,
} from './state.ts'

const all: spi.PageRequest = { limit: Number.POSITIVE_INFINITY }

/** An `AcquireResult` before the client has added what only it knows: since when it may believe. */
export type Admission =
  | { readonly kind: 'granted'; readonly claim: Claim }
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  | { readonly kind: 'session-gone' }

export type Queueing =
  | WaitOutcome
  | { readonly kind: 'queue-full' }
  /** The listener will be told; `stopListening` takes it back and leaves the queue. */
  | { readonly kind: 'waiting'; readonly stopListening: () => void }

/** What a keep-alive found out. */
export interface Kept {
  readonly lost: readonly spi.LostClaim[]
  readonly granted: readonly Claim[]
  readonly unlisted: readonly spi.Claim[]
}

export interface SessionView {
  readonly ttlMs: number
  readonly holder: string
  readonly leftMs: number
}

export interface MemoryEngineOptions {
  /** Judges expiry; it may differ from the clocks of the engine's clients. */
  readonly clock?: Clock
  readonly random?: Random
}

/** Of its methods users see few: `MemoryEngine` in `index.ts`. */
export class MemoryEngine implements Disposable {
  /** Tells this engine from every other, also after a restart of the process. */
  readonly id: string
  readonly clock: Clock
  readonly log = new EventLog()
  /** By namespace and id. */
  readonly #sessions = new Map<string, Session>()
  readonly #deadlines = new Deadlines<Session | NameRecord>()
  readonly #names = new NameTable(this.#deadlines, this.log)
  #watchers = 0
  #timer: { readonly handle: Timer; readonly dueMs: number } | undefined

  constructor(options: MemoryEngineOptions = {}) {
    this.clock = options.clock ?? systemClock
    this.id = (options.random ?? systemRandom).id()
  }

  /** Everything that the engine keeps; all zero when everything has been given back. */
  stats(): { sessions: number; names: number; waiters: number; deadlines: number } {
    return this.#step(() => ({
      sessions: this.#sessions.size,
      names: this.#names.size,
      waiters: this.#names.waiting,
      deadlines: this.#deadlines.size,
    }))
  }

  openSession(namespace: string, request: spi.SessionRequest): SessionView {
    return this.#step((nowMs) => {
      let session = this.#session(namespace, request.id)
      if (session === undefined) {
        const { id, ttlMs, holder } = request
        const expiresAtMs = nowMs + ttlMs
        session = {
          kind: 'session',
          namespace,
          id,
          ttlMs,
          holder,
          expiresAtMs,
          claims: new Map(),
          marks: new Map(),
        }
        this.#sessions.set(keyOf(namespace, id), session)
      }
      this.#prolong(session, nowMs)
      return viewOf(session, nowMs)
    })
  }

  /** Null if there is no such session alive. */
  findSession(namespace: string, id: string): SessionView | null {
    return this.#step((nowMs) => {
      const session = this.#session(namespace, id)
      return session === undefined ? null : viewOf(session, nowMs)
    })
  }

  /** Null: the session is gone, and nothing brings it back (T31). */
  keepAlive(namespace: string, id: string, listed: spi.ListedClaims): Kept | null {
    return this.#step((nowMs) => {
      const session = this.#session(namespace, id)
      if (session === undefined) return null
      this.#prolong(session, nowMs)
      const { lost, granted, unlisted } = compareClaims(listed, session.claims.values())
      return { lost: lost.map((claim) => this.#whyLost(session, claim)), granted, unlisted }
    })
  }

  closeSession(namespace: string, id: string): void {
    this.#step((nowMs) => {
      const session = this.#session(namespace, id)
      if (session === undefined) return
      this.#deadlines.delete(session)
      for (const record of this.#end(session, 'released')) this.#names.settle(record, nowMs)
    })
  }

  tryAcquire(namespace: string, sessionId: string, request: spi.AcquireRequest): Admission {
    return this.#step((nowMs) => {
      const session = this.#session(namespace, sessionId)
      if (session === undefined) return { kind: 'session-gone' }
      if (session.marks.has(request.attempt)) return { kind: 'busy' }
      const claim = this.#claimOf(session, request) ?? this.#names.admit(session, request, 0, nowMs)
      if (claim !== null && claim.token !== null) return { kind: 'granted', claim }
      const closedForMs = (this.#names.find(namespace, request.name)?.closedUntilMs ?? nowMs) - nowMs
      return closedForMs > 0 ? { kind: 'busy', retryAfterMs: closedForMs } : { kind: 'busy' }
    })
  }

  enqueue(
    namespace: string,
    sessionId: string,
    request: spi.AcquireRequest,
    listener: WaitListener,
  ): Queueing {
    return this.#step((nowMs) => {
      const session = this.#session(namespace, sessionId)
      if (session === undefined) return { kind: 'session-gone' }
      if (session.marks.has(request.attempt)) return { kind: 'abandoned' }
      const { maxWaiters = Number.POSITIVE_INFINITY } = request
      const claim = this.#claimOf(session, request) ?? this.#names.admit(session, request, maxWaiters, nowMs)
      if (claim === null) return { kind: 'queue-full' }
      if (claim.token !== null) return { kind: 'granted', claim }
      claim.listeners.add(listener)
      return { kind: 'waiting', stopListening: () => void claim.listeners.delete(listener) }
    })
  }

  abandon(namespace: string, sessionId: string, attempt: string): void {
    this.#step((nowMs) => {
      const session = this.#session(namespace, sessionId)
      if (session === undefined) return
      session.marks.set(attempt, { kind: 'abandoned' })
      const claim = session.claims.get(attempt)
      if (claim === undefined) return
      this.#names.remove(claim, 'released', { kind: 'abandoned' })
      this.#names.settle(claim.record, nowMs)
    })
  }

  release(
    namespace: string,
    sessionId: string,
    claimed: spi.GrantedClaim,
    keepForMs: number,
  ): 'released' | 'not-held' {
    return this.#step((nowMs) => {
      const claim = this.#holding(namespace, sessionId, claimed)
      if (claim === null) return 'not-held'
      this.#names.remove(claim, 'released', { kind: 'abandoned' })
      if (keepForMs > 0) this.#names.keepClosed(claim.record, nowMs + keepForMs)
      this.#names.settle(claim.record, nowMs)
      return 'released'
    })
  }

  setData(
    namespace: string,
    sessionId: string,
    claimed: spi.GrantedClaim,
    data: string,
  ): 'stored' | 'not-held' {
    return this.#step(() => {
      const claim = this.#holding(namespace, sessionId, claimed)
      if (claim === null) return 'not-held'
      claim.record.data = data
      this.#names.dataChanged(claim)
      return 'stored'
    })
  }

  inspect(namespace: string, name: string, holdersOnly = false): spi.NameState | null {
    return this.#step((nowMs) => {
      const record = this.#names.find(namespace, name)
      return record === undefined ? null : describeName(record, nowMs, holdersOnly)
    })
  }

  list(namespace: string, prefix: string, page: spi.PageRequest = all): spi.Page<spi.NameState> {
    return this.#step((nowMs) => {
      const { items, next } = pageOf(this.#names.list(namespace, prefix), page, ({ name }) => name)
      return { items: items.map((record) => describeName(record, nowMs)), next }
    })
  }

  sessions(namespace: string, page: spi.PageRequest): spi.Page<spi.SessionState> {
    return this.#step((nowMs) => {
      const own = [...this.#sessions.values()].filter((session) => session.namespace === namespace)
      const { items, next } = pageOf(own, page, ({ id }) => publicIdOf(id))
      return { items: items.map((session) => describeSession(session, nowMs)), next }
    })
  }

  check(
    namespace: string,
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
  ): boolean {
    return this.#step(() => {
      for (const claim of this.#names.find(namespace, holder.name)?.holders.values() ?? [])
        if (claim.publicId === holder.id && claim.token === holder.token) return true
      return false
    })
  }

  forceRelease(
    namespace: string,
    name: string,
    ids: readonly string[],
    detail: string,
    notAfterMs: number,
  ): number {
    return this.#operatorStep(notAfterMs, (nowMs) => {
      const record = this.#names.find(namespace, name)
      if (record === undefined) return 0
      const claims = [...record.holders.values()].filter(({ publicId }) => ids.includes(publicId))
      for (const claim of claims) {
        claim.session.marks.set(claim.attempt, { kind: 'force-released', detail })
        this.#names.remove(claim, 'force-released', { kind: 'abandoned' })
      }
      this.#names.settle(record, nowMs)
      return claims.length
    })
  }

  resize(
    namespace: string,
    name: string,
    capacity: spi.CapacityChange,
    notAfterMs: number,
  ): 'resized' | 'in-use' | 'changed' {
    return this.#operatorStep(notAfterMs, (nowMs) =>
      this.#names.resize(this.#names.find(namespace, name), capacity, nowMs),
    )
  }

  forget(
    namespace: string,
    name: string,
    data: string,
    notAfterMs: number,
  ): 'forgotten' | 'in-use' | 'changed' {
    return this.#operatorStep(notAfterMs, (nowMs) => {
      const record = this.#names.find(namespace, name)
      if (record === undefined) return 'changed'
      if (isInUse(record)) return 'in-use'
      if (record.data !== data) return 'changed'
      record.data = undefined
      this.#names.settle(record, nowMs)
      return 'forgotten'
    })
  }

  /**
   * A fault, for tests and simulations: the holders and the data of a name vanish unnoticed, as they
   * do on an engine whose operator deletes keys (T34). No client is told why.
   */
  deleteName(namespace: string, name: string): void {
    this.#step((nowMs) => {
      const record = this.#names.find(namespace, name)
      if (record === undefined) return
      for (const claim of record.holders.values())
        this.#names.remove(claim, 'released', { kind: 'abandoned' })
      record.data = undefined
      this.#names.settle(record, nowMs)
    })
  }

  /** While there is a watcher, expiries are noticed when they happen; call the result to stop. */
  addWatcher(): () => void {
    this.#step(() => this.#watchers++)
    return () => void this.#watchers--
  }

  /** Stops the engine's timer. What is waiting stays where it is. */
  [Symbol.dispose](): void {
    this.#timer?.handle.cancel()
    this.#timer = undefined
  }

  #operatorStep<T>(notAfterMs: number, operation: (nowMs: number) => T): T {
    return this.#step((nowMs) => {
      if (nowMs >= notAfterMs) throw operatorCallExpired('memory')
      return operation(nowMs)
    })
  }

  #step<T>(operation: (nowMs: number) => T): T {
    const nowMs = this.clock.monotonicMs()
    this.#expireDue(nowMs)
    try {
      return operation(nowMs)
    } finally {
      this.#armTimer(nowMs)
    }
  }

  #expireDue(nowMs: number): void {
    if (this.#deadlines.nextMs > nowMs) return
    // First all the dead go, then the living are served: a waiter that died meanwhile must not be granted anything.
    const touched = new Set<NameRecord>()
    // A session may leave a lock-delay behind that is over by now, too.
    while (this.#deadlines.nextMs <= nowMs)
      for (const due of this.#deadlines.takeDue(nowMs)) {
        if (due.kind === 'name') touched.add(due)
        else for (const record of this.#end(due, 'expired')) touched.add(record)
      }
    for (const record of touched) this.#names.settle(record, nowMs)
  }

  #armTimer(nowMs: number): void {
    const needed = this.#names.waiting > 0 || this.#watchers > 0
    const dueMs = needed ? this.#deadlines.nextMs : Number.POSITIVE_INFINITY
    // A timer that fires too early does no harm and arms the next, so keep-alives need not move it.
    if (this.#timer !== undefined && this.#timer.dueMs <= dueMs && needed) return
    this[Symbol.dispose]()
    if (dueMs === Number.POSITIVE_INFINITY) return
    const handle = this.clock.setTimer(dueMs - nowMs, () => {
      this.#timer = undefined
      this.#step(() => {})
    })
    this.#timer = { handle, dueMs }
  }

  #prolong(session: Session, nowMs: number): void {
    session.expiresAtMs = Math.max(session.expiresAtMs, nowMs + session.ttlMs)
    this.#deadlines.set(session, session.expiresAtMs)
  }

  /** Removes a session with all its claims; returns the names that may have become free. */
  #end(session: Session, ending: Ending): Set<NameRecord> {
    const touched = new Set<NameRecord>()
    this.#sessions.delete(keyOf(session.namespace, session.id))
    for (const claim of session.claims.values()) {
      touched.add(claim.record)
      this.#names.remove(claim, ending, { kind: 'session-gone' })
      if (ending === 'expired' && claim.token !== null && claim.lockDelayMs > 0)
        this.#names.keepClosed(claim.record, session.expiresAtMs + claim.lockDelayMs)
    }
    return touched
  }

  #session(namespace: string, id: string): Session | undefined {
    return this.#sessions.get(keyOf(namespace, id))
  }

  /** What the attempt already has: asked again, it is answered with the same. */
  #claimOf(session: Session, claimed: spi.Claim): Claim | undefined {
    const claim = session.claims.get(claimed.attempt)
    assert(claim === undefined || claim.name === claimed.name, 'an attempt is for one name')
    return claim
  }

  /** The claim, if it is this session's and holds by this grant: no other is ever touched (G7). */
  #holding(namespace: string, sessionId: string, claimed: spi.GrantedClaim): Claim | null {
    const session = this.#session(namespace, sessionId)
    const claim = session === undefined ? undefined : this.#claimOf(session, claimed)
    return claim?.grantId === claimed.grantId ? claim : null
  }

  #whyLost(session: Session, { name, attempt }: spi.Claim): spi.LostClaim {
    const mark = session.marks.get(attempt)
    if (mark?.kind === 'force-released') return { attempt, reason: 'force-released', detail: mark.detail }
    // The attempt was granted once more, under another id: the listed grant was deleted before (T84).
    const isHeldAnew = (session.claims.get(attempt)?.grantId ?? null) !== null
    const record = this.#names.find(session.namespace, name)
    // What the claim weighed is gone with it; no claim weighs less than 1.
    const isFull = record !== undefined && record.heldWeight + 1 > record.capacity
    return { attempt, reason: isFull && !isHeldAnew ? 'taken-over' : 'deleted' }
  }
}

function viewOf(session: Session, nowMs: number): SessionView {
  return { ttlMs: session.ttlMs, holder: session.holder, leftMs: session.expiresAtMs - nowMs }
}
