/**
 * A client's view of its session. Redis keeps no list of what a session holds: every claim has its own time, and is
 * prolonged by name. So the session remembers what was asked for through it, to give it up at its end and to tell of
 * what a keep-alive did not list.
 *
 *   alive ──keep-alive──▶ alive                                       [keepAlive]
 *   alive ──its key is gone──▶ gone: what is known is given up        [#end]
 *   alive ──not proven alive for one TTL──▶ asked for ──▶ alive | gone   [#provenAlive]
 *
 * Failures between two steps: the session expires while a claim that was asked for later lives on (no keep-alive
 * prolongs it, so it ends within one TTL); an acquire lands after the close (the same); the process dies (the same).
 */

import { elapsedMs, elapsedUntil, type Instant, instantOf, laterOf } from '../../../base/clock.ts'
import { BackendUnavailableError, outcomeOf, quote } from '../../../base/errors.ts'
import { TransientMap } from '../../../base/transient-map.ts'
import { prolongedSince } from '../../../kit/backend-kit.ts'
import { SessionBase, type SessionFacts } from '../../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Attempt,
  BackendSession,
  Call,
  Claim,
  Fencing,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  LostClaim,
  ReleaseResult,
  ReleaseTerms,
} from '../../../spi.ts'
import type { ScriptAnswer } from './answers.ts'
import type { Connection } from './connection.ts'
import { type EnqueueHost, enqueueing, type KnownAttempt } from './enqueueing.ts'
import { isOfAnotherType, refusedAcquire } from './failures.ts'
import { Requests } from './requests.ts'
import { OpCode } from './scripts/op-codes.ts'
import { setDataScript } from './scripts/operators.ts'
import { closeSessionScript, keepSessionScript } from './scripts/sessions.ts'
import { findSession } from './states.ts'
import type { RecordedGrant, RedisWaiter, RedisWaitingRoom } from './waiting-room.ts'

/** A keep-alive that the client has not got answered by then also goes over a connection of our own (T85, shared clients). */
const LATE_AFTER_MS = 1_000
/** For that connection and its handshake. */
const LONGEST_OPENING_MS = 10_000

/** Findings of a keep-alive about the claims that it listed. */
interface Findings<F extends Fencing> {
  readonly lost: LostClaim[]
  readonly granted: Grant<F>[]
  /** Held, or not: the server did not say. */
  readonly unknown: { readonly claim: Claim; readonly failure: Error }[]
}

export class RedisSession<F extends Fencing>
  extends SessionBase<F>
  implements BackendSession<F>, EnqueueHost<F>
{
  readonly room: RedisWaitingRoom
  readonly #connection: Connection
  readonly #requests: Requests
  readonly #known = new TransientMap<string, KnownAttempt>()
  /** Attempts whose request waits for the first contact. The server does not know them yet, so no heartbeat asks for them. */
  readonly #preparing = new Set<string>()
  /** All claims that were listed last have been confirmed from then on. */
  #confirmedAt: Instant
  #isGone = false

  constructor(connection: Connection, facts: SessionFacts) {
    super(facts)
    this.#connection = connection
    this.room = connection.room
    const { keys, channel } = connection
    this.#requests = new Requests({ keys, channel, session: facts })
    this.#confirmedAt = facts.since
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<F>> {
    const { clock } = this.#connection
    if (!this.#isProvenAlive(instantOf(clock)) && !(await this.#provenAlive(call)))
      return { kind: 'session-gone' }
    const { attempt } = request
    const sent = instantOf(clock)
    // First what may be refused: nothing is known of an attempt that was never asked for.
    const asking = this.#requests.acquire(request, OpCode.tryAcquire)
    const known = this.#known.get(attempt)
    if (known === undefined) this.#known.set(attempt, { name: request.name, isWaiting: false })
    let answer: ScriptAnswer
    try {
      answer = await this.#connection.sender.send(asking, call)
    } catch (error) {
      if (known === undefined && outcomeOf(error) === 'not-applied') this.forget(attempt)
      throw error
    }
    if (answer.kind === 'granted') {
      if (known !== undefined) known.isWaiting = false
      const { leftMs } = answer
      const since = leftMs === undefined ? sent : this.sinceOf(sent, leftMs)
      return this.handOut(request, { ...answer, since })
    }
    // A position that the same attempt has in the queue stays known.
    if (known === undefined) this.forget(attempt)
    if (answer.kind === 'busy') return answer
    if (answer.kind === 'abandoned') return { kind: 'busy' }
    throw refusedAcquire(request, answer)
  }

  enqueue(request: AcquireRequest, attempt: Attempt<F>): void {
    const { clock, isReady, sender } = this.#connection
    const sent = instantOf(clock)
    if (isReady && this.#isProvenAlive(sent)) {
      const claim = this.#requests.acquire(request, OpCode.enqueue)
      const before = this.#known.get(request.attempt)
      const known = before ?? { name: request.name, isWaiting: true }
      known.isWaiting = true
      if (before === undefined) this.#known.set(request.attempt, known)
      const asked = { claim, known, isNew: before === undefined, sent }
      const waiter = enqueueing(this, request, asked, attempt)
      this.room.ask(waiter)
      sender.ask(claim, attempt, waiter)
    } else {
      this.#preparing.add(request.attempt)
      this.#readyFor(attempt)
        .then((isAlive) =>
          isAlive ? this.enqueue(request, attempt) : attempt.answer({ kind: 'session-gone' }),
        )
        .catch((error: unknown) => attempt.fail(error))
        // Last: from the enqueue on, the room leaves it out.
        .finally(() => this.#preparing.delete(request.attempt))
    }
  }

  /** False: the session has gone. */
  async #readyFor(call: Call): Promise<boolean> {
    const { clock, lifetime } = this.#connection
    lifetime.begin(call)
    if (!this.#isProvenAlive(instantOf(clock)) && !(await this.#provenAlive(call))) return false
    await this.#connection.prepare(call)
    return true
  }

  async keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<F>> {
    const { clock, client, keys } = this.#connection
    const since = instantOf(clock)
    // The answers of requests in flight will say more than a heartbeat could.
    const waiting = this.room
      .withoutAsked(claims.waiting)
      .filter(({ attempt }) => !this.#preparing.has(attempt))
    const requests = [
      ...claims.held.map((claim) => this.#requests.renew(claim)),
      ...waiting.map((claim) => this.#requests.heartbeat(claim)),
    ]
    // Both are over before the next keep-alive is due, so that it can open another connection.
    const promptly = {
      afterMs: Math.min(LATE_AFTER_MS, this.ttlMs / 6),
      openWithinMs: Math.min(LONGEST_OPENING_MS, this.ttlMs / 6),
    }
    const keepSession = () =>
      client.runPromptly(keepSessionScript, [keys.session(this.id)], [], call.signal, {
        ...promptly,
        confirms: (reply) => Number(reply) === 1,
      })
    const [alive, answers] = this.#isGone
      ? [0, []]
      : await Promise.all([keepSession(), this.#connection.sender.sendAll(requests, call, { promptly })])
    if (Number(alive) !== 1) {
      await this.#end(call)
      return { kind: 'gone' }
    }
    this.prolonged(since)
    const findings: Findings<F> = { lost: [], granted: [], unknown: [] }
    for (const [index, claim] of claims.held.entries()) this.#renewed(claim, answers[index], findings)
    for (const [index, claim] of waiting.entries())
      this.#heartbeatAnswered(claim, answers[claims.held.length + index], since, findings)
    const { lost, granted, unknown } = findings
    lost.push(...this.#givenUp(unknown, claims.held.length))
    this.#confirmedAt = laterOf(this.#confirmedAt, since)
    return { kind: 'alive', since, ttlMs: this.ttlMs, lost, granted, unlisted: this.#unlisted(claims, lost) }
  }

  #renewed(
    claim: GrantedClaim,
    answer: ScriptAnswer | Error | undefined,
    { lost, unknown }: Findings<F>,
  ): void {
    const { name, attempt } = claim
    if (answer instanceof Error && !isOfAnotherType(answer)) unknown.push({ claim, failure: answer })
    else if (answer instanceof Error || answer?.kind === 'lost') {
      lost.push(lostClaim(attempt, answer))
      // A late copy of the request may wait in the queue still.
      if (this.#known.get(attempt)?.isWaiting !== true) this.forget(attempt)
    } else if (answer?.kind === 'replaced') {
      lost.push({ attempt, reason: 'deleted' })
      if (!this.#known.has(attempt)) this.#known.set(attempt, { name, isWaiting: false })
    }
  }

  #heartbeatAnswered(
    claim: Claim,
    answer: ScriptAnswer | Error | undefined,
    since: Instant,
    { lost, granted }: Findings<F>,
  ): void {
    const waiters = this.#waitersOf(claim)
    if (answer instanceof Error && !isOfAnotherType(answer)) {
      // The server may keep the position for one TTL after the last heartbeat. What is held is not touched by this failure.
      for (const waiter of waiters)
        if (elapsedUntil(since, waiter.heartbeat) >= this.ttlMs) this.room.fail(waiter, answer)
    } else if (answer instanceof Error || answer?.kind === 'lost') {
      lost.push(lostClaim(claim.attempt, answer))
      this.forget(claim.attempt)
    } else if (answer?.kind === 'granted') {
      const { grantId, data } = answer
      for (const waiter of waiters) this.room.grant(waiter, { grantId, data, since })
      granted.push(this.handOut(claim, { grantId, data, since }).grant)
    } else if (answer?.kind === 'waiting') {
      for (const waiter of waiters) {
        waiter.heartbeat = laterOf(waiter.heartbeat, since)
        this.room.expect(waiter, answer.outlook)
      }
    }
  }

  #waitersOf({ attempt }: Claim): readonly RedisWaiter[] {
    return this.room
      .find(attempt, this)
      .filter((waiter) => waiter.request.attempt === attempt && this.room.isWaiting(waiter))
  }

  /**
   * A keep-alive confirms all that it lists and does not call lost, so one claim of which nothing is known, say in a part
   * of a Cluster that is silent, is no answer for any: it fails, and is tried again soon. Before the others' time is up
   * because of that, the claims of which nothing is known are given up instead; on the server they end by their TTL.
   */
  #givenUp(unknown: Findings<F>['unknown'], held: number): readonly LostClaim[] {
    const [first] = unknown
    if (first === undefined) return []
    const isPressing = elapsedMs(this.#connection.clock, this.#confirmedAt) > this.ttlMs / 2
    if (unknown.length === held || !isPressing) throw first.failure
    for (const { claim } of unknown) this.forget(claim.attempt)
    return unknown.map(({ claim }) => ({ attempt: claim.attempt, reason: 'unreachable' }))
  }

  /** Claims that the session may have besides those that were listed and are not lost. */
  #unlisted({ held, waiting }: ListedClaims, lost: readonly LostClaim[]): Claim[] {
    const unlisted = new Map<string, Claim>()
    for (const [attempt, { name }] of this.#known) unlisted.set(attempt, { name, attempt })
    const isLost = new Set(lost.map(({ attempt }) => attempt))
    for (const { attempt } of [...held, ...waiting]) if (!isLost.has(attempt)) unlisted.delete(attempt)
    return [...unlisted.values()]
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    const request = this.#requests.abandonIfAsked(claim)
    if (request !== null) await this.#connection.sender.send(request, call)
    this.forget(claim.attempt)
    this.room.abandoned(this, claim.attempt)
  }

  release(claim: GrantedClaim, { keepForMs }: ReleaseTerms, call: Call): Promise<ReleaseResult> {
    return new Promise((resolve, failed) => {
      const answered = ({ kind }: ScriptAnswer) => {
        this.forget(claim.attempt)
        resolve(kind === 'released' ? 'released' : 'not-held')
      }
      this.#connection.sender.ask(this.#requests.release(claim, keepForMs), call, { answered, failed })
    })
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const args = [this.#requests.claim(claim).who, claim.grantId, data]
    const answer = await this.#connection.runFor(setDataScript, claim.name, args, call)
    return answer === 's' ? 'stored' : 'not-held'
  }

  async close(call: Call): Promise<void> {
    const { client, keys } = this.#connection
    // First the key: a process that carries the session on elsewhere must not prolong what is being given up.
    await client.run(closeSessionScript, [keys.session(this.id)], [], call.signal)
    await this.#end(call)
  }

  /** The session is over: its waits end, and what is known of it is given up. */
  async #end(call: Call): Promise<void> {
    this.#isGone = true
    this.room.sessionEnded(this)
    if (this.#known.size === 0) return
    const known = [...this.#known].map(([attempt, { name, isWaiting }]) => ({ name, attempt, isWaiting }))
    const requests = known.map((claim) =>
      claim.isWaiting ? this.#requests.abandon(claim) : this.#requests.release({ ...claim, grantId: '' }, 0),
    )
    const answers = await this.#connection.sender.sendAll(requests, call, {
      onAnswered: (indexes) => {
        for (const index of indexes) this.forget(known[index]?.attempt ?? '')
        call.onProgress?.(this.#known.size)
      },
    })
    for (const [index, answer] of answers.entries())
      if (answer instanceof Error && this.#known.has(known[index]?.attempt ?? '')) throw answer
  }

  #isProvenAlive(now: Instant): boolean {
    return !this.#isGone && elapsedUntil(now, this.prolongedAt) < this.ttlMs
  }

  /** Another process may have kept it alive: the server knows. */
  async #provenAlive(call: Call): Promise<boolean> {
    if (this.#isGone) return false
    const now = instantOf(this.#connection.clock)
    const found = await findSession(this.#connection, this.id, call)
    if (found !== null) this.prolonged(prolongedSince(now, { ttlMs: this.ttlMs, leftMs: found.leftMs }))
    else await this.#end(call)
    return found !== null
  }

  forget(attempt: string): void {
    this.#known.delete(attempt)
  }

  /** The instant from which an earlier grant counts: so long ago as its session's time has run since it was prolonged. */
  sinceOf(sent: Instant, leftMs: number): Instant {
    return prolongedSince(sent, { ttlMs: this.ttlMs, leftMs })
  }

  handOut(claim: Claim, granted: RecordedGrant): { readonly kind: 'granted'; readonly grant: Grant<F> } {
    const { isFenced } = this.#connection.demands
    // Grants of a process without fencing are named by their time, which has a point.
    if (isFenced && granted.grantId.includes('.'))
      throw new BackendUnavailableError(
        'redis',
        `the grant of ${quote(claim.name)} has no fencing token, because a process without \`fencing\` made it: all processes of a ` +
          'namespace must have the same',
        'unknown',
      )
    const token = isFenced ? BigInt(granted.grantId) : null
    const grant = this.grantOf(claim, { ...granted, token: token as Grant<F>['token'] })
    return { kind: 'granted', grant }
  }
}

function lostClaim(attempt: string, answer: ScriptAnswer | Error): LostClaim {
  if (answer instanceof Error || answer.kind !== 'lost') return { attempt, reason: 'deleted' }
  const { reason, detail } = answer
  return { attempt, reason, ...(detail !== undefined && { detail }) }
}
