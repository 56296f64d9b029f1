/**
 * A small engine of its own, written apart from the memory backend, so that the two check each other: sessions, one
 * fair line per name, tokens, marks of abandoned attempts, closed names. Every operation is one step on plain data;
 * what a step changes can be taken back until it is durable.
 *
 *   session   (none) ──open──▶ alive ──keepAlive──▶ alive          [open, keepAlive]
 *             alive ──its time and what the engine is late by──▶ gone  [expire]   before every step
 *             alive ──close──▶ gone                                [close]
 *   claim     (none) ──try, enqueue──▶ holding | waiting ──turn──▶ holding   [admit, settle]
 *             … ──released | abandoned | closed | expired | forced | deleted──▶ (none)   [remove]
 */
import { publicIdOf } from '../../../packages/holdfast/src/base/ids.ts'
import type {
  Claim,
  GrantedClaim,
  LostClaim,
  NameState as ShownName,
} from '../../../packages/holdfast/src/spi.ts'
import type { Journal } from './journal.ts'
import type { EngineAnswer, EnginePush, EngineRequest, Granted } from './messages.ts'
import {
  type ClaimState,
  type Ending,
  heldWeight,
  isInUse,
  type NameState,
  type SessionState,
} from './state.ts'

export interface EngineObserver {
  granted(claim: ClaimState, name: NameState): void
  ended(claim: ClaimState, name: NameState, ending: Ending, askedBy: string | null): void
  queued(claim: ClaimState, name: NameState): void
  prolonged(session: SessionState): void
  /** An operator is about to release by force. */
  forcing(name: string): void
}

export interface EngineOptions {
  readonly journal: Journal
  readonly observer: EngineObserver
  readonly push: (address: string, push: EnginePush) => void
  /** The TTL that the engine grants when it is asked for one. 1,500 may become 2,000. */
  readonly grantTtl: (askedMs: number) => number
  /** How late it will be this time, up to its slack. */
  readonly lateByMs: () => number
  /** Something falls due then, on the engine's clock. */
  readonly wakeAt: (atMs: number) => void
}

/** Tokens are reserved ahead, durably: a crash may skip some, and never repeats one. */
const TOKENS_RESERVED = 16n

type Acquire = Extract<EngineRequest, { kind: 'tryAcquire' | 'enqueue' }>

export class SimEngine {
  readonly sessions = new Map<string, SessionState>()
  readonly names = new Map<string, NameState>()
  readonly #options: EngineOptions
  readonly #journal: Journal
  #nextToken = 1n
  #reservedUpTo = 0n

  constructor(options: EngineOptions) {
    this.#options = options
    this.#journal = options.journal
  }

  step(request: EngineRequest, address: string, nowMs: number): EngineAnswer {
    this.expireDue(nowMs)
    switch (request.kind) {
      case 'open':
        return this.#open(request, address, nowMs)
      case 'keepAlive':
        return this.#keepAlive(request, nowMs)
      case 'tryAcquire':
      case 'enqueue':
        return this.#acquire(request, nowMs)
      case 'abandon':
        return this.#abandon(request.session, request.claim, nowMs)
      case 'release':
        return this.#release(request.session, request.claim, request.keepForMs, nowMs)
      case 'setData':
        return this.#setData(request.session, request.claim, request.data)
      case 'close':
        return this.#close(request.session, nowMs)
      case 'check':
        return this.#check(request)
      case 'forceRelease':
        if (nowMs >= request.notAfterMs) return { kind: 'too-late' }
        return { kind: 'count', count: this.forceRelease(request.name, request.ids, nowMs) }
      case 'inspect':
        return { kind: 'shown', state: this.#show(request.name, nowMs) }
      case 'list':
        return { kind: 'listed', states: this.#list(request.prefix, nowMs) }
    }
  }

  /** Ends every session whose time is up. First all the dead go, then the living are served. */
  expireDue(nowMs: number): void {
    const touched = new Set<NameState>()
    for (const session of this.sessions.values())
      if (session.endsAtMs <= nowMs) this.#end(session, 'expired', touched)
    for (const name of this.names.values())
      if (name.line.length > 0 && name.closedUntilMs !== 0 && name.closedUntilMs <= nowMs) touched.add(name)
    for (const name of touched) this.#settle(name, nowMs)
  }

  /** A crash ends the connections, and with them what was only known on them. */
  crash(): void {
    this.#nextToken = this.#reservedUpTo + 1n
  }

  // --- faults ----------------------------------------------------------------------------------------------

  /** An engine that breaks its promise, as one does whose wall clock was stepped (T9, stepped server clocks). */
  expireEarly(addressPrefix: string, nowMs: number): number {
    const touched = new Set<NameState>()
    let count = 0
    for (const session of this.sessions.values()) {
      if (!session.address.startsWith(addressPrefix)) continue
      count += session.claims.size
      this.#end(session, 'deleted', touched)
    }
    for (const name of touched) this.#settle(name, nowMs)
    return count
  }

  /** An operator who deletes keys (T34, deleted lock keys). */
  deleteName(wanted: string, nowMs: number): number {
    const name = this.names.get(wanted)
    if (name === undefined) return 0
    const holders = [...name.holders.values()]
    for (const claim of holders) this.#remove(claim, name, 'deleted', null)
    this.#journal.assign(name, 'data', undefined)
    this.#settle(name, nowMs)
    return holders.length
  }

  /** Without ids: everybody who holds it now. */
  forceRelease(wanted: string, ids: readonly string[] | null, nowMs: number): number {
    this.#options.observer.forcing(wanted)
    const name = this.names.get(wanted)
    if (name === undefined) return 0
    const matching = [...name.holders.values()].filter(
      ({ attempt }) => ids === null || ids.includes(publicIdOf(attempt)),
    )
    for (const claim of matching) {
      this.#journal.set(claim.session.marks, claim.attempt, 'force-released')
      this.#remove(claim, name, 'forced', null)
    }
    this.#settle(name, nowMs)
    return matching.length
  }

  // --- sessions --------------------------------------------------------------------------------------------

  #open(request: Extract<EngineRequest, { kind: 'open' }>, address: string, nowMs: number): EngineAnswer {
    let session = this.sessions.get(request.session)
    if (session === undefined) {
      session = {
        id: request.session,
        address,
        ttlMs: this.#options.grantTtl(request.ttlMs),
        holder: request.holder,
        prolongedAtMs: nowMs,
        endsAtMs: 0,
        claims: new Map(),
        marks: new Map(),
      }
      this.#journal.set(this.sessions, session.id, session)
    }
    this.#prolong(session, nowMs)
    return { kind: 'opened', ttlMs: session.ttlMs }
  }

  #prolong(session: SessionState, nowMs: number): void {
    this.#journal.assign(session, 'prolongedAtMs', nowMs)
    const endsAtMs = nowMs + session.ttlMs + this.#options.lateByMs()
    this.#journal.assign(session, 'endsAtMs', Math.max(session.endsAtMs, endsAtMs))
    this.#options.observer.prolonged(session)
    this.#options.wakeAt(session.endsAtMs)
  }

  #keepAlive(request: Extract<EngineRequest, { kind: 'keepAlive' }>, nowMs: number): EngineAnswer {
    const session = this.sessions.get(request.session)
    if (session === undefined) return { kind: 'gone' }
    this.#prolong(session, nowMs)
    const lost: LostClaim[] = []
    const granted: Granted[] = []
    const listed = new Set<string>()
    for (const claim of request.held) {
      listed.add(claim.attempt)
      if (this.#holding(session.id, claim) === undefined) {
        lost.push(this.#lost(session, claim))
        listed.delete(claim.attempt)
      }
    }
    for (const claim of request.waiting) {
      listed.add(claim.attempt)
      const found = session.claims.get(claim.attempt)
      if (found === undefined) lost.push(this.#lost(session, claim))
      else if (found.token !== null) granted.push(grantOf(found))
    }
    const unlisted: Claim[] = []
    for (const { attempt, name } of session.claims.values())
      if (!listed.has(attempt)) unlisted.push({ attempt, name })
    return { kind: 'alive', ttlMs: session.ttlMs, lost, granted, unlisted }
  }

  #lost(session: SessionState, claim: Claim): LostClaim {
    if (session.claims.has(claim.attempt)) return { attempt: claim.attempt, reason: 'deleted' }
    const name = this.names.get(claim.name)
    const isTaken = name !== undefined && heldWeight(name) >= name.capacity
    const isForced = session.marks.get(claim.attempt) === 'force-released'
    return {
      attempt: claim.attempt,
      reason: isForced ? 'force-released' : isTaken ? 'taken-over' : 'deleted',
    }
  }

  #close(id: string, nowMs: number): EngineAnswer {
    const session = this.sessions.get(id)
    if (session === undefined) return { kind: 'no' }
    const touched = new Set<NameState>()
    this.#end(session, 'closed', touched)
    for (const name of touched) this.#settle(name, nowMs)
    return { kind: 'yes' }
  }

  #end(session: SessionState, ending: Ending, touched: Set<NameState>): void {
    this.#journal.delete(this.sessions, session.id)
    for (const claim of [...session.claims.values()]) {
      const name = this.names.get(claim.name)
      if (name === undefined) throw new Error('a claim without its name')
      touched.add(name)
      const delayMs = ending === 'expired' && claim.token !== null ? claim.lockDelayMs : 0
      this.#remove(claim, name, ending, null)
      if (delayMs > 0) this.#keepClosed(name, session.prolongedAtMs + session.ttlMs + delayMs)
    }
  }

  // --- claims ----------------------------------------------------------------------------------------------

  #acquire({ kind, session: id, request }: Acquire, nowMs: number): EngineAnswer {
    const session = this.sessions.get(id)
    if (session === undefined) return { kind: 'gone' }
    if (session.marks.has(request.attempt))
      return kind === 'enqueue' ? { kind: 'abandoned' } : { kind: 'busy' }
    const known = session.claims.get(request.attempt)
    if (known !== undefined) {
      if (known.token !== null) return { kind: 'granted', grant: grantOf(known) }
      return kind === 'enqueue' ? { kind: 'waiting' } : { kind: 'busy' }
    }
    const found = this.names.get(request.name)
    if (found !== undefined && isInUse(found) && found.capacity !== request.capacity)
      return { kind: 'mismatch', name: request.name, asked: request.capacity, inUse: found.capacity }
    const name = found ?? this.#addName(request.name, request.capacity)
    const isClosed = name.closedUntilMs > nowMs
    const hasRoom =
      !isClosed && name.line.length === 0 && heldWeight(name) + request.weight <= request.capacity
    if (!hasRoom && kind === 'tryAcquire')
      return isClosed ? { kind: 'busy', retryAfterMs: name.closedUntilMs - nowMs } : { kind: 'busy' }
    this.#journal.assign(name, 'capacity', request.capacity)
    const { attempt, mode, weight, lockDelayMs, note, owner } = request
    const claim: ClaimState = {
      attempt,
      name: name.name,
      session,
      mode,
      weight,
      lockDelayMs,
      labels: { ...(note !== undefined && { note }), ...(owner !== undefined && { owner }) },
      token: null,
      previousData: undefined,
    }
    this.#journal.set(session.claims, attempt, claim)
    if (hasRoom) {
      this.#grant(claim, name)
      return { kind: 'granted', grant: grantOf(claim) }
    }
    this.#journal.assign(name, 'line', [...name.line, claim])
    this.#options.observer.queued(claim, name)
    return { kind: 'waiting' }
  }

  #abandon(id: string, { attempt }: Claim, nowMs: number): EngineAnswer {
    const session = this.sessions.get(id)
    if (session === undefined) return { kind: 'yes' }
    this.#journal.set(session.marks, attempt, 'abandoned')
    const claim = session.claims.get(attempt)
    const name = claim && this.names.get(claim.name)
    if (claim === undefined || name === undefined) return { kind: 'yes' }
    this.#remove(claim, name, 'abandoned', attempt)
    this.#settle(name, nowMs)
    return { kind: 'yes' }
  }

  #release(id: string, claimed: GrantedClaim, keepForMs: number, nowMs: number): EngineAnswer {
    const claim = this.#holding(id, claimed)
    const name = claim && this.names.get(claim.name)
    if (claim === undefined || name === undefined) return { kind: 'no' }
    this.#remove(claim, name, 'released', claimed.attempt)
    if (keepForMs > 0) this.#keepClosed(name, nowMs + keepForMs)
    this.#settle(name, nowMs)
    return { kind: 'yes' }
  }

  #setData(id: string, claimed: GrantedClaim, data: string): EngineAnswer {
    const claim = this.#holding(id, claimed)
    const name = claim && this.names.get(claim.name)
    if (name === undefined) return { kind: 'no' }
    this.#journal.assign(name, 'data', data)
    return { kind: 'yes' }
  }

  /** The claim, if it holds by this very grant: the attempt may have been granted once more (T84, late duplicates). */
  #holding(id: string, { attempt, grantId }: GrantedClaim): ClaimState | undefined {
    const claim = this.sessions.get(id)?.claims.get(attempt)
    return claim?.token == null || String(claim.token) !== grantId ? undefined : claim
  }

  #show(wanted: string, nowMs: number): ShownName | null {
    const name = this.names.get(wanted)
    if (name === undefined || !isInUse(name)) return null
    const shown = ({ attempt, session, mode, weight, labels }: ClaimState) => ({
      ...labels,
      id: publicIdOf(attempt),
      holder: session.holder,
      mode,
      weight,
      session: publicIdOf(session.id),
      ttlMs: session.ttlMs,
    })
    return {
      name: wanted,
      capacity: name.capacity,
      holders: [...name.holders.values()].map((claim) => ({
        ...shown(claim),
        token: claim.token,
        heldForMs: 0,
        expiresInMs: claim.session.endsAtMs - nowMs,
      })),
      waiters: name.line.map((claim) => ({ ...shown(claim), waitingForMs: 0 })),
      ...(name.data !== undefined && { data: name.data }),
      closedForMs: Math.max(0, name.closedUntilMs - nowMs),
      atMs: nowMs,
    }
  }

  #list(prefix: string, nowMs: number): readonly ShownName[] {
    const names = [...this.names.keys()].filter((name) => name.startsWith(prefix))
    return names.flatMap((name) => this.#show(name, nowMs) ?? [])
  }

  #check({ name, id, token }: Extract<EngineRequest, { kind: 'check' }>): EngineAnswer {
    for (const claim of this.names.get(name)?.holders.values() ?? [])
      if (claim.token === token && claim.attempt.startsWith(id)) return { kind: 'yes' }
    return { kind: 'no' }
  }

  // --- names -----------------------------------------------------------------------------------------------

  #addName(name: string, capacity: number): NameState {
    const state = { name, capacity, holders: new Map(), line: [], data: undefined, closedUntilMs: 0 }
    this.#journal.set(this.names, name, state)
    return state
  }

  #keepClosed(name: NameState, untilMs: number): void {
    if (untilMs <= name.closedUntilMs) return
    this.#journal.assign(name, 'closedUntilMs', untilMs)
    this.#options.wakeAt(untilMs)
  }

  #remove(claim: ClaimState, name: NameState, ending: Ending, askedBy: string | null): void {
    this.#journal.delete(claim.session.claims, claim.attempt)
    if (claim.token !== null) this.#journal.delete(name.holders, claim.attempt)
    else {
      this.#journal.assign(
        name,
        'line',
        name.line.filter((each) => each !== claim),
      )
      const why = ending === 'expired' || ending === 'closed' ? 'gone' : 'abandoned'
      this.#options.push(claim.session.address, { kind: 'no-turn', attempt: claim.attempt, why })
    }
    this.#options.observer.ended(claim, name, ending, askedBy)
  }

  /** After every change that may make room: whose turn has come is granted inside the step that made it so. */
  #settle(name: NameState, nowMs: number): void {
    if (name.closedUntilMs <= nowMs) {
      for (let first = name.line[0]; first !== undefined; first = name.line[0]) {
        if (heldWeight(name) + first.weight > name.capacity) break
        this.#journal.assign(name, 'line', name.line.slice(1))
        this.#grant(first, name)
        this.#options.push(first.session.address, { kind: 'turn', grant: grantOf(first) })
      }
    }
    if (!isInUse(name) && name.data === undefined && name.closedUntilMs <= nowMs)
      this.#journal.delete(this.names, name.name)
  }

  #grant(claim: ClaimState, name: NameState): void {
    this.#journal.assign(claim, 'token', this.#drawToken())
    this.#journal.assign(claim, 'previousData', name.data)
    this.#journal.set(name.holders, claim.attempt, claim)
    this.#options.observer.granted(claim, name)
  }

  #drawToken(): bigint {
    // The reservation is synced before the first token of it is used, so it is not in the journal.
    if (this.#nextToken > this.#reservedUpTo) this.#reservedUpTo = this.#nextToken + TOKENS_RESERVED
    return this.#nextToken++
  }
}

function grantOf({ name, attempt, token, previousData }: ClaimState): Granted {
  if (token === null) throw new Error('a claim that waits has no grant')
  return { name, attempt, token, previousData }
}
