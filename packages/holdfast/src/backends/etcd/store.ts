/** One session's claims in the queues, as the predecessor queue asks for them. */
import { CapacityMismatchError } from '../../base/errors.ts'
import { get, prefixed } from '../../clients/etcd/index.ts'
import type {
  JoinResult,
  OrderedStore,
  QueueEntry,
  QueueStanding,
  QueueView,
  WatchedKey,
} from '../../kit/ordered-store.ts'
import { type AcquireRequest, type Call, type Claim, LOCK_CAPACITY, type Mode } from '../../spi.ts'
import { type Committed, type Connection, unavailable } from './connection.ts'
import { kindOf, tokenOf } from './keys.ts'
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
    const { name } = request
    const nowMs = this.#nowMs
    const committed = await this.#asking(request, () =>
      this.#connection.commit(name, (index) => this.statements.join(request, mayWait, nowMs, index), call),
    )
    const { found } = committed
    if (committed.branch === 'first') return granted(request.mode, committed)
    if (committed.branch === 'second') return this.#joined(request, found, call)
    if (!this.#isAlive(found)) return { kind: 'session-gone' }
    if (found.mark !== undefined) throw unavailable('the attempt was abandoned', 'not-applied')
    const own = found.claim(this.#key(request))
    const other = found.claims.find((claim) => claim !== own)
    if (own !== undefined) {
      const standing = own.granted ? this.#standing(request, found, own) : await this.look(request, call)
      return standing.kind === 'waiting' ? { ...standing, isNew: false } : standing
    }
    if (other !== undefined && (other.kind === 'p') !== (request.mode === 'permits'))
      throw new CapacityMismatchError(name, request.capacity, other.capacity)
    return { kind: 'busy' }
  }

  /** Waiters that look at one name at the same moment share the read. */
  async look(request: AcquireRequest, call: Call): Promise<QueueStanding> {
    const found = await this.#connection.look(request.name, call)
    const own = found.claim(this.#key(request))
    if (own !== undefined) {
      // If the answer to its join was lost, it does not know yet that it disagrees.
      const isAgreed = own.granted || found.capacity === found.capacitySince(own.order, request.capacity)
      if (!isAgreed) await this.#refuse(request, found.capacity ?? request.capacity, call)
      return this.#standing(request, found, own)
    }
    const session = get(this.#connection.keys.session(this.#session.lease))
    return this.#isAlive(await this.#connection.read([session], call))
      ? { kind: 'deleted' }
      : { kind: 'session-gone' }
  }

  async confirm(
    request: AcquireRequest,
    { order }: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<QueueStanding> {
    const [own, version, nowMs] = [Number(order), Number(seen?.version ?? 0), this.#nowMs]
    const committed = await this.#connection.commit(
      request.name,
      (index) => this.statements.confirm(request, own, version, nowMs, index),
      call,
    )
    if (committed.branch !== 'none') return granted(request.mode, committed)
    const claim = committed.found.claim(this.#key(request))
    if (claim !== undefined) return this.#standing(request, committed.found, claim)
    return this.#isAlive(committed.found) ? { kind: 'deleted' } : { kind: 'session-gone' }
  }

  async leave(request: AcquireRequest, call: Call): Promise<void> {
    await this.#connection.commit(request.name, () => this.statements.leave(request), call)
  }

  watch(
    keys: readonly WatchedKey[],
    version: bigint,
    onWake: (wake: 'changed' | 'lost') => void,
  ): () => void {
    const ends: (() => void)[] = []
    const stop = () => {
      for (const end of ends.splice(0)) end()
    }
    const wake = (how: 'changed' | 'lost') => {
      if (ends.length === 0) return
      stop()
      onWake(how)
    }
    const start_revision = Number(version) + 1
    for (const { key, until } of keys) {
      // The capacity is a range of keys.
      const range = key.endsWith('/') ? prefixed(key) : { key }
      const watched = { ...range, start_revision, filters: until === 'deleted' ? ONLY_DELETIONS : [] }
      const end = this.#connection.watches.add(watched, {
        // Cancelled by etcd: the revision was compacted, or the user may not read the key.
        onResponse: ({ canceled, events }) => {
          if (canceled || events.length > 0) wake(canceled ? 'lost' : 'changed')
        },
        onLost: () => wake('lost'),
      })
      ends.push(end)
    }
    return stop
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
    if (own.granted) return { kind: 'granted', token: own.token, previousData: found.data?.data }
    return { kind: 'waiting', queue: this.#view(request, found, own) }
  }

  #view({ name, mode, ...asked }: AcquireRequest, found: Found, own: QueueEntry): QueueView {
    const capacity = mode === 'permits' ? found.capacitySince(own.order, asked.capacity) : LOCK_CAPACITY
    const closed = found.closed.map((key) => ({ key, order: 0n, weight: capacity, granted: true }))
    const older = [...closed, ...found.claims.filter(({ order }) => order < own.order)]
    const capacityKey = this.#connection.keys.part(name, 'c').key
    return { own, older, capacity, capacityKey, version: BigInt(found.revision) }
  }

  #isAlive({ session }: Found): boolean {
    return session?.create_revision === this.#session.revision
  }

  #key(request: AcquireRequest): string {
    return this.statements.key(request, kindOf(request.mode))
  }

  get #nowMs(): number {
    return Math.round(this.#connection.clock.wallMs())
  }
}

function granted(mode: Mode, { revision, index, found }: Committed): QueueStanding & { kind: 'granted' } {
  return { kind: 'granted', token: tokenOf(revision, index, kindOf(mode)), previousData: found.data?.data }
}
