/**
 * The transactions of a session. What may go wrong between their steps:
 *
 *   join       creates the key, granted if nothing is in the way. Lost answer: the attempt asked again finds its key, and an abandon
 *              deletes it. A copy that lands after the abandon finds the mark (T73, late originals); after the end of the session, no session key.
 *              A join that was sent once and answered cannot land again, so its abandon needs no mark.
 *   confirm    after waiting, on condition that the same key is there (T17) and waits, and nothing older is there (T92). The grant is
 *              this write, so its token is not older than the wait (C54). A pause before it: the session may have ended, and its keys
 *              with it. A pause after it: belief counts from the session's last prolongation.
 *   release    compares the revision of the grant, so a successor is never hit (G7).
 *   abandon    deletes the key, if it is the attempt's. If a join may still land, the mark is written before that: of what lands in
 *              between, the deletion comes after. A full etcd refuses the mark, and never a deletion (T99, full engines): what lands late is
 *              found by the next keep-alive.
 *
 * A transaction that writes on the session's lease compares the session's key, which is on the same lease. So the lease lives, and a
 * batch cannot fail because of one request. Comparisons see what was before the whole batch, so a batch has one request for a name.
 */

import { claimRecord, type DataRecord, type SessionRecord } from '../../../kit/claim-records.ts'
import type { AcquireRequest, Claim, Mode } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { type GrantParts, type Keys, modes } from './keys.ts'
import { claimValue, type FoundClaim, isOf, waits } from './records.ts'
import { Slots } from './slots.ts'

/** A session as its transactions name it. `revision`: that of its key's creation. */
export interface SessionRef {
  readonly lease: number
  readonly revision: number
  readonly record: SessionRecord
  /** By this process, so that it knows the keys of all its claims. */
  readonly isOpenedHere: boolean
}

export class Statements {
  readonly slots = new Slots()
  readonly #keys: Keys
  readonly #session: SessionRef

  constructor(keys: Keys, session: SessionRef) {
    this.#keys = keys
    this.#session = session
  }

  key({ name, attempt }: Claim, mode: Mode): string {
    return this.#keys.of(name, mode, this.#session.lease, this.slots.of(attempt))
  }

  alive(): etcd.Compare {
    return etcd.created(this.#keys.session(this.#session.lease), this.#session.revision)
  }

  /** Granted if nothing is in the way; else it waits, if it may; else it is read why not. */
  join(request: AcquireRequest, mayWait: boolean, nowMs: number, index: number): etcd.TxnRequest {
    const { name, attempt, mode } = request
    const own = this.key(request, mode)
    const mark = etcd.absent(this.#keys.mark(this.#session.lease, attempt))
    const may = [this.alive(), mark, etcd.absent(own)]
    const inTheWay = this.#keys.part(name, 'exclusive', mode === 'shared' ? 'permits' : 'shared')
    // Locks and semaphores do not mix.
    const others = (mode === 'permits' ? (['exclusive', 'shared'] as const) : (['permits'] as const)).map(
      (each) => this.#keys.part(name, each),
    )
    const refused = [...this.#status(request), ...others.map((each) => etcd.getAll(each, { limit: 1 }))]
    const waits = [...this.#older(request), this.#put(request, nowMs)]
    const waiting = etcd.onCondition([...may, ...others.map(etcd.none)], waits, refused)
    const otherwise = mayWait || mode === 'permits' ? [{ txn: waiting }] : refused
    return etcd.onCondition([...may, etcd.none(inTheWay)], this.#grant(request, nowMs, index), otherwise)
  }

  /** For permits: the claim was eligible at the revision `version`, and stays so unless the capacity was changed since. */
  confirm(request: AcquireRequest, order: number, version: number, nowMs: number, index: number) {
    const { name, attempt, mode } = request
    const own = this.key(request, mode)
    const isOpen = etcd.none(this.#keys.part(name, 'kept'))
    const same = [etcd.created(own, order), ...waits(own, attempt), isOpen]
    const grant = this.#grant(request, nowMs, index)
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

  leave(request: AcquireRequest): etcd.TxnRequest {
    const own = this.key(request, request.mode)
    return etcd.onCondition(waits(own, request.attempt), [etcd.remove(own)])
  }

  /** `closedBy`: a lease on which the name stays closed. */
  release(claim: Claim, { revision, mode }: GrantParts, closedBy: number | null): etcd.TxnRequest {
    const own = this.key(claim, mode)
    const kept = this.#keys.of(claim.name, 'kept', 0, this.slots.of(claim.attempt))
    const close = closedBy === null ? [] : [etcd.put(kept, '', closedBy)]
    return etcd.onCondition([etcd.written(own, revision)], [etcd.remove(own), ...close])
  }

  setData({ name, key, revision }: FoundClaim, record: DataRecord): etcd.TxnRequest {
    const cell = etcd.put(this.#keys.data(name), JSON.stringify(record))
    return etcd.onCondition([etcd.written(key, revision)], [cell])
  }

  /** A session that has gone has left nothing, so there is nothing to do. */
  mark({ attempt }: Claim): etcd.TxnRequest {
    const { lease } = this.#session
    const mark = etcd.put(this.#keys.mark(lease, attempt), '{"reason":"abandoned"}', lease)
    return etcd.onCondition([this.alive()], [mark])
  }

  /** Whether it waits or is granted, and in whichever mode. */
  remove(claim: Claim): etcd.TxnRequest {
    const { attempt } = claim
    const removals = modes.map((mode) => {
      const own = this.key(claim, mode)
      return { txn: etcd.onCondition(isOf(own, attempt), [etcd.remove(own)]) }
    })
    return etcd.always(removals)
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

  #put(request: AcquireRequest, nowMs: number, index?: number): etcd.Operation {
    const { lease, record } = this.#session
    const value = claimValue(request.attempt, claimRecord(request, record, nowMs), index)
    return etcd.put(this.key(request, request.mode), value, lease)
  }

  #grant(request: AcquireRequest, nowMs: number, index: number): etcd.Operation[] {
    return [this.#put(request, nowMs, index), etcd.get(this.#keys.data(request.name))]
  }

  #status(request: AcquireRequest): etcd.Operation[] {
    const { lease } = this.#session
    const own = this.key(request, request.mode)
    const data = this.#keys.data(request.name)
    return [this.#keys.session(lease), this.#keys.mark(lease, request.attempt), own, data].map((key) =>
      etcd.get(key),
    )
  }
}
