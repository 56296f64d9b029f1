/** A session on a majority of the nodes, and the claims on it. */

import { laterOf } from '../../../base/clock.ts'
import { quote, UnsupportedError } from '../../../base/errors.ts'
import { TransientMap } from '../../../base/transient-map.ts'
import { SessionBase, type SessionFacts } from '../../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
  ReleaseResult,
  ReleaseTerms,
} from '../../../spi.ts'
import type { RedisReply } from '../client/index.ts'
import { askForVotes, grantedBy, refused } from './acquiring.ts'
import {
  acquireRequest,
  giveUpRequest,
  grantedAtOf,
  HeldClaim,
  type NodeClaim,
  otherOwnerIn,
  releaseRequest,
  type VoteReply,
} from './claim.ts'
import type { Ensemble } from './ensemble.ts'
import { type Details, ownerText } from './keys.ts'
import type { RedlockNode } from './node.ts'
import type { Poll } from './poll.ts'
import { renew } from './renewing.ts'

/** How many claims are given up before the progress of a close is told. */
const CLOSED_AT_ONCE = 500

export class RedlockSession extends SessionBase<'unfenced'> implements BackendSession<'unfenced'> {
  readonly #ensemble: Ensemble
  readonly #key: string
  /** The terms that nearly all requests of the session ask for. */
  readonly #usualTerms: readonly string[]
  readonly #held = new TransientMap<string, HeldClaim>()
  /** From its close on, nothing is restored. */
  #isClosed = false

  constructor(ensemble: Ensemble, facts: SessionFacts) {
    super(facts)
    this.#ensemble = ensemble
    this.#key = ensemble.keys.session(facts.id)
    const details: Details = { holder: facts.holder, ttlMs: facts.ttlMs }
    this.#usualTerms = [String(facts.ttlMs), '0', JSON.stringify(details)]
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'unfenced'>> {
    const renewal = { session: this.id, ttlMs: this.ttlMs, listed: listed.held, held: this.#held }
    const result = await renew(this.#ensemble, renewal, call, (node, { session, attempts }) => {
      const claims = attempts.map((attempt) => this.#held.get(attempt)).filter((held) => held !== undefined)
      this.#restoreAt(node, session, claims)
    })
    if (result.kind === 'gone') return result
    // There is no queue here, so nothing waits in it.
    const waiting = listed.waiting.map(({ attempt }) => ({ attempt, reason: 'deleted' as const }))
    const lost = [...result.lost, ...waiting]
    const isLost = new Set(lost.map(({ attempt }) => attempt))
    const known = new Set<HeldClaim>()
    for (const { attempt, grantId } of listed.held) {
      const held = this.#held.get(attempt)
      if (held === undefined || held.grantId !== grantId) continue
      if (isLost.has(attempt)) this.#held.delete(attempt)
      else held.confirmedAt = laterOf(held.confirmedAt, result.since)
      known.add(held)
    }
    const unlisted = [...this.#held.values()]
      .filter((held) => !known.has(held))
      .map(({ claim: { name, attempt } }) => ({ name, attempt }))
    return { ...result, lost, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'unfenced'>> {
    if (request.mode !== 'exclusive')
      throw new UnsupportedError(
        `redlock: ${request.mode} leases need one server that counts the holders. Use mode 'exclusive', or another engine.`,
      )
    const since = this.#ensemble.begin(call)
    const { attempt } = request
    const terms = this.#termsOf(request)
    const claim = this.#nodeClaim(request)
    const votes = await askForVotes(this.#ensemble, claim, acquireRequest(claim, terms), call)
    if (grantedBy(votes) < this.#ensemble.quorum) {
      const result = await refused(this.#ensemble, claim, votes)
      if (result.kind !== 'session-gone') this.#completeVotes(votes)
      return result
    }
    const held = new HeldClaim(claim, terms, votes, since, this.#held.get(attempt))
    this.#held.set(attempt, held)
    votes.whenAllIn(() => this.#completeVotes(votes, held))
    return { kind: 'granted', grant: this.grantOf(request, { token: null, grantId: held.grantId, since }) }
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    this.#ensemble.begin(call)
    this.#giveUp(claim)
    const request = giveUpRequest('abandon', this.#nodeClaim(claim))
    const poll = this.#ensemble.pollWith<RedisReply>((node, answer) => node.ask(request, answer))
    await this.#ensemble.answeredByQuorum(poll, `abandon of ${quote(claim.name)}: done`, call, 'unknown')
    this.#held.delete(claim.attempt)
  }

  async release(claim: GrantedClaim, { keepForMs }: ReleaseTerms, call: Call): Promise<ReleaseResult> {
    this.#ensemble.begin(call)
    const { quorum, blocking } = this.#ensemble
    const { attempt, grantId, name } = claim
    const known = this.#held.get(attempt)
    if (known !== undefined && known.grantId !== grantId) return 'not-held'
    const held = this.#giveUp(claim)
    const request = releaseRequest(held?.claim ?? this.#nodeClaim(claim), keepForMs, (node) =>
      grantedAtOf(held, node, grantId),
    )
    const poll = this.#ensemble.pollWith<RedisReply>((node, answer) => {
      // The client of a node that is away would keep one command for each lock that the others grant meanwhile.
      if (!node.isAnswering && held?.isNotAt(node)) answer.answered('not-held')
      else node.ask(request, answer)
    })
    const released = () => poll.count((reply) => reply === 'released') >= quorum
    const isNotHeld = () => poll.count((reply) => reply === 'not-held') >= blocking
    await poll.until(() => released() || isNotHeld(), call)
    if (!released() && !isNotHeld())
      throw this.#ensemble.unavailable(
        `release of ${quote(name)}: released`,
        poll.count((reply) => reply === 'released'),
        poll,
        'unknown',
      )
    this.#held.delete(attempt)
    return released() ? 'released' : 'not-held'
  }

  /**
   * Gives up what was granted through this object. What others hold on this session is not renewed any more. A part that fails
   * does not keep the others from being given up.
   */
  async close(call: Call): Promise<void> {
    this.#ensemble.begin(call)
    this.#isClosed = true
    const claims = [...this.#held.values()].map(({ claim }) => claim)
    const failures: unknown[] = []
    for (let from = 0; from === 0 || from < claims.length; from += CLOSED_AT_ONCE) {
      const part = claims.slice(from, from + CLOSED_AT_ONCE)
      const closing = (claims.length === 0 ? [this.#nothing] : part).map((claim) =>
        this.#close(claim, call).catch((error: unknown) => void failures.push(error)),
      )
      await Promise.all(closing)
      call.onProgress?.(claims.length - from - part.length + failures.length)
    }
    if (failures.length > 0) throw failures[0]
  }

  async #close(claim: NodeClaim, call: Call): Promise<void> {
    const request = giveUpRequest('close', claim)
    const poll = this.#ensemble.pollWith<RedisReply>((node, answer) => node.ask(request, answer))
    await this.#ensemble.answeredByQuorum(poll, 'close of the session: done', call, 'unknown')
    this.#held.delete(claim.attempt)
  }

  /** TTL, lock-delay and details. */
  #termsOf({ note, owner, lockDelayMs }: AcquireRequest): readonly string[] {
    if (lockDelayMs === 0 && (note ?? owner) === undefined) return this.#usualTerms
    const details: Details = { holder: this.holder, note, owner, ttlMs: this.ttlMs }
    return [String(this.ttlMs), String(Math.ceil(lockDelayMs)), JSON.stringify(details)]
  }

  /** To end the session itself, without claims. */
  get #nothing(): NodeClaim {
    return { name: '', attempt: '', session: this.#key, lock: this.#key, owner: '' }
  }

  #isOver({ claim }: HeldClaim): boolean {
    return this.#held.get(claim.attempt)?.isOver ?? true
  }

  #nodeClaim({ name, attempt }: Claim): NodeClaim {
    const lock = this.#ensemble.keys.lock(name)
    return { name, attempt, session: this.#key, lock, owner: ownerText(attempt, this.id) }
  }

  #giveUp({ attempt }: Claim): HeldClaim | undefined {
    const held = this.#held.get(attempt)
    if (held !== undefined) held.isOver = true
    return held
  }

  /**
   * With a bare majority, one server whose clock is stepped is enough for a second holder (T77, one stepped clock). The votes that are missing may
   * be there by now: those of a rival that has given up, or of a server that is told of the session only now.
   */
  #completeVotes(votes: Poll<VoteReply>, held?: HeldClaim): void {
    const claims = held === undefined ? [] : [held]
    for (const { node, value } of votes.answers)
      if (value === 'no-session') this.#restoreAt(node, true, claims)
      else if (held !== undefined && value !== undefined && otherOwnerIn(value) !== null)
        this.#restoreAt(node, false, claims)
  }

  /** The session if it is missing, and claims that are still held. Without its session a node has no vote for them. */
  #restoreAt(node: RedlockNode, session: boolean, claims: readonly HeldClaim[]): void {
    this.#ensemble.inBackground(async () => {
      if (this.#isClosed) return
      if (session) await node.open([this.#key], [String(this.ttlMs), this.holder])
      // The session may have been opened there after its end.
      if (this.#isClosed) await node.request(giveUpRequest('close', this.#nothing))
      // An attempt that was asked for twice is over when the last of them is.
      else await Promise.all(claims.map((held) => this.#isOver(held) || held.restoreAt(node)))
    })
  }
}
