/**
 * What an acquire that has timed out says of the holders. They are looked up once for all acquires that time out on a
 * name at the same time, for a short while: the error comes a little later, and never fails to come.
 */
import type { Backend } from '../spi.ts'
import { callWith } from './aborting.ts'
import { callEngine } from './call.ts'
import { Cancellation, unlessCancelled } from './cancellation.ts'
import type { LockerContext } from './context.ts'
import { AcquireTimeoutError, quote } from './errors.ts'
import { shownState } from './name-state.ts'
import type { HolderState, NameState } from './types.ts'

/** Callers that wait for less try often, and the look would be as many calls more. */
const SHORTEST_WAIT_MS = 50
const LOOK_WITHIN_MS = 200
const MOST_NAMED = 3

export interface OwnLeases {
  /** The ids of the leases that this locker has on a name. */
  ownIds(name: string): readonly string[]
}

export interface TimedOut {
  readonly waitMs: number
  readonly waitedMs: number
  readonly signal: AbortSignal | undefined
}

interface Look {
  readonly own: readonly string[]
  /** Undefined: not known. Null: the name is free. */
  readonly state: NameState | null | undefined
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

  /** It never rejects. A caller that gives up has the error at once (T27), without names. */
  async timeoutError(name: string, { waitMs, waitedMs, signal }: TimedOut): Promise<AcquireTimeoutError> {
    if (waitMs < SHORTEST_WAIT_MS) return new AcquireTimeoutError(name, waitedMs)
    const gaveUp = new Cancellation()
    const untie = gaveUp.follow(signal)
    const look = await unlessCancelled(this.#shared(name), gaveUp).catch(() => null)
    untie()
    if (look === null) return new AcquireTimeoutError(name, waitedMs)
    const { own, state } = look
    return new AcquireTimeoutError(name, waitedMs, adviceOn(state, own), {
      ...(state !== undefined && { holders: state?.holders ?? [] }),
      heldByThisLocker: own.length > 0,
    })
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
    const own = this.#sessions.ownIds(name)
    const limits = {
      what: `inspect of ${quote(name)}`,
      timeoutMs: LOOK_WITHIN_MS,
      stop: this.#closing,
      keepsProcessAlive: true,
    }
    try {
      const state = await callEngine(this.#context, limits, ({ signal }) =>
        this.#backend.inspect(name, callWith(signal, { holdersOnly: true })),
      )
      return { own, state: state === null ? null : shownState(state, this.#context.info.epoch) }
    } catch {
      return { own, state: undefined }
    }
  }
}

const NOT_REENTRANT =
  'If the code that waits is the holder: a lock is not re-entrant, so pass the lease on and do not acquire the name again. ' +
  'Otherwise raise waitMs to wait longer.'

/** Undefined where there is nothing to add. */
function adviceOn(state: NameState | null | undefined, own: readonly string[]): string | undefined {
  if (state === undefined && own.length > 0)
    return `This very locker has a lease on it (${own[0]}). ${NOT_REENTRANT}`
  if (state === undefined || state === null) return undefined
  const { holders, closedForMs = 0 } = state
  if (holders.length > 0) return adviceOnHolders(holders, own)
  return closedForMs > 0
    ? `It has no holder, and stays closed for ${Math.round(closedForMs)} ms more (a lock-delay or hold-at-least).`
    : undefined
}

function adviceOnHolders(holders: readonly HolderState[], own: readonly string[]): string {
  const isOwn = ({ id }: HolderState) => own.includes(id)
  const ownFirst = [...holders.filter(isOwn), ...holders.filter((holder) => !isOwn(holder))]
  const named = ownFirst.slice(0, MOST_NAMED).map((holder) => {
    const note = holder.note === undefined ? '' : `, ${quote(holder.note)}`
    const facts = `lease ${holder.id}, for ${Math.round(holder.heldForMs)} ms${note}`
    return `${isOwn(holder) ? 'this very locker' : quote(holder.holder)} (${facts})`
  })
  const more = ownFirst.length - named.length
  if (more > 0) named.push(`${more} more`)
  const isOwnLock = ownFirst.some((holder) => isOwn(holder) && holder.weight === undefined)
  const advice = isOwnLock
    ? NOT_REENTRANT
    : 'locker.inspect(name) also shows the waiters; raise waitMs to wait longer.'
  return `It is held by ${named.join(' and ')}. ${advice}`
}
