/**
 * A client's view of its session. Redis keeps no list of what a session holds: every claim has its own time, and is
 * prolonged by name. So the session remembers what was asked for through it, to give it up at its end and to tell of
 * what a keep-alive did not list.
 *
 *   alive ──keep-alive──▶ alive                                       [keepAlive]
 *   alive ──its key is gone──▶ gone: what is known is given up        [#end]
 *   alive ──not proven alive for one TTL──▶ asked for ──▶ alive | gone   [#provenAlive]
 *
 * What may go wrong between two steps: the session expires while a claim that was asked for later lives on (nobody
 * prolongs it, so it ends within one TTL); an acquire lands after the close (the same); the process dies (the same).
 */
import { calledOff, prolongedSince, throwIfCalledOff } from '../../core/backend-kit.ts'
import { elapsedMs, type Instant, instantOf, laterOf } from '../../core/clock.ts'
import { BackendUnavailableError, CapacityMismatchError, InvalidArgumentError } from '../../core/errors.ts'
import {
  type AcquireRequest,
  type AcquireResult,
  type BackendSession,
  type Call,
  type Claim,
  type EnqueueResult,
  type Fencing,
  type Grant,
  type KeepAliveResult,
  LOCK_CAPACITY,
  type LostClaim,
  type SessionHandle,
} from '../../spi.ts'
import type { Answer } from './answers.ts'
import type { Confirming } from './confirming.ts'
import type { Engine } from './engine.ts'
import { KnownClaims } from './known-claims.ts'
import type { Request } from './lane.ts'
import { setDataScript } from './scripts/operators.ts'
import { closeSessionScript, findSessionScript, keepSessionScript } from './scripts/sessions.ts'
import type { Waiter, WaitingRoom } from './waiting-room.ts'

export interface SessionFacts {
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
}

export interface SessionTools {
  readonly engine: Engine
  readonly room: WaitingRoom
  /** The channel of this process, once the server listens to it. */
  readonly channel: (call: Call) => Promise<string>
  /** Makes sure of a grant where the user has asked for more than the primary's word. */
  readonly confirming: Confirming | null
}

/** What ties an attempt to its session: long enough that nobody guesses it. */
const SESSION_TAG_LENGTH = 16
/** An abandoned attempt is remembered for at least that long. */
const SHORTEST_MARK_MS = 60_000

export class RedisSession<F extends Fencing> implements BackendSession<F> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly #tools: SessionTools
  readonly #tag: string
  /** Label without a note, as it is stored with every claim. */
  readonly #label: string
  readonly #holder: string
  readonly #known = new KnownClaims()
  #provenAt: Instant
  #isGone = false

  constructor(tools: SessionTools, { id, ttlMs, holder, since }: SessionFacts) {
    this.#tools = tools
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    this.#tag = id.slice(0, SESSION_TAG_LENGTH)
    this.#holder = holder
    this.#label = JSON.stringify([holder])
    this.#provenAt = since
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<F>> {
    const { engine } = this.#tools
    if (!this.#isProvenAlive() && !(await this.#provenAlive(call))) return { kind: 'session-gone' }
    const sent = instantOf(engine.clock)
    const key = engine.keys.lock(request.name)
    this.#known.set(request.attempt, { name: request.name, isWaiting: false })
    const answer = await engine.send({ key, args: this.#tryArgs(request) }, call)
    if (answer.kind === 'granted') {
      const grant = this.#grant(request, answer, this.#sinceOf(sent, answer.leftMs))
      return this.#tools.confirming === null
        ? { kind: 'granted', grant }
        : this.#confirmed(request, grant, call)
    }
    this.#forget(request.attempt, false)
    if (answer.kind === 'busy') return answer
    if (answer.kind === 'abandoned') return { kind: 'busy' }
    throw unexpected(request, answer)
  }

  async enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<F>> {
    const { engine, room } = this.#tools
    throwIfCalledOff('redis', call)
    if (!this.#isProvenAlive() && !(await this.#provenAlive(call))) return { kind: 'session-gone' }
    const channel = await this.#tools.channel(call)
    const sent = instantOf(engine.clock)
    const turn = Promise.withResolvers<EnqueueResult<F>>()
    const waiter: Waiter = {
      name: request.name,
      key: engine.keys.lock(request.name),
      attempt: request.attempt,
      who: this.#who(request.attempt),
      session: this,
      heartbeat: sent,
      granted: (token, since, data) => turn.resolve(this.#handedOver(request, token, since, data, call)),
      sessionGone: () => turn.resolve({ kind: 'session-gone' }),
      reject: turn.reject,
    }
    room.add(waiter)
    this.#known.set(request.attempt, { name: request.name, isWaiting: true })
    const onAbort = () => {
      if (room.remove(waiter)) turn.reject(calledOff('redis', call.signal, 'unknown'))
    }
    call.signal.addEventListener('abort', onAbort, { once: true })
    const args = ['Q', waiter.who, this.#body(request), String(this.ttlMs)]
    args.push(String(request.weight), String(request.capacity), request.mode, channel)
    engine.send({ key: waiter.key, args }, call).then(
      (answer) => this.#placed(request, waiter, answer, sent, call),
      (error: unknown) => {
        if (room.remove(waiter)) turn.reject(error)
      },
    )
    return turn.promise.finally(() => call.signal.removeEventListener('abort', onAbort))
  }

  /** The answer to a place in line; the push may have been quicker. */
  #placed(request: AcquireRequest, waiter: Waiter, answer: Answer, sent: Instant, call: Call): void {
    const { room } = this.#tools
    if (answer.kind === 'waiting') {
      if (room.find(this, request.attempt).includes(waiter)) call.onQueued?.()
      room.told(waiter, answer.told)
      return
    }
    if (answer.kind === 'granted') {
      room.granted(waiter, answer.token, this.#sinceOf(sent, answer.leftMs), answer.data)
      return
    }
    if (!room.remove(waiter)) return
    this.#forget(request.attempt, true)
    waiter.reject(
      answer.kind === 'abandoned'
        ? new BackendUnavailableError('redis', 'the attempt was abandoned', 'not-applied')
        : unexpected(request, answer),
    )
  }

  async keepAlive(
    claims: { readonly held: readonly Claim[]; readonly waiting: readonly Claim[] },
    call: Call,
  ): Promise<KeepAliveResult<F>> {
    const { engine, room } = this.#tools
    throwIfCalledOff('redis', call)
    const since = instantOf(engine.clock)
    const listed = [...claims.held, ...claims.waiting]
    const ttl = String(this.ttlMs)
    const requests = listed.map(({ name, attempt }, index): Request => {
      const letter = index < claims.held.length ? 'W' : 'T'
      return { key: engine.keys.lock(name), args: [letter, this.#who(attempt), ttl] }
    })
    const [alive, answers] = await Promise.all([
      this.#isGone
        ? 0
        : engine.connection.run(keepSessionScript, [engine.keys.session(this.id)], [], call.signal),
      this.#isGone ? [] : engine.sendAll(requests, call),
    ])
    if (Number(alive) !== 1) {
      await this.#end(call)
      return { kind: 'gone' }
    }
    this.#provenAt = laterOf(this.#provenAt, since)
    const lost: LostClaim[] = []
    const granted: Grant<F>[] = []
    for (const [index, claim] of listed.entries()) {
      const answer = answers[index]
      const isWaiting = index >= claims.held.length
      if (answer?.kind === 'lost') {
        lost.push({ attempt: claim.attempt, reason: answer.reason })
        this.#known.delete(claim.attempt)
      } else if (isWaiting && answer?.kind === 'granted') {
        const grant = this.#grant(claim, answer, since)
        granted.push(grant)
        for (const waiter of room.find(this, claim.attempt))
          room.granted(waiter, answer.token, since, answer.data)
      } else if (isWaiting && answer?.kind === 'waiting') {
        for (const waiter of room.find(this, claim.attempt)) {
          waiter.heartbeat = laterOf(waiter.heartbeat, since)
          room.told(waiter, answer.told)
        }
      }
    }
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted: this.#known.besides(listed) }
  }

  async abandon({ name, attempt }: Claim, call: Call): Promise<void> {
    const { engine, room } = this.#tools
    await engine.send({ key: engine.keys.lock(name), args: this.#abandonArgs(attempt) }, call)
    this.#known.delete(attempt)
    for (const waiter of room.find(this, attempt))
      if (room.remove(waiter))
        waiter.reject(new BackendUnavailableError('redis', 'the attempt was abandoned', 'not-applied'))
  }

  async release(
    { name, attempt }: Claim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    const { engine } = this.#tools
    const args = ['R', this.#who(attempt), keepForMs === 0 ? '0' : String(Math.ceil(keepForMs))]
    const answer = await engine.send({ key: engine.keys.lock(name), args }, call)
    this.#known.delete(attempt)
    return answer.kind === 'released' ? 'released' : 'not-held'
  }

  async setData({ name, attempt }: Claim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const { engine } = this.#tools
    const answer = await engine.run(setDataScript, engine.keys.lock(name), [this.#who(attempt), data], call)
    return answer === 's' ? 'stored' : 'not-held'
  }

  async close(call: Call): Promise<void> {
    const { engine } = this.#tools
    throwIfCalledOff('redis', call)
    // First the key: whoever carries the session on elsewhere must not prolong what is being given up.
    await engine.connection.run(closeSessionScript, [engine.keys.session(this.id)], [], call.signal)
    await this.#end(call)
  }

  /** The session is over: its waits end, and what is known of it is given up. */
  async #end(call: Call): Promise<void> {
    const { engine, room } = this.#tools
    this.#isGone = true
    for (const waiter of room.find(this)) if (room.remove(waiter)) waiter.sessionGone()
    if (this.#known.size === 0) return
    const known = [...this.#known]
    await engine.sendAll(
      known.map(([attempt, { name, isWaiting }]) => ({
        key: engine.keys.lock(name),
        args: isWaiting ? this.#abandonArgs(attempt) : ['R', this.#who(attempt), '0'],
      })),
      call,
    )
    for (const [attempt] of known) this.#known.delete(attempt)
  }

  #isProvenAlive(): boolean {
    return !this.#isGone && elapsedMs(this.#tools.engine.clock, this.#provenAt) < this.ttlMs
  }

  /** Somebody else may have kept it alive: the server knows. */
  async #provenAlive(call: Call): Promise<boolean> {
    const { engine } = this.#tools
    if (this.#isGone) return false
    const now = instantOf(engine.clock)
    const found = await engine.connection.run(
      findSessionScript,
      [engine.keys.session(this.id)],
      [],
      call.signal,
    )
    if (!Array.isArray(found)) {
      await this.#end(call)
      return false
    }
    this.#provenAt = laterOf(
      this.#provenAt,
      prolongedSince(now, { ttlMs: this.ttlMs, leftMs: Number(found[0]) }),
    )
    return true
  }

  async #handedOver(
    request: AcquireRequest,
    token: bigint | null,
    since: Instant,
    data: string | undefined,
    call: Call,
  ): Promise<EnqueueResult<F>> {
    this.#known.set(request.attempt, { name: request.name, isWaiting: false })
    const grant = this.#grant(request, { kind: 'granted', token, ...(data !== undefined && { data }) }, since)
    return this.#tools.confirming === null
      ? { kind: 'granted', grant }
      : this.#confirmed(request, grant, call)
  }

  /** Where the user has asked for more than the primary's word. */
  async #confirmed(
    request: AcquireRequest,
    grant: Grant<F>,
    call: Call,
  ): Promise<{ readonly kind: 'granted'; readonly grant: Grant<F> }> {
    const { confirming, engine } = this.#tools
    const claim = { key: engine.keys.lock(request.name), name: request.name, who: this.#who(request.attempt) }
    await confirming?.confirm(claim, () => this.abandon(request, call), call)
    return { kind: 'granted', grant }
  }

  #grant(claim: Claim, answer: Extract<Answer, { kind: 'granted' }>, since: Instant): Grant<F> {
    const { name, attempt } = claim
    const grant = { name, attempt, token: answer.token, since, ttlMs: this.ttlMs } as Grant<F>
    return answer.data === undefined ? grant : { ...grant, previousData: answer.data }
  }

  /** What was granted before counts from when it was prolonged: so long ago as its time has run since. */
  #sinceOf(sent: Instant, leftMs: number | undefined): Instant {
    return leftMs === undefined ? sent : prolongedSince(sent, { ttlMs: this.ttlMs, leftMs })
  }

  /** A request that came to nothing; but a place in line that the same attempt has stays known. */
  #forget(attempt: string, wasWaiting: boolean): void {
    const inLine = !wasWaiting && this.#tools.room.find(this, attempt).length > 0
    if (inLine) this.#known.set(attempt, { name: this.#known.get(attempt)?.name ?? '', isWaiting: true })
    else this.#known.delete(attempt)
  }

  #tryArgs(request: AcquireRequest): string[] {
    const who = this.#who(request.attempt)
    const body = this.#body(request)
    if (request.mode === 'exclusive' && request.capacity === LOCK_CAPACITY)
      return ['A', who, body, String(this.ttlMs + Math.ceil(request.lockDelayMs))]
    const { weight, capacity, mode } = request
    return ['a', who, body, String(this.ttlMs), String(weight), String(capacity), mode]
  }

  #abandonArgs(attempt: string): string[] {
    return ['B', this.#who(attempt), String(Math.max(SHORTEST_MARK_MS, 2 * this.ttlMs))]
  }

  #body({ lockDelayMs, note }: AcquireRequest): string {
    const shown = note === undefined ? this.#label : JSON.stringify([this.#holder, note])
    return `${Math.ceil(lockDelayMs)}|${this.ttlMs}|${shown}`
  }

  #who(attempt: string): string {
    if (attempt.includes('|')) throw new InvalidArgumentError('attempt', 'must not contain a |.')
    return `${attempt}|${this.#tag}`
  }
}

function unexpected(request: AcquireRequest, answer: Answer): Error {
  if (answer.kind === 'mismatch')
    return new CapacityMismatchError(request.name, request.capacity, answer.capacity)
  return new BackendUnavailableError('redis', 'a script has answered with something unknown', 'unknown')
}
