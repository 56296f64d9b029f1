/**
 * The sessions of one locker: one per TTL in use. Concurrent first acquires share its creation (T22); a session
 * that takes no new leases at the moment is joined by another, up to a limit.
 */
import type { Backend, Fencing } from '../spi.ts'
import { callEngine } from './call.ts'
import { defaults } from './defaults.ts'
import { BackendUnavailableError, ClosedError } from './errors.ts'
import { type KeeperContext, KeptSession } from './keeper.ts'

export class Sessions<F extends Fencing> {
  readonly #backend: Backend<F>
  readonly #context: KeeperContext
  readonly #byTtl = new Map<number, Set<KeptSession<F>>>()
  readonly #opening = new Map<number, Promise<KeptSession<F>>>()
  #closed = false

  constructor(backend: Backend<F>, context: KeeperContext) {
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
    if (ready !== undefined) return Promise.resolve(ready)
    const shared = this.#opening.get(ttlMs)
    if (shared !== undefined) return shared
    const opening = this.#makeRoomFor(ttlMs).finally(() => this.#opening.delete(ttlMs))
    this.#opening.set(ttlMs, opening)
    return opening
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
    if (this.#closed) throw new ClosedError()
    const open = this.all.filter((session) => session.isOpen)
    if (open.length + this.#opening.size < defaults.maxSessions) return this.#open(ttlMs)
    const idle = open.find((session) => session.isIdle)
    if (idle !== undefined) {
      await idle.close()
      return this.#open(ttlMs)
    }
    // More TTLs than sessions: the lease rides on one whose TTL comes nearest.
    const usable = open.filter((session) => session.takesNewLeases)
    const distance = (session: KeptSession<F>) => Math.abs(session.engineSession.ttlMs - ttlMs)
    const nearest = usable.sort((a, b) => distance(a) - distance(b))[0]
    if (nearest !== undefined) return nearest
    throw new BackendUnavailableError(
      this.#context.backendName,
      `all ${defaults.maxSessions} sessions have calls whose outcome is unknown; the engine does not answer`,
      'not-applied',
    )
  }

  async #open(ttlMs: number): Promise<KeptSession<F>> {
    const { random, holder, callTimeoutMs } = this.#context
    const request = { id: random.id() + random.id(), ttlMs, holder }
    const engineSession = await callEngine(
      this.#context,
      { what: 'opening a session', timeoutMs: callTimeoutMs, keepsProcessAlive: true },
      (call) => this.#backend.openSession(request, call),
    )
    const session = new KeptSession(this.#context, engineSession, (ended) => this.#forget(ttlMs, ended))
    if (this.#closed) {
      await session.close()
      throw new ClosedError()
    }
    const sessions = this.#byTtl.get(ttlMs) ?? new Set()
    this.#byTtl.set(ttlMs, sessions.add(session))
    return session
  }

  #forget(ttlMs: number, session: KeptSession<F>): void {
    const sessions = this.#byTtl.get(ttlMs)
    sessions?.delete(session)
    if (sessions?.size === 0) this.#byTtl.delete(ttlMs)
  }
}
