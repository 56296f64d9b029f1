/** The SPI over the simulated network: one attempt per call, and `since` is always the moment of sending. */

import { elapsedMs, type Instant, instantOf, laterOf } from '../../packages/holdfast/src/base/clock.ts'
import { defaultDriftMs } from '../../packages/holdfast/src/base/defaults.ts'
import { CapacityMismatchError, UnsupportedError } from '../../packages/holdfast/src/base/errors.ts'
import { publicIdOf } from '../../packages/holdfast/src/base/ids.ts'
import { answering } from '../../packages/holdfast/src/kit/answering.ts'
import { operatorCallExpired } from '../../packages/holdfast/src/kit/backend-kit.ts'
import type {
  AcquireRequest,
  AcquireResult,
  Attempt,
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  Claim,
  Clock,
  Grant,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  Random,
  SessionHandle,
  SessionRequest,
} from '../../packages/holdfast/src/spi.ts'
import type { SimConnection } from './connection.ts'
import type { EngineAnswer, Granted } from './engine/messages.ts'

export function simInfo(waiting: BackendInfo['waiting'], expirySlackMs: number): BackendInfo<'fenced'> {
  return {
    name: 'sim',
    scope: 'cluster',
    fencing: 'fenced',
    namespace: 'sim',
    issuer: 'sim',
    epoch: 0,
    modes: ['exclusive', 'shared', 'permits'],
    waiting,
    lockDelay: 'server',
    holdAtLeast: 'server',
    data: true,
    ttlMs: { min: 100, max: 3_600_000, step: 1 },
    driftMs: defaultDriftMs,
    expirySlackMs: () => expirySlackMs,
    prolongation: 'committed',
    assumptions: ['Clocks of clients and engine run at rates that differ by less than 1 %.'],
    confirmed: 'A keep-alive that the engine has answered, counted from when it was sent.',
  }
}

export class SimBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #connection: SimConnection

  constructor(connection: SimConnection, clock: Clock, random: Random) {
    const { waiting, expirySlackMs } = connection.world.settings
    this.info = simInfo(waiting, expirySlackMs)
    this.clock = clock
    this.random = random
    this.#connection = connection
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    const since = instantOf(this.clock)
    const sentAtMs = this.#connection.world.nowMs
    const { id, ttlMs, holder } = request
    const opening = this.#connection.world.checks.opening(this.#connection.address, ttlMs, call)
    const asked = this.#connection.ask({ kind: 'open', session: id, ttlMs, holder }, call)
    const answer = await asked.finally(opening.over)
    if (answer.kind !== 'opened') throw unexpected(answer)
    return new SimSession(this.#connection, id, answer.ttlMs, since, sentAtMs)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    return (await this.#connection.ask({ kind: 'check', ...holder }, call)).kind === 'yes'
  }

  async forceRelease(
    name: string,
    ids: readonly string[],
    _reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const { notAfterMs } = call
    const answer = await this.#connection.ask({ kind: 'forceRelease', name, ids, notAfterMs }, call)
    if (answer.kind === 'too-late') throw operatorCallExpired('sim')
    return answer.kind === 'count' ? answer.count : 0
  }

  attachSession(_handle: SessionHandle): Promise<null> {
    return Promise.reject(notSimulated('attachSession'))
  }

  async inspect(name: string, call: Call): Promise<NameState | null> {
    const answer = await this.#connection.ask({ kind: 'inspect', name }, call)
    if (answer.kind !== 'shown') throw unexpected(answer)
    return answer.state
  }

  /** One page: there are never many names. */
  async list(prefix: string, _page: PageRequest, call: Call): Promise<Page<NameState>> {
    const answer = await this.#connection.ask({ kind: 'list', prefix }, call)
    if (answer.kind !== 'listed') throw unexpected(answer)
    return { items: answer.states, next: null }
  }

  resize(): Promise<'changed'> {
    return Promise.reject(notSimulated('resize'))
  }

  forget(): Promise<'changed'> {
    return Promise.reject(notSimulated('forget'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }
}

export class SimSession implements BackendSession<'fenced'> {
  readonly id: string
  readonly ttlMs: number
  readonly since: Instant
  readonly handle: SessionHandle
  declare readonly enqueue?: NonNullable<BackendSession<'fenced'>['enqueue']>
  readonly #connection: SimConnection
  #prolongedAt: Instant
  /** The same on the clock of the world. */
  #prolongedAtMs: number
  readonly #confirmed = new Map<
    string,
    {
      readonly since: readonly Instant[]
      readonly learntAtMs: number
      readonly before: readonly Instant[] | undefined
    }
  >()
  /** When core last asked for a renewal, or was done with it, for the check that it goes on asking. */
  keptAliveAtMs: number

  constructor(connection: SimConnection, id: string, ttlMs: number, since: Instant, sentAtMs: number) {
    this.#prolongedAtMs = sentAtMs
    this.#connection = connection
    this.id = id
    this.ttlMs = ttlMs
    this.since = since
    this.handle = { id, ttlMs }
    this.#prolongedAt = since
    this.keptAliveAtMs = connection.world.nowMs
    const { waiting, answersDirectly } = connection.world.settings
    if (waiting === 'queue')
      this.enqueue = (request, attempt) => {
        if (answersDirectly) this.#enqueue(request, attempt, attempt)
        else
          answering(attempt, new Promise((answer, fail) => this.#enqueue(request, attempt, { answer, fail })))
      }
  }

  /** Since when a lease counts by what core had been told of it before this moment: one of these. */
  confirmedSince(leaseId: string): readonly Instant[] | undefined {
    const confirmed = this.#confirmed.get(leaseId)
    return confirmed?.learntAtMs === this.#connection.world.nowMs ? confirmed.before : confirmed?.since
  }

  /** How much longer the session itself may be believed in. */
  get leftMs(): number {
    return this.ttlMs - defaultDriftMs(this.ttlMs) - elapsedMs(this.#connection.process, this.#prolongedAt)
  }

  #confirm(attempt: string, since: Instant): void {
    const learntAtMs = this.#connection.world.nowMs
    const leaseId = publicIdOf(attempt)
    this.#confirmed.set(leaseId, { since: [since], learntAtMs, before: this.confirmedSince(leaseId) })
  }

  /** It was listed as waiting. If a push was quicker it is a lease by now, and is confirmed; or it becomes one with the earlier time. */
  #mayConfirm(attempt: string, since: Instant): void {
    const leaseId = publicIdOf(attempt)
    const confirmed = this.#confirmed.get(leaseId)
    if (confirmed === undefined) return
    this.#confirmed.set(leaseId, { ...confirmed, since: [...confirmed.since, since] })
  }

  async keepAlive(claims: ListedClaims, call: Call): Promise<KeepAliveResult<'fenced'>> {
    const { world, process } = this.#connection
    const since = instantOf(process)
    const touch = () => {
      this.keptAliveAtMs = world.nowMs
    }
    touch()
    call.signal.addEventListener('abort', touch, { once: true })
    const sentAtMs = world.nowMs
    const onRenewed = world.history.renewing(this.id, claims.held, this.ttlMs)
    const request = { kind: 'keepAlive' as const, session: this.id, ...claims }
    const answer = await this.#connection.ask(request, call, world.settings.patientKeepAlive)
    touch()
    if (answer.kind === 'gone') return { kind: 'gone' }
    if (answer.kind !== 'alive') throw unexpected(answer)
    if (call.signal.aborted) world.count('late confirmation')
    if (answer.unlisted.length > 0) world.count('unlisted claim')
    if (answer.granted.length > 0) world.count('granted by keep-alive')
    onRenewed(answer.lost)
    this.#prolongedAt = laterOf(this.#prolongedAt, since)
    this.#prolongedAtMs = Math.max(this.#prolongedAtMs, sentAtMs)
    for (const { attempt } of claims.held) this.#confirm(attempt, since)
    for (const grant of answer.granted) {
      this.#mayConfirm(grant.attempt, since)
      this.#connection.turns.get(grant.attempt)?.({ kind: 'turn', grant })
    }
    const { ttlMs, lost, unlisted } = answer
    return {
      kind: 'alive',
      since,
      ttlMs,
      lost,
      unlisted,
      granted: answer.granted.map((each) => this.#grant(each)),
    }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    const { world, process } = this.#connection
    world.checks.askedFor(request, call, this, process)
    world.history.asked(this.id, request, false)
    const asked = this.#connection.ask({ kind: 'tryAcquire', session: this.id, request }, call)
    const answer = await asked.finally(() => world.checks.answered(request.attempt))
    if (answer.kind === 'busy' || answer.kind === 'gone') world.history.refused(request.attempt)
    return answer.kind === 'busy' ? answer : this.#result(answer)
  }

  /** Answers when the turn comes, by whichever message says so first. */
  #enqueue(
    request: AcquireRequest,
    call: Attempt<'fenced'>,
    caller: Pick<Attempt<'fenced'>, 'answer' | 'fail'>,
  ): void {
    const connection = this.#connection
    connection.world.checks.askedFor(request, call, this, connection.process)
    connection.world.history.asked(this.id, request, true)
    let [isAsking, isOver] = [true, false]
    const settle = (tell: () => void) => {
      if (isOver) return
      isOver = true
      if (isAsking && caller === call) connection.world.count('answered within enqueue')
      connection.turns.delete(request.attempt)
      connection.world.checks.answered(request.attempt)
      tell()
    }
    const failed = (error: unknown) => settle(() => caller.fail(error))
    const gaveUp = () => failed(connection.unavailable('the attempt was abandoned', 'not-applied'))
    const conclude = (answer: EngineAnswer) => {
      if (isOver) return
      try {
        const result = this.#result(answer)
        settle(() => caller.answer(result))
      } catch (error) {
        failed(error)
      }
    }
    connection.turns.set(request.attempt, (push) => {
      if (push.kind === 'turn') conclude({ kind: 'granted', grant: push.grant })
      else if (push.kind === 'no-turn') push.why === 'gone' ? conclude({ kind: 'gone' }) : gaveUp()
    })
    call.onCancel(() => failed(connection.unavailable('cancelled', 'unknown')))
    const answered = (answer: EngineAnswer) => {
      if (answer.kind === 'abandoned') gaveUp()
      else if (answer.kind !== 'waiting') conclude(answer)
      else if (!isOver) {
        connection.world.history.queuedFor(request.attempt)
        call.queued()
      }
    }
    connection.add({ kind: 'enqueue', session: this.id, request }, call, { answered, failed })
    isAsking = false
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    const { world } = this.#connection
    world.abandoning(this.id, claim.attempt, this.ttlMs)
    const asked = this.#connection.ask({ kind: 'abandon', session: this.id, claim }, call)
    await world.history.ending('abandon', this.id, claim, asked, () => 'ok')
    world.abandoned(this.id, claim.attempt)
  }

  async setData(claim: GrantedClaim, data: string, call: Call): Promise<'stored' | 'not-held'> {
    const answer = await this.#connection.ask({ kind: 'setData', session: this.id, claim, data }, call)
    return answer.kind === 'yes' ? 'stored' : 'not-held'
  }

  async release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    const { history } = this.#connection.world
    const asked = this.#connection.ask({ kind: 'release', session: this.id, claim, keepForMs }, call)
    // "Not held" may be the answer to a copy of the request, which came after the original.
    const outcome = ({ kind }: EngineAnswer) => (kind === 'yes' ? 'ok' : 'unknown')
    const answer = await history.ending('release', this.id, claim, asked, outcome)
    return answer.kind === 'yes' ? 'released' : 'not-held'
  }

  async close(call: Call): Promise<void> {
    const { world } = this.#connection
    world.closing(this.id)
    await world.history.closing(this.id, this.#connection.ask({ kind: 'close', session: this.id }, call))
  }

  #result(answer: EngineAnswer): Exclude<AcquireResult<'fenced'>, { kind: 'busy' }> {
    if (answer.kind === 'granted') return { kind: 'granted', grant: this.#grant(answer.grant) }
    if (answer.kind === 'gone') return { kind: 'session-gone' }
    if (answer.kind === 'mismatch') throw new CapacityMismatchError(answer.name, answer.asked, answer.inUse)
    throw unexpected(answer)
  }

  /** Counts from this client's last confirmed heartbeat, whenever and however the grant arrived (T64, new leases on old sessions; T65, belief from the push). */
  #grant({ name, attempt, token, previousData }: Granted): Grant<'fenced'> {
    if (!this.#confirmed.has(publicIdOf(attempt))) this.#confirm(attempt, this.#prolongedAt)
    this.#connection.world.history.obtained(attempt, token, this.#prolongedAtMs, this.ttlMs)
    const grant = {
      name,
      attempt,
      grantId: String(token),
      token,
      since: this.#prolongedAt,
      ttlMs: this.ttlMs,
    }
    return previousData === undefined ? grant : { ...grant, previousData }
  }
}

function unexpected(answer: EngineAnswer): Error {
  return new Error(`the simulated engine answered ${answer.kind}`)
}

function notSimulated(what: string): UnsupportedError {
  return new UnsupportedError(`${what} is not simulated.`)
}
