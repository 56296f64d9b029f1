/**
 * The one rule for all modes: a request is granted when it is first in the queue, the name is not closed, and the
 * holders' weights leave room. A token is drawn in the same step as its grant (T37), and a name that becomes free
 * goes to the next waiter in the same step (G9).
 *
 * Everything here assumes that dead sessions have been removed: the engine does so before every operation.
 */
import assert from 'node:assert/strict'
import { CapacityMismatchError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import type { AcquireRequest, CapacityChange } from '../../spi.ts'
import type { Deadlines } from './deadlines.ts'
import type { EventLog } from './event-log.ts'
import {
  type Claim,
  isInUse,
  keyOf,
  type NameRecord,
  newName,
  type Session,
  type WaitOutcome,
} from './state.ts'

export type Ending = 'released' | 'expired' | 'force-released'

export class NameTable {
  /** By namespace and name. */
  readonly #names = new Map<string, NameRecord>()
  readonly #closings: Deadlines<Session | NameRecord>
  readonly #log: EventLog
  #lastToken = 0n
  #waiting = 0

  constructor(closings: Deadlines<Session | NameRecord>, log: EventLog) {
    this.#closings = closings
    this.#log = log
  }

  get size(): number {
    return this.#names.size
  }

  /** How many claims wait, on all names together. */
  get waiting(): number {
    return this.#waiting
  }

  find(namespace: string, name: string): NameRecord | undefined {
    return this.#names.get(keyOf(namespace, name))
  }

  *list(namespace: string, prefix: string): Generator<NameRecord> {
    for (const record of this.#names.values())
      if (record.namespace === namespace && record.name.startsWith(prefix)) yield record
  }

  dataChanged(claim: Claim): void {
    this.#log.append('data', claim)
  }

  /** Grants what is asked for, or joins the queue behind at most `maxWaiters - 1`; null if it may not wait. */
  admit(session: Session, request: AcquireRequest, maxWaiters: number, nowMs: number): Claim | null {
    const { name, capacity, weight } = request
    assert(weight >= 1 && weight <= capacity, 'core checks that a weight fits the capacity')
    const found = this.find(session.namespace, name)
    if (found !== undefined && isInUse(found) && found.capacity !== capacity)
      throw new CapacityMismatchError(name, capacity, found.capacity)
    const hasRoom =
      found === undefined ||
      (found.closedUntilMs <= nowMs && found.queue.length === 0 && found.heldWeight + weight <= capacity)
    if (!hasRoom && (found?.queue.length ?? 0) >= maxWaiters) return null
    const record = found ?? this.#add(session.namespace, request)
    // A name without holders and waiters is kept for its data or its closing only: its capacity is free to change.
    record.capacity = capacity
    const claim = newClaim(session, record, request, nowMs)
    session.claims.set(claim.attempt, claim)
    if (hasRoom) this.#grant(claim, nowMs)
    else this.#enqueue(claim)
    return claim
  }

  /** Ends a claim, held or waiting. The caller settles the name afterwards. */
  remove(claim: Claim, ending: Ending, outcome: WaitOutcome): void {
    const { record, session, attempt } = claim
    session.claims.delete(attempt)
    if (claim.token === null) {
      record.queue.leave(claim)
      this.#waiting--
      this.#log.append('gave-up', claim)
    } else {
      record.holders.delete(attempt)
      record.heldWeight -= claim.weight
      this.#log.append(ending, claim)
    }
    notify(claim, outcome)
  }

  keepClosed(record: NameRecord, untilMs: number): void {
    if (untilMs <= record.closedUntilMs) return
    record.closedUntilMs = untilMs
    this.#closings.set(record, untilMs)
  }

  /** After every change that may make room: waiters that fit are granted, and a name without content goes. */
  settle(record: NameRecord, nowMs: number): void {
    if (record.closedUntilMs <= nowMs) {
      for (let first = record.queue.first; first !== undefined; first = record.queue.first) {
        if (record.heldWeight + first.weight > record.capacity) break
        record.queue.leave(first)
        this.#waiting--
        this.#grant(first, nowMs)
        notify(first, { kind: 'granted', claim: first })
      }
    }
    if (isInUse(record) || record.data !== undefined || record.closedUntilMs > nowMs) return
    this.#names.delete(keyOf(record.namespace, record.name))
  }

  resize(
    record: NameRecord | undefined,
    { from, to }: CapacityChange,
    nowMs: number,
  ): 'resized' | 'in-use' | 'changed' {
    if (record === undefined || !isInUse(record) || record.capacity !== from) return 'changed'
    if (record.heldWeight > to) return 'in-use'
    for (const waiter of record.queue) if (waiter.weight > to) return 'in-use'
    record.capacity = to
    this.settle(record, nowMs)
    return 'resized'
  }

  #add(namespace: string, request: AcquireRequest): NameRecord {
    const record = newName(namespace, request.name, request.capacity)
    this.#names.set(keyOf(namespace, request.name), record)
    return record
  }

  #grant(claim: Claim, nowMs: number): void {
    const { record } = claim
    claim.token = ++this.#lastToken
    claim.grantId = String(claim.token)
    claim.sinceMs = nowMs
    claim.previousData = record.data
    record.holders.set(claim.attempt, claim)
    record.heldWeight += claim.weight
    this.#log.append('acquired', claim)
  }

  #enqueue(claim: Claim): void {
    claim.record.queue.join(claim)
    this.#waiting++
    this.#log.append('waiting', claim)
  }
}

function newClaim(session: Session, record: NameRecord, request: AcquireRequest, nowMs: number): Claim {
  const { attempt, mode, weight, note, owner, lockDelayMs } = request
  return {
    session,
    record,
    name: record.name,
    attempt,
    publicId: publicIdOf(attempt),
    mode,
    weight,
    note,
    owner,
    lockDelayMs,
    token: null,
    grantId: null,
    sinceMs: nowMs,
    previousData: undefined,
    listeners: new Set(),
    before: undefined,
    behind: undefined,
  }
}

function notify(claim: Claim, outcome: WaitOutcome): void {
  for (const listener of claim.listeners) listener(outcome)
  claim.listeners.clear()
}
