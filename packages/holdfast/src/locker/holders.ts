/**
 * Names the holders in ACQUIRE_TIMEOUT. One `inspect` (200 ms at most) serves all acquires that time out on a name
 * together; the error is thrown in any case.
 */

import { callWith, unlessAborted } from '../base/aborting.ts'
import type { Cancellation } from '../base/cancellation.ts'
import { AcquireTimeoutError, quote } from '../base/errors.ts'
import type { HolderState, NameState } from '../base/types.ts'
import { type Backend, LOCK_CAPACITY } from '../spi.ts'
import { callEngine } from './call.ts'
import type { LockerContext } from './context.ts'
import type { LeaseRecord } from './lease.ts'
import { shownState } from './name-state.ts'

/** Short waits are repeated often; an `inspect` for each would add as many calls. */
const SHORTEST_WAIT_MS = 50
const LOOK_WITHIN_MS = 200
const MOST_NAMED = 3

export interface OwnLeases {
  /** The leases that this locker has on a name. */
  leasesOn(name: string): Iterable<LeaseRecord>
}

export interface TimedOut {
  /** As the caller gave it. The last of several names may have been waited for less. */
  readonly waitMs: number
  readonly waitedMs: number
  readonly signal: AbortSignal | undefined
}

/** The parts of the error that are the same for all callers. */
interface Look {
  readonly advice: string | undefined
  readonly holders?: readonly HolderState[]
  readonly heldByThisLocker: boolean
}

export class HolderLookup {
  readonly #backend: Backend
  readonly #context: LockerContext
  readonly #sessions: OwnLeases
  readonly #closing: Cancellation
  readonly #looks = new Map<string, Promise<Look>>()

  constructor(backend: Backend, context: LockerContext, sessions: OwnLeases, closing: Cancellation) {
    this.#backend = backend
    this.#context = context
    this.#sessions = sessions
    this.#closing = closing
  }

  /** Never rejects. A caller that gives up has the error at once (T27, cancelled pauses), without the other holders. */
  async timeoutError(name: string, { waitMs, waitedMs, signal }: TimedOut): Promise<AcquireTimeoutError> {
    const withoutLook = () => this.#withoutLook(name)
    const { advice, ...found } =
      waitMs < SHORTEST_WAIT_MS
        ? withoutLook()
        : await unlessAborted(this.#shared(name), signal, () => signal?.reason).catch(withoutLook)
    return new AcquireTimeoutError(name, waitedMs, advice, found)
  }

  #shared(name: string): Promise<Look> {
    let look = this.#looks.get(name)
    if (look === undefined) {
      look = this.#look(name).finally(() => this.#looks.delete(name))
      this.#looks.set(name, look)
    }
    return look
  }

  async #look(name: string): Promise<Look> {
    const own = new Set<string>()
    for (const { id } of this.#sessions.leasesOn(name)) own.add(id)
    const limits = {
      what: `inspect of ${quote(name)}`,
      timeoutMs: LOOK_WITHIN_MS,
      stop: this.#closing,
      keepsProcessAlive: true,
    }
    try {
      const found = await callEngine(this.#context, limits, ({ signal }) =>
        this.#backend.inspect(name, callWith(signal, { holdersOnly: true })),
      )
      const state = found === null ? null : shownState(found, this.#context.info.epoch)
      return {
        advice: state === null ? undefined : adviceOn(state, own),
        holders: state?.holders ?? [],
        heldByThisLocker: own.size > 0,
      }
    } catch {
      return this.#withoutLook(name)
    }
  }

  /** The locker's knowledge without the engine. */
  #withoutLook(name: string): Look {
    const [own] = this.#sessions.leasesOn(name)
    if (own === undefined) return { advice: undefined, heldByThisLocker: false }
    const advice = own.terms.request.capacity === LOCK_CAPACITY ? NOT_REENTRANT : OTHERWISE
    return { advice: `This locker has a lease on it (${own.id}). ${advice}`, heldByThisLocker: true }
  }
}

const NOT_REENTRANT =
  'If the code that waits is the holder: a lock is not re-entrant, so pass the lease on and do not acquire the name again, or use reentrant(locker). ' +
  'Otherwise raise waitMs to wait longer.'
const OTHERWISE = 'locker.inspect(name) also shows the waiters; raise waitMs to wait longer.'

/** Undefined where there is nothing to add. */
function adviceOn({ holders, closedForMs = 0 }: NameState, own: ReadonlySet<string>): string | undefined {
  if (holders.length > 0) return adviceOnHolders(holders, own)
  return closedForMs > 0
    ? `It has no holder, and stays closed for ${Math.round(closedForMs)} ms more (a lock-delay or hold-at-least).`
    : undefined
}

function adviceOnHolders(holders: readonly HolderState[], own: ReadonlySet<string>): string {
  const ours = holders.filter(({ id }) => own.has(id))
  const named = holders
    .filter(({ id }) => !own.has(id))
    .slice(0, Math.max(0, MOST_NAMED - ours.length))
    .map((holder) => `${quote(holder.holder)} (${factsOf(holder)})`)
  const more = holders.length - ours.length - named.length
  if (ours.length > 0) named.unshift(`this locker (${factsOfOwn(ours)})`)
  if (more > 0) named.push(`${more} more`)
  const isOwnLock = ours.some(({ weight }) => weight === undefined)
  return `It is held by ${named.join(' and ')}. ${isOwnLock ? NOT_REENTRANT : OTHERWISE}`
}

function factsOf({ id, heldForMs, note }: HolderState): string {
  return `lease ${id}, for ${Math.round(heldForMs)} ms${note === undefined ? '' : `, ${quote(note)}`}`
}

function factsOfOwn(ours: readonly HolderState[]): string {
  const [first] = ours
  if (first !== undefined && ours.length === 1) return factsOf(first)
  const ids = ours.slice(0, MOST_NAMED).map(({ id }) => id)
  return `${ours.length} leases: ${ids.join(', ')}${ours.length > ids.length ? ', …' : ''}`
}
