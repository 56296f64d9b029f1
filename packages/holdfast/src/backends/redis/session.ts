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

import { elapsedMs, elapsedUntil, type Instant, instantOf, laterOf } from '../../base/clock.ts'
import { BackendUnavailableError, outcomeOf } from '../../base/errors.ts'
import { prolongedSince, throwIfCancelled } from '../../kit/backend-kit.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  EnqueueResult,
  Fencing,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
  SessionHandle,
} from '../../spi.ts'
import type { Answer } from './answers.ts'
import type { Confirming } from './confirming.ts'
import type { Engine } from './engine.ts'
import { KnownClaims } from './known-claims.ts'
import { Place, type PlaceHost } from './place.ts'
import { failureOf, isOfAnotherType, unexpected } from './refusals.ts'
import { type Request, Requests } from './requests.ts'
import { Letter } from './scripts/letters.ts'
import { setDataScript } from './scripts/operators.ts'
import { closeSessionScript, findSessionScript, keepSessionScript } from './scripts/sessions.ts'
import type { WaitingRoom } from './waiting-room.ts'

/** A keep-alive that the client has not got answered by then also goes over a connection of our own (T85). */
const LATE_AFTER_MS = 1_000
/** For that connection and its handshake. */
const LONGEST_OPENING_MS = 10_000

export interface SessionFacts {
  readonly id: string
  readonly ttlMs: number
  readonly holder: string
  readonly since: Instant
}

export interface SessionTools {
  readonly engine: Engine
  readonly room: WaitingRoom
  /** The channel of this process, and whether it is subscribed to. */
  readonly channel: string
  readonly isListening: () => boolean
  readonly listen: (call: Call) => Promise<void>
  /** Makes sure of a grant where the user has asked for more than the primary's word. */
  readonly confirming: Confirming | null
}

export class RedisSession<F extends Fencing> implements BackendSession<F>, PlaceHost<F> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  readonly room: WaitingRoom
  readonly #tools: SessionTools
  readonly #requests: Requests
  readonly #known = new KnownClaims()
  #provenAt: Instant
  /** What was listed last has been confirmed from then on. */
  #confirmedAt: Instant
  #isGone = false

  constructor(tools: SessionTools, { id, ttlMs, holder, since }: SessionFacts) {
    this.#tools = tools
    this.room = tools.room
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs, holder }
    const { channel, engine } = tools
    this.#requests = new Requests({ keys: engine.keys, channel, session: { id, ttlMs, holder } })
    this.#provenAt = since
    this.#confirmedAt = since
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<F>> {
    const { engine, confirming } = this.#tools
    if (!this.#isProvenAlive(instantOf(engine.clock)) && !(await this.#provenAlive(call)))
      return { kind: 'session-gone' }
    const sent = instantOf(engine.clock)
    // First what may be refused: nothing is known of an attempt that was never asked for.
    const key = engine.keys.lock(request.name)
    const asking = this.#requests.asking(request, key, this.#requests.who(request.attempt), false)
    const wasKnown = this.#known.has(request.attempt)
    const known = this.#known.note(request.attempt, request.name, false)
    let answer: Answer
    try {
      answer = await engine.send(asking, call)
    } catch (error) {
      if (!wasKnown) this.#forgetIfNeverApplied(request, error)
      throw error
    }
    if (answer.kind === 'granted') {
      known.isWaiting = false
      const since = this.sinceOf(sent, answer.leftMs)
      const grant = this.#grant(request, answer.grantId, since, answer.data)
      return confirming === null ? { kind: 'granted', grant } : this.#confirmed(request, grant, call)
    }
    // A place in line that the same attempt has stays known.
    if (!wasKnown) this.#known.delete(request.attempt)
    if (answer.kind === 'busy') return answer
    if (answer.kind === 'abandoned') return { kind: 'busy' }
    throw unexpected(request, answer)
  }

  enqueue(request: AcquireRequest, call: Call): Promise<EnqueueResult<F>> {
    const { engine, isListening } = this.#tools
    const now = instantOf(engine.clock)
    return this.#isProvenAlive(now) && isListening()
      ? this.#takePlace(request, now, call)
      : this.#enqueueWhenReady(request, call)
  }

  async #enqueueWhenReady(request: AcquireRequest, call: Call): Promise<EnqueueResult<F>> {
    const { engine, listen } = this.#tools
    throwIfCancelled('redis', call)
    if (!this.#isProvenAlive(instantOf(engine.clock)) && !(await this.#provenAlive(call)))
      return { kind: 'session-gone' }
    await listen(call)
    return this.#takePlace(request, instantOf(engine.clock), call)
  }

  #takePlace(request: AcquireRequest, sent: Instant, call: Call): Promise<EnqueueResult<F>> {
    const { engine, room } = this.#tools
    return new Promise<EnqueueResult<F>>((resolve, reject) => {
      const key = engine.keys.lock(request.name)
      const who = this.#requests.who(request.attempt)
      const isNew = !this.#known.has(request.attempt)
      const known = this.#known.note(request.attempt, request.name, true)
      known.isWaiting = known.isAsked = true
      const place = new Place<F>(this, request, { key, who, known, isNew }, sent, call, resolve, reject)
      room.ask(place)
      engine.ask(this.#requests.asking(request, key, who, true), call, place)
    })
  }

  async keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<F>> {
    const { engine, room, confirming } = this.#tools
    throwIfCancelled('redis', call)
    const since = instantOf(engine.clock)
    // Whose request is in flight is in no line yet, and its answer will say more than a heartbeat could.
    const waiting = claims.waiting.filter(({ attempt }) => this.#known.get(attempt)?.isAsked !== true)
    const listed: readonly Claim[] = [...claims.held, ...waiting]
    const ttl = String(this.ttlMs)
    const asking = ({ name, attempt }: Claim) => ({
      key: engine.keys.lock(name),
      who: this.#requests.who(attempt),
    })
    const requests: readonly Request[] = [
      ...claims.held.map((claim) => ({ ...asking(claim), letter: Letter.renew, args: [ttl, claim.grantId] })),
      ...waiting.map((claim) => ({ ...asking(claim), letter: Letter.beat, args: [ttl] })),
    ]
    // Both are over before the next keep-alive is due, so that it can open another connection.
    const promptly = {
      afterMs: Math.min(LATE_AFTER_MS, this.ttlMs / 6),
      openWithinMs: Math.min(LONGEST_OPENING_MS, this.ttlMs / 6),
    }
    const [alive, answers] = await Promise.all([
      this.#isGone
        ? 0
        : engine.connection.runPromptly(keepSessionScript, [engine.keys.session(this.id)], [], call.signal, {
            ...promptly,
            confirms: (reply) => Number(reply) === 1,
          }),
      this.#isGone ? [] : engine.sendAll(requests, call, { promptly }),
    ])
    if (Number(alive) !== 1) {
      await this.#end(call)
      return { kind: 'gone' }
    }
    this.#provenAt = laterOf(this.#provenAt, since)
    const lost: LostClaim[] = []
    const granted: Grant<F>[] = []
    const unknown: Unknown[] = []
    for (const [index, claim] of listed.entries()) {
      const answer = answers[index]
      const isWaiting = index >= claims.held.length
      if (answer?.kind === 'failed' && !isOfAnotherType(answer.message)) {
        const failure = failureOf(answer)
        if (isWaiting) this.#heartbeatFailed(claim, since, failure)
        else unknown.push({ claim, failure })
      } else if (answer?.kind === 'lost' || answer?.kind === 'failed') {
        lost.push(lostClaim(claim, answer))
        // A late copy of the request may wait in the queue still.
        if (isWaiting || this.#known.get(claim.attempt)?.isWaiting !== true) this.#known.delete(claim.attempt)
      } else if (answer?.kind === 'replaced') {
        lost.push({ attempt: claim.attempt, reason: 'deleted' })
        this.#known.note(claim.attempt, claim.name, false)
      } else if (isWaiting && answer?.kind === 'granted') {
        // What is to be confirmed is handed out by whoever confirms it, and by nobody else.
        if (confirming === null) granted.push(this.#grant(claim, answer.grantId, since, answer.data))
        for (const waiter of room.inLine(this, claim.attempt))
          room.granted(waiter, answer.grantId, since, answer.data)
      } else if (isWaiting && answer?.kind === 'waiting') {
        for (const waiter of room.inLine(this, claim.attempt)) {
          waiter.heartbeat = laterOf(waiter.heartbeat, since)
          room.told(waiter, answer.told)
        }
      }
    }
    lost.push(...this.#givenUp(unknown, claims.held.length))
    const isLost = new Set(lost.map(({ attempt }) => attempt))
    const kept = [...claims.held, ...claims.waiting].filter(({ attempt }) => !isLost.has(attempt))
    this.#confirmedAt = laterOf(this.#confirmedAt, since)
    return {
      kind: 'alive',
      since,
      ttlMs: this.ttlMs,
      lost,
      granted,
      unlisted: this.#known.besides(kept),
    }
  }

  /**
   * A keep-alive confirms all that it lists and does not call lost, so one claim of which nothing is known, say in a part
   * of a Cluster that is silent, is no answer for any: it fails, and is tried again soon. Before the others' time is up
   * because of that, the claims of which nothing is known are given up instead; on the server they end by their TTL.
   */
  #givenUp(unknown: readonly Unknown[], held: number): readonly LostClaim[] {
    const [first] = unknown
    if (first === undefined) return []
    const isPressing = elapsedMs(this.#tools.engine.clock, this.#confirmedAt) > this.ttlMs / 2
    if (unknown.length === held || !isPressing) throw first.failure
    for (const { claim } of unknown) this.#known.delete(claim.attempt)
    return unknown.map(({ claim }) => ({ attempt: claim.attempt, reason: 'unreachable' }))
  }

  /** That is no answer, so the place is kept for as long as the server may keep it; what is held is not touched by it. */
  #heartbeatFailed({ attempt }: Claim, now: Instant, failure: Error): void {
    const { room } = this.#tools
    for (const waiter of room.inLine(this, attempt))
      if (elapsedUntil(now, waiter.heartbeat) >= this.ttlMs && room.remove(waiter)) waiter.reject(failure)
  }

  async abandon({ name, attempt }: Claim, call: Call): Promise<void> {
    const { engine, room } = this.#tools
    const abandoning = this.#requests.abandoningIfAsked(name, attempt)
    if (abandoning !== null) await engine.send(abandoning, call)
    this.#known.delete(attempt)
    for (const waiter of room.find(this, attempt))
      if (room.remove(waiter))
        waiter.reject(new BackendUnavailableError('redis', 'the attempt was abandoned', 'not-applied'))
  }

  release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    return new Promise((resolve, failed) => {
      const answered = ({ kind }: Answer) => {
        this.#known.delete(claim.attempt)
        resolve(kind === 'released' ? 'released' : 'not-held')
      }
      this.#tools.engine.ask(this.#requests.releasing(claim, keepForMs), call, { answered, failed })
    })
  }

  async setData(
    { name, attempt, grantId }: GrantedClaim,
    data: string,
    call: Call,
  ): Promise<'stored' | 'not-held'> {
    const { engine } = this.#tools
    const answer = await engine.run(
      setDataScript,
      engine.keys.lock(name),
      [this.#requests.who(attempt), grantId, data],
      call,
    )
    return answer === 's' ? 'stored' : 'not-held'
  }

  async close(call: Call): Promise<void> {
    const { engine } = this.#tools
    throwIfCancelled('redis', call)
    // First the key: whoever carries the session on elsewhere must not prolong what is being given up.
    await engine.connection.run(closeSessionScript, [engine.keys.session(this.id)], [], call.signal)
    await this.#end(call)
  }

  /** The session is over: its waits end, and what is known of it is given up. */
  async #end(call: Call): Promise<void> {
    const { engine, room } = this.#tools
    this.#isGone = true
    for (const waiter of room.ofSession(this)) if (room.remove(waiter)) waiter.sessionGone()
    if (this.#known.size === 0) return
    const known = [...this.#known]
    const answers = await engine.sendAll(
      known.map(([attempt, { name, isWaiting }]) =>
        isWaiting ? this.#requests.abandoning(name, attempt) : this.#requests.givingUp(name, attempt),
      ),
      call,
      {
        onAnswered: (indexes) => {
          for (const index of indexes) this.#known.delete((known[index] as (typeof known)[number])[0])
          call.onProgress?.(this.#known.size)
        },
      },
    )
    for (const answer of answers)
      if (answer.kind === 'failed' && answer.cause !== undefined) throw answer.cause
  }

  #isProvenAlive(now: Instant): boolean {
    return !this.#isGone && elapsedUntil(now, this.#provenAt) < this.ttlMs
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

  handedOver(
    { request, known, call }: Place<F>,
    grantId: string,
    since: Instant,
    data: string | undefined,
  ): EnqueueResult<F> | Promise<EnqueueResult<F>> {
    known.isWaiting = false
    const grant = this.#grant(request, grantId, since, data)
    return this.#tools.confirming === null
      ? { kind: 'granted', grant }
      : this.#confirmed(request, grant, call)
  }

  queueFull({ request }: Place<F>): EnqueueResult<F> {
    this.#known.delete(request.attempt)
    return { kind: 'queue-full' }
  }

  refused({ request }: Place<F>, answer: Answer): Error {
    this.#known.delete(request.attempt)
    return answer.kind === 'abandoned'
      ? new BackendUnavailableError('redis', 'the attempt was abandoned', 'not-applied')
      : unexpected(request, answer)
  }

  notAsked({ request, isNew }: Place<F>, error: unknown): void {
    if (isNew) this.#forgetIfNeverApplied(request, error)
  }

  /** What certainly came to nothing need not be abandoned, and leaves no mark. */
  #forgetIfNeverApplied({ attempt }: Claim, error: unknown): void {
    if (outcomeOf(error) === 'not-applied') this.#known.delete(attempt)
  }

  /** Where the user has asked for more than the primary's word. */
  async #confirmed(
    request: AcquireRequest,
    grant: Grant<F>,
    call: Call,
  ): Promise<{ readonly kind: 'granted'; readonly grant: Grant<F> }> {
    const { confirming, engine } = this.#tools
    const claim = {
      key: engine.keys.lock(request.name),
      name: request.name,
      who: this.#requests.who(request.attempt),
    }
    await confirming?.confirm(claim, () => this.abandon(request, call), call)
    return { kind: 'granted', grant }
  }

  #grant({ name, attempt }: Claim, grantId: string, since: Instant, data: string | undefined): Grant<F> {
    const token = this.#tools.engine.isFenced ? BigInt(grantId) : null
    const grant = { name, attempt, grantId, token, since, ttlMs: this.ttlMs } as Grant<F>
    return data === undefined ? grant : { ...grant, previousData: data }
  }

  /** What was granted before counts from when it was prolonged: so long ago as its time has run since. */
  sinceOf(sent: Instant, leftMs: number | undefined): Instant {
    return leftMs === undefined ? sent : prolongedSince(sent, { ttlMs: this.ttlMs, leftMs })
  }
}

function lostClaim({ attempt }: Claim, answer: Answer): LostClaim {
  if (answer.kind !== 'lost') return { attempt, reason: 'deleted' }
  const { reason, detail } = answer
  return { attempt, reason, ...(detail !== undefined && { detail }) }
}

/** A claim that is held, or not: the server did not say. */
interface Unknown {
  readonly claim: Claim
  readonly failure: Error
}
