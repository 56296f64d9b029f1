/**
 * The transactions of a session. What may go wrong between their steps:
 *
 *   join       creates the key, granted if nothing is in the way. Lost answer: the attempt asked again finds its key, and an abandon
 *              deletes it. A copy that lands after the abandon finds the mark (T73); after the end of the session, no session key.
 *   confirm    after waiting, on condition that the same key is there (T17) and waits, and nothing older is there (T92). The grant is
 *              this write, so its token is not older than the wait (C54). A pause before it: the session may have ended, and its keys
 *              with it. A pause after it: belief counts from the session's last prolongation.
 *   release    compares the revision of the grant, so a successor is never hit (G7).
 *   abandon    writes the mark and deletes the key at once.
 *
 * A transaction that writes on the session's lease compares the session's key, which is on the same lease. So the lease lives, and a
 * batch cannot fail because of one request. Comparisons see what was before the whole batch, so a batch has one request for a name.
 */
import {
  absent,
  type Compare,
  created,
  get,
  getAll,
  none,
  nothingOlder,
  type Operation,
  onCondition,
  put,
  remove,
  type TxnRequest,
  unchangedSince,
  valueAfter,
  written,
  youngest,
} from '../../clients/etcd/index.ts'
import type { AcquireRequest, Claim } from '../../spi.ts'
import { type GrantParts, type Keys, type Kind, kindOf, kinds } from './keys.ts'
import { claimValue, type DataRecord, type SessionRecord, WAITING } from './records.ts'

/** A session as its transactions name it. `revision`: that of its key's creation. */
export interface SessionRef {
  readonly lease: number
  readonly revision: number
  readonly record: SessionRecord
}

export class Statements {
  readonly #keys: Keys
  readonly #session: SessionRef

  constructor(keys: Keys, session: SessionRef) {
    this.#keys = keys
    this.#session = session
  }

  key({ name, attempt }: Claim, kind: Kind): string {
    return this.#keys.claim(kind, name, this.#session.lease, attempt)
  }

  alive(): Compare {
    const { lease, revision } = this.#session
    return created(this.#keys.session(lease), revision)
  }

  /** Granted if nothing is in the way; else it waits, if it may; else it is read why not. */
  join(request: AcquireRequest, mayWait: boolean, nowMs: number, index: number): TxnRequest {
    const { name, attempt } = request
    const kind = kindOf(request.mode)
    const own = this.key(request, kind)
    const mark = this.#keys.mark(this.#session.lease, attempt)
    const may = [this.alive(), absent(mark), absent(own)]
    const free =
      kind === 'r' ? [this.#part(name, 'k', 'p'), this.#part(name, 'w')] : [this.#part(name, 'k', 'w')]
    // Locks and semaphores do not mix.
    const others = kind === 'p' ? this.#part(name, 'r', 'w') : this.#part(name, 'p')
    const refused = [...this.#status(request, own), getAll(others, { limit: 1 })]
    const waits = onCondition(
      [...may, none(others)],
      [...this.#older(request), this.#put(request, own, nowMs)],
      refused,
    )
    const otherwise = mayWait || kind === 'p' ? [{ txn: waits }] : refused
    return onCondition([...may, ...free.map(none)], this.#grant(request, own, nowMs, index), otherwise)
  }

  /** For permits: the claim was eligible at the revision `version`, and stays so unless the capacity was changed since. */
  confirm(request: AcquireRequest, order: number, version: number, nowMs: number, index: number): TxnRequest {
    const { name } = request
    const kind = kindOf(request.mode)
    const own = this.key(request, kind)
    const same = [created(own, order), valueAfter(own, WAITING), none(this.#part(name, 'k'))]
    const grant = this.#grant(request, own, nowMs, index)
    const otherwise = [...this.#status(request, own), ...this.#older(request, order)]
    if (kind === 'p')
      return onCondition([...same, unchangedSince(this.#part(name, 'c'), version)], grant, otherwise)
    const conflicts = this.#conflicts(request)
    const first = onCondition([...same, nothingOlder(conflicts, order)], grant, otherwise)
    // The own key is among the writers, so that there is one. For a reader there may be none.
    return kind === 'w' ? first : onCondition([...same, none(conflicts)], grant, [{ txn: first }])
  }

  leave(request: AcquireRequest): TxnRequest {
    const own = this.key(request, kindOf(request.mode))
    return onCondition([valueAfter(own, WAITING)], [remove(own)])
  }

  /** `closedBy`: a lease on which the name stays closed. */
  release(claim: Claim, { revision, kind }: GrantParts, closedBy: number | null): TxnRequest {
    const own = this.key(claim, kind)
    const close = closedBy === null ? [] : [put(this.#keys.closed(claim.name, claim.attempt), kind, closedBy)]
    return onCondition([written(own, revision)], [remove(own), ...close])
  }

  setData(claim: Claim, { revision, kind }: GrantParts, record: DataRecord): TxnRequest {
    const cell = put(this.#keys.data(claim.name), JSON.stringify(record))
    return onCondition([written(this.key(claim, kind), revision)], [cell])
  }

  /** Of a session that has gone nothing is left, so there is nothing to do. */
  abandon(claim: Claim): TxnRequest {
    const { lease } = this.#session
    const mark = put(this.#keys.mark(lease, claim.attempt), JSON.stringify({ reason: 'abandoned' }), lease)
    return onCondition([this.alive()], [mark, ...kinds.map((kind) => remove(this.key(claim, kind)))])
  }

  readonly #part: Keys['part'] = (...part) => this.#keys.part(...part)

  /** What an older claim must be, to stand in the way of a lock. */
  #conflicts({ name, mode }: AcquireRequest) {
    return mode === 'shared' ? this.#part(name, 'w') : this.#part(name, 'r', 'w')
  }

  /** What stands in front of it. Of locks the youngest is enough, unless the waiters are counted. */
  #older(request: AcquireRequest, order?: number): Operation[] {
    const { name, mode, maxWaiters } = request
    if (mode === 'permits') return [getAll(this.#part(name, 'k', 'w')), getAll(this.#part(name, 'c'))]
    if (maxWaiters !== undefined) return [getAll(this.#part(name, 'k', 'w'))]
    const before = order === undefined ? undefined : order - 1
    return [youngest(this.#conflicts(request), before), getAll(this.#part(name, 'k'), { limit: 1 })]
  }

  #put(request: AcquireRequest, key: string, nowMs: number, index?: number): Operation {
    const { lease, record } = this.#session
    return put(key, claimValue(request, record, nowMs, index), lease)
  }

  #grant(request: AcquireRequest, own: string, nowMs: number, index: number): Operation[] {
    return [this.#put(request, own, nowMs, index), get(this.#keys.data(request.name))]
  }

  #status({ name, attempt }: Claim, own: string): Operation[] {
    const { lease } = this.#session
    return [this.#keys.session(lease), this.#keys.mark(lease, attempt), own, this.#keys.data(name)].map(
      (key) => get(key),
    )
  }
}
