/** One session's claims in the queues, as the predecessor queue asks for them. */
import { type BackendUnavailableError, CapacityMismatchError } from '../../base/errors.ts'
import * as etcd from '../../clients/etcd/index.ts'
import type {
  JoinResult,
  OrderedStore,
  QueueEntry,
  QueueStanding,
  QueueView,
  WatchedKey,
} from '../../kit/ordered-store.ts'
import type { AcquireRequest, Call, Claim, Mode } from '../../spi.ts'
import { type Committed, type Connection, unavailable } from './connection.ts'
import { tokenOf } from './keys.ts'
import type { Found, FoundClaim } from './records.ts'
import { type SessionRef, Statements } from './statements.ts'

const ONLY_DELETIONS = [0]

/** Keeps an attempt in mind while its request is in flight. */
type Asking = <T>(claim: Claim, send: () => Promise<T>) => Promise<T>

export class ClaimStore implements OrderedStore {
  readonly comparesOrder = true
  readonly statements: Statements
  readonly #connection: Connection
  readonly #session: SessionRef
  readonly #asking: Asking

  constructor(connection: Connection, session: SessionRef, asking: Asking) {
    this.#connection = connection
    this.#session = session
    this.#asking = asking
    this.statements = new Statements(connection.keys, session)
  }

  async join(request: AcquireRequest, mayWait: boolean, call: Call): Promise<JoinResult> {
    const nowMs = this.#connection.clock.wallMs()
    const build = (index: number) => this.statements.join(request, mayWait, nowMs, index)
    const committed = await this.#asking(request, () => this.#send(request, build, call))
    const { found, branch } = committed
    if (branch === 'first') return granted(request.mode, committed)
    if (branch === 'second') return this.#joined(request, found, call)
    if (!this.#isAlive(found)) return { kind: 'session-gone' }
    if (found.mark !== undefined) throw wasAbandoned()
    if (found.claim(request.attempt) !== undefined) {
      const standing = await this.look(request, call)
      // Another copy of this join may have made it.
      const isNew = committed.isRepeated && this.statements.slots.isFirst(request)
      return standing.kind === 'waiting' ? { ...standing, isNew } : standing
    }
    if (found.claims.some(({ key }) => key === this.#key(request))) {
      // A late request of an ended attempt has it. With a second key, a late copy of this request could get the first one as
      // well (T84). As `unknown` the attempt is abandoned, and its mark refuses all copies.
      this.statements.slots.set(request, request.attempt)
      throw unavailable('a late request of an earlier attempt has taken its key', 'unknown')
    }
    // Only a claim of the other kind was read besides.
    const [other] = found.claims
    if (other !== undefined) throw new CapacityMismatchError(request.name, request.capacity, other.capacity)
    return { kind: 'busy' }
  }

  /** Waiters that look at one name at the same moment share the read. */
  async look(request: AcquireRequest, call: Call): Promise<QueueStanding> {
    const found = await this.#connection.look(request.name, call)
    const own = found.claim(request.attempt)
    if (own !== undefined) {
      // If the answer to its join was lost, it does not know yet that it disagrees.
      const isAgreed = own.granted || found.capacity === found.capacitySince(own.order, request.capacity)
      if (!isAgreed) await this.#refuse(request, found.capacity ?? request.capacity, call)
      return this.#standing(request, found, own)
    }
    const session = etcd.get(this.#connection.keys.session(this.#session.lease))
    return this.#missing(await this.#connection.read([session], call))
  }

  async confirm(
    request: AcquireRequest,
    { order }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<QueueStanding> {
    const [own, version, nowMs] = [Number(order), Number(seen?.version ?? 0), this.#connection.clock.wallMs()]
    const build = (index: number) => this.statements.confirm(request, own, version, nowMs, index)
    const committed = await this.#connection.commit(request.name, build, call)
    if (committed.branch !== 'none') return granted(request.mode, committed)
    const claim = committed.found.claim(request.attempt)
    return claim === undefined
      ? this.#missing(committed.found)
      : this.#standing(request, committed.found, claim)
  }

  async leave(request: AcquireRequest, call: Call): Promise<void> {
    const statement = this.statements.leave(request)
    await this.#connection.commit(request.name, () => statement, call)
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

  /** A copy of the join may land later, if its outcome is unknown or it was asked again. */
  async #send(request: AcquireRequest, build: (index: number) => etcd.TxnRequest, call: Call) {
    const committed = await this.#connection.commit(request.name, build, call)
    if (!committed.isRepeated) this.statements.slots.settled(request)
    return committed
  }

  /** Its key was created by this transaction, so what was read is older. */
  async #joined(request: AcquireRequest, found: Found, call: Call): Promise<JoinResult> {
    const { capacity, weight } = request
    if (found.capacity !== null && found.capacity !== capacity)
      await this.#refuse(request, found.capacity, call)
    const own = { key: this.#key(request), order: BigInt(found.revision), weight, granted: false }
    return { kind: 'waiting', isNew: true, queue: this.#view(request, found, own) }
  }

  /** A waiter that disagrees is never granted, and leaves at once. */
  async #refuse(request: AcquireRequest, actual: number, call: Call): Promise<never> {
    await this.leave(request, call)
    throw new CapacityMismatchError(request.name, request.capacity, actual)
  }

  #standing(request: AcquireRequest, found: Found, own: FoundClaim): QueueStanding {
    if (own.token !== null) return { kind: 'granted', token: own.token, previousData: found.data?.data }
    return { kind: 'waiting', queue: this.#view(request, found, own) }
  }

  #view({ name, ...asked }: AcquireRequest, found: Found, own: QueueEntry): QueueView {
    const capacity = found.capacitySince(own.order, asked.capacity)
    const kept = found.kept.map((key) => ({ key, order: 0n, weight: capacity, granted: true }))
    const older = [...kept, ...found.claims.filter(({ order }) => order < own.order)]
    const capacityKey = this.#connection.keys.part(name, 'capacity').key
    return { own, older, capacity, capacityKey, version: BigInt(found.revision) }
  }

  #missing(found: Found): QueueStanding {
    return this.#isAlive(found) ? { kind: 'deleted' } : { kind: 'session-gone' }
  }

  #isAlive({ session }: Found): boolean {
    return session?.revision === this.#session.revision
  }

  #key(request: AcquireRequest): string {
    return this.statements.key(request, request.mode)
  }
}

export function wasAbandoned(): BackendUnavailableError {
  return unavailable('the attempt was abandoned', 'not-applied')
}

function granted(mode: Mode, { revision, index, found }: Committed): QueueStanding & { kind: 'granted' } {
  return { kind: 'granted', token: tokenOf(revision, index, mode), previousData: found.data?.data }
}
