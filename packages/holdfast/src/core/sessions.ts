/**
 * The sessions of one locker: one per TTL in use. Concurrent first acquires share its creation (T22); a session
 * that takes no new leases at the moment is joined by another, up to a limit. At the limit leases ride on the session
 * whose TTL comes nearest; a worn-out one will do then, because marks cost the engine some space and nobody a lease.
 */
import type { Backend, BackendInfo, BackendSession, Fencing } from '../spi.ts'
import { callEngine } from './call.ts'
import type { LockerContext } from './context.ts'
import { BackendUnavailableError, ClosedError, InvalidArgumentError } from './errors.ts'
import { KeptSession } from './keeper.ts'

export class Sessions<F extends Fencing> {
  readonly #backend: Backend<F>
  readonly #context: LockerContext
  readonly #byTtl = new Map<number, Set<KeptSession<F>>>()
  /** By TTL, for those who ask for the same: they wait for one session, whichever it will be. */
  readonly #opening = new Map<number, Promise<KeptSession<F>>>()
  /** Sessions that the engine is being asked for. */
  readonly #requested = new Set<Promise<KeptSession<F>>>()
  readonly #handedOutAtMs = new WeakMap<KeptSession<F>, number>()
  #closed = false
  #hasReached = false

  constructor(backend: Backend<F>, context: LockerContext) {
    this.#backend = backend
    this.#context = context
  }

  /** A session that is ready now, without a round trip. */
  ready(ttlMs: number): KeptSession<F> | undefined {
    for (const session of this.#byTtl.get(ttlMs) ?? []) if (session.takesNewLeases) return session
    return undefined
  }

  take(ttlMs: number): Promise<KeptSession<F>> {
    const ready = this.ready(ttlMs)
    if (ready !== undefined) return Promise.resolve(this.#handOut(ready))
    const shared = this.#opening.get(ttlMs)
    if (shared !== undefined) return shared
    const opening = this.#makeRoomFor(ttlMs).finally(() => this.#opening.delete(ttlMs))
    this.#opening.set(ttlMs, opening)
    return opening
  }

  /** The engine has opened a session before: it is there, and a failure need not be a wrong address. */
  get hasReached(): boolean {
    return this.#hasReached
  }

  get all(): KeptSession<F>[] {
    return [...this.#byTtl.values()].flatMap((sessions) => [...sessions])
  }

  /** No session is opened from here on. */
  stopOpening(): void {
    this.#closed = true
  }

  async closeAll(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#opening.values()].map((opening) => opening.catch(() => {})))
    await Promise.all(this.all.map((session) => session.close()))
  }

  async #makeRoomFor(ttlMs: number): Promise<KeptSession<F>> {
    for (;;) {
      if (this.#closed) throw new ClosedError()
      const open = this.all.filter((session) => session.isOpen)
      if (open.length + this.#requested.size < this.#context.maxSessions) return this.#request(ttlMs)
      const idle = open.find((session) => session.isIdle && !this.#isWanted(session))
      if (idle !== undefined) return this.#request(ttlMs, idle)
      const nearest =
        nearestTo(
          ttlMs,
          open.filter((session) => session.takesNewLeases),
        ) ??
        nearestTo(
          ttlMs,
          open.filter((session) => session.isSound),
        )
      if (nearest !== undefined) return this.#handOut(nearest)
      if (this.#requested.size === 0)
        throw new BackendUnavailableError(
          this.#context.backendName,
          `each of the ${this.#context.maxSessions} sessions has calls whose outcome is unknown, and the engine has not ` +
            'answered yet what became of them; try again later',
          'not-applied',
        )
      // Those that it could ride on are only just being opened.
      await Promise.race(this.#requested).catch(() => {})
    }
  }

  /** Counts against the limit from here on, so that concurrent calls cannot exceed it together. */
  #request(ttlMs: number, insteadOf?: KeptSession<F>): Promise<KeptSession<F>> {
    const closed = insteadOf?.close() ?? Promise.resolve()
    const requested = closed.then(() => this.#open(ttlMs))
    this.#requested.add(requested)
    return requested.finally(() => this.#requested.delete(requested))
  }

  async #open(ttlMs: number): Promise<KeptSession<F>> {
    const { random, holder, callTimeoutMs } = this.#context
    const request = { id: random.id() + random.id(), ttlMs, holder }
    const engineSession = await callEngine(
      this.#context,
      { what: 'opening a session', timeoutMs: callTimeoutMs, keepsProcessAlive: true },
      (call) => this.#backend.openSession(request, call),
    )
    this.#hasReached = true
    const session = new KeptSession(this.#context, engineSession, (ended) => this.#forget(ttlMs, ended))
    const unusable = this.#closed ? new ClosedError() : missingMethod(this.#context.info, engineSession)
    if (unusable !== undefined) {
      await session.close()
      throw unusable
    }
    const sessions = this.#byTtl.get(ttlMs) ?? new Set()
    this.#byTtl.set(ttlMs, sessions.add(session))
    return this.#handOut(session)
  }

  #handOut(session: KeptSession<F>): KeptSession<F> {
    this.#handedOutAtMs.set(session, this.#context.clock.monotonicMs())
    return session
  }

  /** Whoever was given it may be about to use it, or have a first call under way: closing it would rob them. */
  #isWanted(session: KeptSession<F>): boolean {
    const handedOutAtMs = this.#handedOutAtMs.get(session) ?? Number.NEGATIVE_INFINITY
    return this.#context.clock.monotonicMs() - handedOutAtMs < this.#context.callTimeoutMs
  }

  #forget(ttlMs: number, session: KeptSession<F>): void {
    const sessions = this.#byTtl.get(ttlMs)
    sessions?.delete(session)
    if (sessions?.size === 0) this.#byTtl.delete(ttlMs)
  }
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
): KeptSession<F> | undefined {
  const distanceMs = (session: KeptSession<F>) => Math.abs(session.engineSession.ttlMs - ttlMs)
  return sessions.toSorted((a, b) => distanceMs(a) - distanceMs(b))[0]
}
