/**
 * The sessions of one locker: one per kind (TTL, and lock-delay where the engine ties it to the session). Concurrent first
 * acquires share its creation (T22, concurrent first acquires). When a session takes no new leases, another one is opened, up to a limit.
 * Then new leases go to the one with the nearest TTL, even if it is worn out (marks only cost space) or full (the engine may refuse them).
 */

import {
  BackendUnavailableError,
  ClosedError,
  InvalidArgumentError,
  isHoldfastError,
  withNote,
} from '../base/errors.ts'
import { ignore } from '../base/ignore.ts'
import type { Backend, BackendInfo, BackendSession, Fencing } from '../spi.ts'
import { callForCaller } from './call.ts'
import type { LockerContext } from './context.ts'
import { KeptSession } from './keeper.ts'
import type { LeaseRecord } from './lease.ts'

/** The terms of a session: what a lease needs of it. */
export interface SessionTerms {
  readonly ttlMs: number
  readonly request: { readonly lockDelayMs: number }
}

/** The TTL, or TTL and lock-delay. */
type Kind = number | string

export class Sessions<F extends Fencing> {
  readonly #backend: Backend<F>
  readonly #context: LockerContext
  readonly #byKind = new Map<Kind, Set<KeptSession<F>>>()
  /** Concurrent requests for the same kind wait for one session. */
  readonly #opening = new Map<Kind, { readonly session: Promise<KeptSession<F>>; readonly startMs: number }>()
  /** Sessions that the engine is being asked for. */
  readonly #requested = new Set<Promise<KeptSession<F>>>()
  readonly #handedOutAtMs = new WeakMap<KeptSession<F>, number>()
  /** The engine has one lock-delay for all claims of a session. */
  readonly #tiesLockDelay: boolean
  #closed = false
  #hasReached = false

  constructor(backend: Backend<F>, context: LockerContext) {
    this.#backend = backend
    this.#context = context
    this.#tiesLockDelay = context.info.lockDelay === 'session'
  }

  /** A session that is ready now, without a round trip. */
  ready(terms: SessionTerms): KeptSession<F> | undefined {
    for (const session of this.#byKind.get(this.#kindOf(terms)) ?? [])
      if (session.takesNewLeases) return session
    return undefined
  }

  take(terms: SessionTerms): Promise<KeptSession<F>> {
    const ready = this.ready(terms)
    if (ready !== undefined) return Promise.resolve(this.#handOut(ready))
    const kind = this.#kindOf(terms)
    const startMs = this.#context.clock.monotonicMs()
    const shared = this.#opening.get(kind)
    if (shared !== undefined)
      return shared.session.catch((error: unknown) => {
        throw begunEarlier(error, startMs - shared.startMs)
      })
    const session = this.#makeRoomFor(terms).finally(() => this.#opening.delete(kind))
    this.#opening.set(kind, { session, startMs })
    return session
  }

  /** The engine has opened a session before: it is there, and a failure need not be a wrong address. */
  get hasReached(): boolean {
    return this.#hasReached
  }

  /** The leases of this locker on a name. */
  *leasesOn(name: string): Generator<LeaseRecord> {
    for (const session of this.all) yield* session.attempts.leasesOn(name)
  }

  get all(): KeptSession<F>[] {
    return [...this.#byKind.values()].flatMap((sessions) => [...sessions])
  }

  /** No session is opened from here on. */
  stopOpening(): void {
    this.#closed = true
  }

  async closeAll(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#opening.values()].map(({ session }) => session.catch(ignore)))
    await Promise.all(this.all.map((session) => session.close()))
  }

  #kindOf({ ttlMs, request }: SessionTerms): Kind {
    return this.#tiesLockDelay ? `${ttlMs}/${request.lockDelayMs}` : ttlMs
  }

  async #makeRoomFor(terms: SessionTerms): Promise<KeptSession<F>> {
    for (;;) {
      if (this.#closed) throw new ClosedError()
      const open = this.all.filter((session) => session.isOpen)
      if (open.length + this.#requested.size < this.#context.maxSessions) return this.#request(terms)
      const idle = open.find((session) => session.isIdle && !this.#isWanted(session))
      if (idle !== undefined) return this.#request(terms, idle)
      const fitting = this.#tiesLockDelay
        ? open.filter((session) => session.lockDelayMs === terms.request.lockDelayMs)
        : open
      const nearest =
        nearestTo(terms.ttlMs, fitting, 'takesNewLeases') ?? nearestTo(terms.ttlMs, fitting, 'isSound')
      if (nearest !== undefined) return this.#handOut(nearest)
      if (this.#requested.size === 0)
        throw new BackendUnavailableError(
          this.#context.backendName,
          `none of the ${this.#context.maxSessions} sessions can take another lease now: their calls have unknown outcomes, ` +
            'or they have another lock-delay; try again later',
          'not-applied',
        )
      // The sessions that it could use are being opened.
      await Promise.race(this.#requested).catch(ignore)
    }
  }

  /** Counts against the limit from here on, so that concurrent calls cannot exceed it together. */
  #request(terms: SessionTerms, insteadOf?: KeptSession<F>): Promise<KeptSession<F>> {
    const closed = insteadOf?.close() ?? Promise.resolve()
    const requested = closed.then(() => this.#open(terms))
    this.#requested.add(requested)
    return requested.finally(() => this.#requested.delete(requested))
  }

  async #open(terms: SessionTerms): Promise<KeptSession<F>> {
    const { random, holder } = this.#context
    const { ttlMs } = terms
    const { lockDelayMs } = terms.request
    const request = {
      id: random.id() + random.id(),
      ttlMs,
      holder,
      ...(this.#tiesLockDelay && { lockDelayMs }),
    }
    const engineSession = await callForCaller(this.#context, 'opening a session', undefined, (call) =>
      this.#backend.openSession(request, call),
    )
    this.#hasReached = true
    const kind = this.#kindOf(terms)
    const session = new KeptSession(this.#context, engineSession, lockDelayMs, (ended) =>
      this.#forget(kind, ended),
    )
    const unusable = this.#closed ? new ClosedError() : missingMethod(this.#context.info, engineSession)
    if (unusable !== undefined) {
      await session.close()
      throw unusable
    }
    const sessions = this.#byKind.get(kind) ?? new Set()
    this.#byKind.set(kind, sessions.add(session))
    return this.#handOut(session)
  }

  #handOut(session: KeptSession<F>): KeptSession<F> {
    this.#handedOutAtMs.set(session, this.#context.clock.monotonicMs())
    return session
  }

  /** A caller that was given it may be about to use it, or have a first call in flight. */
  #isWanted(session: KeptSession<F>): boolean {
    const handedOutAtMs = this.#handedOutAtMs.get(session) ?? Number.NEGATIVE_INFINITY
    return this.#context.clock.monotonicMs() - handedOutAtMs < this.#context.callTimeoutMs
  }

  #forget(kind: Kind, session: KeptSession<F>): void {
    const sessions = this.#byKind.get(kind)
    sessions?.delete(session)
    if (sessions?.size === 0) this.#byKind.delete(kind)
  }
}

/** The time limit of an opening counts from when it began, which was before this caller came (T102, shared work). */
function begunEarlier(error: unknown, ms: number): unknown {
  if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || ms < 1) return error
  return withNote(error, `an earlier call had begun this ${Math.round(ms)} ms before`)
}

/** A mistake of the backend's author: said as such, and not as if the engine could not be reached. */
function missingMethod(info: BackendInfo, session: BackendSession): InvalidArgumentError | undefined {
  const declared = [
    ['enqueue', info.waiting === 'queue', "waiting: 'queue'"],
    ['setData', info.data, 'data: true'],
  ] as const
  for (const [method, isDeclared, by] of declared)
    if (isDeclared && typeof session[method] !== 'function')
      return new InvalidArgumentError(
        'backend',
        `${info.name} declares ${by} in its info, but its sessions have no method ${method}: implement it, or do not declare it.`,
      )
  return undefined
}

function nearestTo<F extends Fencing>(
  ttlMs: number,
  sessions: readonly KeptSession<F>[],
  which: 'takesNewLeases' | 'isSound',
): KeptSession<F> | undefined {
  const distanceMs = (session: KeptSession<F>) => Math.abs(session.engineSession.ttlMs - ttlMs)
  return sessions.filter((session) => session[which]).sort((a, b) => distanceMs(a) - distanceMs(b))[0]
}
