/** One session's claims in the queues: what the answers of a `ClaimStore` mean for the predecessor queue. */
import {
  BackendUnavailableError,
  CapacityMismatchError,
  isHoldfastError,
  withOutcome,
} from '../base/errors.ts'
import type { AcquireRequest, Call } from '../spi.ts'
import type { ClaimStore, Joined } from './conditional-store.ts'
import type { JoinResult, OrderedStore, QueueEntry, QueueStanding, QueueView } from './ordered-store.ts'
import type { QueuedClaim, StoredName } from './stored-name.ts'

/** Sends a join, and remembers for the session that it was sent. `isFirst`: none was sent for the attempt before. */
export type SendJoin<C extends QueuedClaim> = (
  request: AcquireRequest,
  join: () => Promise<Joined<C>>,
) => Promise<{ readonly joined: Joined<C>; readonly isFirst: boolean }>

export class StoreQueue<C extends QueuedClaim> implements OrderedStore {
  readonly comparesOrder: boolean
  readonly #backend: string
  readonly #store: ClaimStore<C>
  readonly #send: SendJoin<C>
  readonly watch: OrderedStore['watch']

  constructor(backend: string, store: ClaimStore<C>, send: SendJoin<C>) {
    this.#backend = backend
    this.#store = store
    this.#send = send
    this.comparesOrder = store.comparesOrder
    this.watch = store.watch.bind(store)
  }

  async join(request: AcquireRequest, mayWait: boolean, call: Call): Promise<JoinResult> {
    const join = () => this.#store.join(request, mayWait, call)
    const { joined, isFirst } = await this.#send(request, join)
    if (joined.kind === 'granted') return joined
    if (joined.kind === 'session-gone') return { kind: 'session-gone' }
    if (joined.kind === 'abandoned') throw wasAbandoned(this.#backend)
    // Another copy of this join may have made the key that it found.
    if (joined.kind === 'refused')
      return this.#refused(request, joined.name, isFirst && joined.mayLandAgain === true, call)
    const { own, name } = joined
    if (name.capacity !== null && name.capacity !== request.capacity)
      await whileQueued(this.#leaveAsMismatch(request, name.capacity, call))
    return { kind: 'waiting', isNew: true, queue: this.#queue(request, name, own) }
  }

  async look(request: AcquireRequest, call: Call): Promise<QueueStanding> {
    const name = await this.#store.look(request, call)
    const own = name.claim(request.attempt)
    if (own === undefined) return this.#missing(call)
    // If the answer to its join was lost, it does not know yet that it disagrees.
    const isAgreed = own.granted || name.capacity === name.capacitySince(own.order, request.capacity)
    if (!isAgreed) await this.#leaveAsMismatch(request, name.capacity ?? request.capacity, call)
    return this.#standing(request, name, own)
  }

  async confirm(
    request: AcquireRequest,
    own: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<QueueStanding> {
    const confirmed = await this.#store.confirm(request, own, seen, call)
    if ('kind' in confirmed) return confirmed
    const claim = confirmed.claim(request.attempt)
    return claim === undefined ? this.#missing(call) : this.#standing(request, confirmed, claim)
  }

  leave(request: AcquireRequest, call: Call): Promise<void> {
    return this.#store.leave(request, call)
  }

  async #refused(
    request: AcquireRequest,
    name: StoredName<C>,
    isNew: boolean,
    call: Call,
  ): Promise<JoinResult> {
    if (name.claim(request.attempt) !== undefined) {
      const standing = await whileQueued(this.look(request, call))
      return standing.kind === 'waiting' ? { ...standing, isNew } : standing
    }
    const other = name.claims.find(({ mode }) => (mode === 'permits') !== (request.mode === 'permits'))
    if (other !== undefined) throw new CapacityMismatchError(request.name, request.capacity, other.capacity)
    return { kind: 'busy' }
  }

  /** A waiter that disagrees is never granted, and leaves at once. */
  async #leaveAsMismatch(request: AcquireRequest, actual: number, call: Call): Promise<never> {
    await this.leave(request, call)
    throw new CapacityMismatchError(request.name, request.capacity, actual)
  }

  #standing(request: AcquireRequest, name: StoredName<C>, own: C): QueueStanding {
    if (own.granted && own.token !== null)
      return { kind: 'granted', token: own.token, previousData: name.data?.data }
    return { kind: 'waiting', queue: this.#queue(request, name, own) }
  }

  #queue({ name, capacity }: AcquireRequest, stored: StoredName<C>, own: QueueEntry): QueueView {
    const capacityKey = this.#store.capacityKey?.(name)
    return { ...stored.queue(own, capacity), ...(capacityKey !== undefined && { capacityKey }) }
  }

  async #missing(call: Call): Promise<QueueStanding> {
    return (await this.#store.isAlive(call)) ? { kind: 'deleted' } : { kind: 'session-gone' }
  }
}

/** Its key is there, and may be granted. That the next step was not applied does not change this. */
export async function whileQueued<T>(step: Promise<T>): Promise<T> {
  try {
    return await step
  } catch (error) {
    throw isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? withOutcome(error, 'unknown') : error
  }
}

export function wasAbandoned(backend: string): BackendUnavailableError {
  return new BackendUnavailableError(backend, 'the attempt was abandoned', 'not-applied')
}
