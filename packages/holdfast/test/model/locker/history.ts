/**
 * The real history, from the engine's own log and from the requests that reached it, held against the
 * guarantees at the moment of every event. A break is noted and reported by the next check: an engine must not be
 * thrown at in the middle of a step.
 */

import type { Clock } from '../../../src/base/clock.ts'
import type { Fence } from '../../../src/base/fence.ts'
import { publicIdOf } from '../../../src/base/ids.ts'
import type { LeaseBase } from '../../../src/base/types.ts'
import type { MemoryEngine } from '../../../src/engines/memory/engine.ts'
import type {
  AcquireRequest,
  Backend,
  BackendSession,
  GrantedClaim,
  SessionRequest,
} from '../../../src/spi.ts'
import { replace } from '../../../src/testing/conformance/wrapping.ts'

interface KnownRequest {
  readonly attempt: string
  readonly session: string
  readonly weight: number
  readonly capacity: number
}

interface Holder {
  readonly token: bigint
  readonly weight: number
}

/** The request that the engine is working on: it has its effect within the call. */
interface Applying {
  readonly kind: 'release' | 'abandon' | 'close' | 'forceRelease' | 'delete'
  readonly session?: string
  readonly attempt?: string
}

export class History {
  readonly violations: string[] = []
  /** Tokens that an operator has aimed at. */
  readonly aimedAt = new Set<bigint>()
  /** Leases that were ended by others, so that their holders may believe until their next keep-alive. */
  readonly endedByOthers = new Set<string>()
  /** Called after an event, when the engine has finished its step. */
  onHolderChange: (name: string) => void = () => {}
  readonly #engine: MemoryEngine
  readonly #clock: Clock
  readonly #requests = new Map<string, KnownRequest>()
  readonly #holders = new Map<string, Map<string, Holder>>()
  readonly #expiresAtMs = new Map<string, { atMs: number; ttlMs: number }>()
  #applying: Applying | undefined
  #lastToken = 0n
  #seen = 0

  constructor(engine: MemoryEngine, clock: Clock) {
    this.#engine = engine
    engine.log.watch()
    this.#clock = clock
    // So that the engine notices every expiry when it happens.
    engine.addWatcher()
    this.#listen()
  }

  /** Whether the engine has this very grant of the lease. */
  holds(lease: LeaseBase & { readonly fence?: Fence }): boolean {
    const token = this.tokenOf(lease.name, lease.id)
    return token !== undefined && (lease.fence === undefined || lease.fence.token === token)
  }

  tokenOf(name: string, id: string): bigint | undefined {
    return this.#holders.get(name)?.get(id)?.token
  }

  /** A name's record is deleted behind the clients' backs. */
  delete(namespace: string, name: string): void {
    this.#during({ kind: 'delete' }, () => this.#engine.deleteName(namespace, name))
  }

  /** A client that tells what reaches the engine, and when. */
  recording(backend: Backend<'fenced'>): Backend<'fenced'> {
    return replace(backend, {
      backend: (inner) => ({
        openSession: (request, call) => {
          this.#noteOpening(request)
          return inner.openSession(request, call)
        },
        forceRelease: (...args) => this.#during({ kind: 'forceRelease' }, () => inner.forceRelease(...args)),
      }),
      session: (inner) => this.#recordingSession(inner),
    })
  }

  #recordingSession(inner: BackendSession<'fenced'>): Partial<BackendSession<'fenced'>> {
    const session = inner.id
    const during = <T>(kind: Applying['kind'], attempt: string | undefined, run: () => Promise<T>) =>
      this.#during({ kind, session, ...(attempt !== undefined && { attempt }) }, run)
    return {
      keepAlive: (claims, call) => {
        this.#noteKeepAlive(session)
        return inner.keepAlive(claims, call)
      },
      tryAcquire: (request, call) => {
        this.#noteRequest(session, request)
        return inner.tryAcquire(request, call)
      },
      enqueue: (request, attempt) => {
        this.#noteRequest(session, request)
        if (inner.enqueue === undefined) throw new TypeError('memory has a line')
        inner.enqueue(request, attempt)
      },
      release: (claim: GrantedClaim, options, call) =>
        during('release', claim.attempt, () => inner.release(claim, options, call)),
      abandon: (claim, call) => during('abandon', claim.attempt, () => inner.abandon(claim, call)),
      close: (call) => during('close', undefined, () => inner.close(call)),
    }
  }

  #during<T>(applying: Applying, run: () => T): T {
    this.#applying = applying
    try {
      return run()
    } finally {
      this.#applying = undefined
    }
  }

  #noteOpening({ id, ttlMs }: SessionRequest): void {
    this.#expiresAtMs.set(id, { atMs: this.#clock.monotonicMs() + ttlMs, ttlMs })
  }

  #noteKeepAlive(session: string): void {
    const known = this.#expiresAtMs.get(session)
    const nowMs = this.#clock.monotonicMs()
    if (known !== undefined && nowMs < known.atMs) known.atMs = nowMs + known.ttlMs
  }

  #noteRequest(session: string, { attempt, weight, capacity }: AcquireRequest): void {
    this.#requests.set(publicIdOf(attempt), { attempt, session, weight, capacity })
  }

  #listen(): void {
    this.#engine.log.onNext(() => {
      while (this.#seen < this.#engine.log.last) this.#judge(++this.#seen)
      this.#listen()
    })
  }

  #judge(sequence: number): void {
    const logged = this.#engine.log.at(sequence)
    if (logged === undefined) return
    const { kind, name, id, token } = logged.event
    const request = this.#requests.get(id)
    if (request === undefined) return void this.violations.push(`G1 ${id} appeared without a request`)
    if (kind === 'acquired' && token !== null) this.#granted(name, id, token, request)
    else if (kind !== 'waiting' && kind !== 'data') this.#ended(kind, name, id, request, token)
  }

  #granted(name: string, id: string, token: bigint, request: KnownRequest): void {
    if (token <= this.#lastToken) this.violations.push(`G2 token ${token} after ${this.#lastToken}`)
    this.#lastToken = token
    const holders = this.#holders.get(name) ?? new Map<string, Holder>()
    this.#holders.set(name, holders.set(id, { token, weight: request.weight }))
    const weight = [...holders.values()].reduce((sum, holder) => sum + holder.weight, 0)
    if (weight > request.capacity)
      this.violations.push(`G1 ${name} is held by ${weight} of ${request.capacity}`)
    queueMicrotask(() => this.onHolderChange(name))
  }

  #ended(kind: string, name: string, id: string, request: KnownRequest, token: bigint | null): void {
    this.#holders.get(name)?.delete(id)
    const problem = this.#whyWrong(kind, id, request, token)
    if (problem !== null) this.violations.push(`${problem}: ${kind} ${id} on ${name}`)
    queueMicrotask(() => this.onHolderChange(name))
  }

  #whyWrong(kind: string, id: string, request: KnownRequest, token: bigint | null): string | null {
    const by = this.#applying
    const expiry = this.#expiresAtMs.get(request.session)
    const isExpired = expiry !== undefined && this.#clock.monotonicMs() >= expiry.atMs
    if (kind === 'force-released') {
      this.endedByOthers.add(id)
      return token !== null && this.aimedAt.has(token)
        ? null
        : 'G7 T74 a force release that nobody aimed at it'
    }
    if (kind === 'expired') return isExpired ? null : 'G13 taken before its time was up'
    if (by?.kind === 'delete') {
      this.endedByOthers.add(id)
      return null
    }
    if (kind === 'gave-up' && isExpired) return null
    if (by === undefined) return 'G13 dropped before its time was up'
    const isOwn = by.session === request.session && (by.kind === 'close' || by.attempt === request.attempt)
    return isOwn ? null : `G7 ended by somebody else's ${by.kind}`
  }
}
