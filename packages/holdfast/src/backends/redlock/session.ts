/** A session on a majority of the nodes, and the claims on it. */

import { type Instant, laterOf } from '../../base/clock.ts'
import { UnsupportedError } from '../../base/errors.ts'
import type { RedisReply } from '../../clients/redis/index.ts'
import { SessionBase, type SessionFacts } from '../../kit/session.ts'
import type {
  AcquireRequest,
  AcquireResult,
  BackendSession,
  Call,
  Claim,
  GrantedClaim,
  KeepAliveResult,
  ListedClaims,
} from '../../spi.ts'
import {
  abandonItem,
  type Claimed,
  mendItem,
  type NodeClaim,
  releaseItem,
  takeBack,
  tryAcquire,
  type Vote,
  voteOf,
} from './acquiring.ts'
import type { Ensemble } from './ensemble.ts'
import { bootKey, detailsText, grantedAtBy, ownerText, sharesVote } from './layout.ts'
import type { RedlockNode } from './node.ts'
import type { Poll } from './poll.ts'
import { type Lack, renew } from './renewing.ts'
import { closeScript, openScript } from './scripts.ts'

/** A claim that was granted through this object. */
interface Held {
  readonly claim: NodeClaim
  readonly grantId: string
  /** By run id: when nodes made the grant that `grantId` does not name, because they voted late or were mended. */
  readonly laterVotes: Map<string, string>
  /** The nodes that have it, or may have it. */
  readonly nodes: Set<RedlockNode>
  confirmedAt: Instant
  /** It is being given up: whoever votes for it from now on is told so once more. */
  isOver: boolean
  /** Every node hears of its end behind whatever it was asked before. */
  isInOrder: boolean
}

/** How many claims a call of `closeScript` gives up. */
const CLOSED_AT_ONCE = 500

export class RedlockSession extends SessionBase<'unfenced'> implements BackendSession<'unfenced'> {
  readonly #ensemble: Ensemble
  readonly #holder: string
  readonly #held = new Map<string, Held>()

  constructor(ensemble: Ensemble, facts: SessionFacts) {
    super(facts)
    this.#ensemble = ensemble
    this.#holder = facts.holder
  }

  async keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<'unfenced'>> {
    const { result, lacking } = await renew(
      this.#ensemble,
      {
        session: this.id,
        ttlMs: this.ttlMs,
        held: listed.held,
        grantedAt: (node, claim) => this.#grantedAt(node, claim),
        confirmedAt: ({ attempt }) => this.#held.get(attempt)?.confirmedAt,
      },
      call,
    )
    if (result.kind === 'gone') return result
    // There is no line here, so nobody waits in it.
    const waiting = listed.waiting.map(({ attempt }) => ({ attempt, reason: 'deleted' as const }))
    const lost = [...result.lost, ...waiting]
    const isLost = new Set(lost.map(({ attempt }) => attempt))
    const known = new Set<Held>()
    for (const claim of listed.held) {
      const held = this.#held.get(claim.attempt)
      if (held === undefined || held.grantId !== claim.grantId) continue
      if (isLost.has(claim.attempt)) this.#held.delete(claim.attempt)
      else held.confirmedAt = laterOf(held.confirmedAt, result.since)
      known.add(held)
    }
    this.#ensemble.inBackground(async () => {
      for (const lack of await lacking) await this.#mend(lack)
    })
    const unlisted = [...this.#held.values()]
      .filter((held) => !known.has(held))
      .map(({ claim }) => ({ name: claim.name, attempt: claim.owner.attempt }))
    return { ...result, lost, unlisted }
  }

  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'unfenced'>> {
    if (request.mode !== 'exclusive')
      throw new UnsupportedError(
        `redlock: ${request.mode} leases need one server that counts the holders. Use mode 'exclusive', or another engine.`,
      )
    const { name, attempt, note, owner, lockDelayMs } = request
    const claim = {
      name,
      owner: { attempt, session: this.id },
      ttlMs: this.ttlMs,
      lockDelayMs: Math.ceil(lockDelayMs),
      details: detailsText({
        name,
        holder: this.#holder,
        ttlMs: this.ttlMs,
        ...(note !== undefined && { note }),
        ...(owner !== undefined && { owner }),
      }),
    }
    const { result, nodes, strangers, poll } = await tryAcquire(this.#ensemble, claim, call)
    // It was restarted, or was away for a TTL: so that its next vote counts, it is told of the session again.
    if (result.kind !== 'session-gone')
      for (const node of strangers) this.#ensemble.inBackground(() => this.#openAt(node))
    if (result.kind === 'granted') {
      const known = this.#knownGrant(attempt, result.grant)
      const grantId = known?.grantId ?? result.grant.grantId
      const held = {
        claim,
        grantId,
        laterVotes: known?.laterVotes ?? new Map<string, string>(),
        nodes: new Set(nodes),
        confirmedAt: result.grant.since,
        isOver: false,
        isInOrder: false,
      }
      this.#held.set(attempt, held)
      if (!poll.isAllIn) poll.allIn.then(() => this.#meetLateVotes(held, poll))
      poll.allIn.then(() => {
        for (const { value } of poll.answered) rememberVote(held, value)
        this.#mendMissingVotes(held, poll)
      })
      return { kind: 'granted', grant: { ...result.grant, grantId } }
    }
    return result
  }

  /** An attempt that is asked for again may be answered by other nodes first; it is the same grant all the same. */
  #knownGrant(attempt: string, { grantId }: GrantedClaim): Held | undefined {
    const known = this.#held.get(attempt)
    return known !== undefined && sharesVote(known.grantId, grantId) ? known : undefined
  }

  /** When this node made the grant; empty if that is not known here. */
  #grantedAt({ runId }: RedlockNode, { attempt, grantId }: GrantedClaim): string {
    const held = this.#held.get(attempt)
    const later = held?.grantId === grantId ? held.laterVotes.get(runId ?? '') : undefined
    return grantedAtBy(runId, grantId) || (later ?? '')
  }

  async abandon(claim: Claim, call: Call): Promise<void> {
    this.#ensemble.begin(call)
    const item = abandonItem(this.#ensemble, this.#nodeClaim(claim))
    this.#giveUp(claim)
    const poll = this.#ensemble.poll((node) => node.tell(item))
    const { quorum } = this.#ensemble
    await poll.until(() => poll.answered.length >= quorum, call)
    const reached = poll.answered.length
    if (reached < quorum)
      throw this.#ensemble.unavailable(
        `abandon of ${JSON.stringify(claim.name)}: done`,
        reached,
        poll,
        'unknown',
      )
    this.#held.delete(claim.attempt)
  }

  async release(
    claim: GrantedClaim,
    { keepForMs }: { readonly keepForMs: number },
    call: Call,
  ): Promise<'released' | 'not-held'> {
    this.#ensemble.begin(call)
    const { quorum, nodes } = this.#ensemble
    const known = this.#held.get(claim.attempt)
    if (known !== undefined && known.grantId !== claim.grantId) return 'not-held'
    const itemFor = (node: RedlockNode) =>
      releaseItem(this.#ensemble, this.#nodeClaim(claim), keepForMs, this.#grantedAt(node, claim))
    const held = this.#giveUp(claim)
    if (held !== undefined) held.isInOrder = true
    // A node that owes an answer, or is not connected, is told as well if it may have the lock: then it lets go of it
    // when it is back, and does not keep it from others until the TTL is over. If it cannot have it, nothing is sent: its
    // client would keep one command for each lock that the others grant while it is away.
    const poll = this.#ensemble.poll(async (node) => {
      if (held === undefined) await node.identify()
      if (node.isAnswering || held === undefined) return (await node.ask(itemFor(node))).reply
      if (!held.nodes.has(node)) return 'not-held'
      held.isInOrder = false
      return node.tell(itemFor(node))
    })
    const released = () => poll.count((reply) => reply === 'released')
    const notHeld = () => poll.count((reply) => reply === 'not-held')
    await poll.until(() => released() >= quorum || notHeld() > nodes.length - quorum, call)
    if (released() >= quorum || notHeld() > nodes.length - quorum) {
      this.#held.delete(claim.attempt)
      return released() >= quorum ? 'released' : 'not-held'
    }
    throw this.#ensemble.unavailable(
      `release of ${JSON.stringify(claim.name)}: released`,
      released(),
      poll,
      'unknown',
    )
  }

  /** Gives up what was granted through this object; what others of the session have is not renewed any more. */
  async close(call: Call): Promise<void> {
    this.#ensemble.begin(call)
    const { layout, quorum } = this.#ensemble
    const held = [...this.#held.values()].map(({ claim }) => claim)
    const givenUpAt = new Map<RedlockNode, number>()
    const closeAt = async (node: RedlockNode) => {
      for (let from = 0; from === 0 || from < held.length; from += CLOSED_AT_ONCE) {
        const part = held.slice(from, from + CLOSED_AT_ONCE)
        const keys = [layout.session(this.id), ...part.map(({ name }) => layout.lock(name))]
        const owners = part.map(({ owner }) => ownerText(owner))
        await node.insist(closeScript, keys, owners)
        givenUpAt.set(node, from + part.length)
        const byQuorum = [...givenUpAt.values()].sort((a, b) => b - a)[quorum - 1] ?? 0
        call.onProgress?.(held.length - byQuorum)
      }
    }
    const poll = this.#ensemble.poll(closeAt)
    await poll.until(() => poll.answered.length >= quorum, call)
    this.#held.clear()
    if (poll.answered.length < quorum)
      throw this.#ensemble.unavailable('close of the session: done', poll.answered.length, poll, 'unknown')
  }

  #giveUp({ attempt }: Claim): Held | undefined {
    const held = this.#held.get(attempt)
    if (held !== undefined) held.isOver = true
    return held
  }

  /** An attempt that was asked for twice is over when the last of them is. */
  #isOver({ claim }: Held): boolean {
    return this.#held.get(claim.owner.attempt)?.isOver ?? true
  }

  /** A node that has just been asked may have been told of the end before: what it has now would stay until its TTL. */
  #meetLateVotes(held: Held, poll: Poll<Vote>): void {
    if (!this.#isOver(held) || held.isInOrder) return
    this.#ensemble.inBackground(async () => {
      await takeBack(this.#ensemble, held.claim, poll)
    })
  }

  /**
   * With a bare majority, one server whose clock is stepped is enough for a second holder (T77). The votes that are missing
   * may be there by now: those of a rival that has given up, or of a server that is told of the session only now.
   */
  #mendMissingVotes(held: Held, poll: Poll<Vote>): void {
    const lacking = poll.answered.filter(({ value }) => value.kind === 'held' || value.kind === 'no-session')
    if (lacking.length === 0 || this.#isOver(held)) return
    const { claim, grantId } = held
    const claims = [{ name: claim.name, attempt: claim.owner.attempt, grantId }]
    for (const { node } of lacking)
      this.#ensemble.inBackground(() => this.#mend({ node, session: false, claims }))
  }

  #nodeClaim({ name, attempt }: Claim): Claimed {
    return { name, owner: { attempt, session: this.id } }
  }

  async #openAt(node: RedlockNode): Promise<void> {
    const { layout, quarantineMs } = this.#ensemble
    const args = [String(quarantineMs), String(this.ttlMs), this.#holder]
    const [runId, quarantinedForMs] = (await node.run(
      openScript,
      [bootKey, layout.session(this.id)],
      args,
    )) as readonly RedisReply[]
    node.learn(String(runId), Number(quarantinedForMs))
  }

  /** Only what is still held, and only what was granted here: of other claims the details are not known. */
  async #mend({ node, session, claims }: Lack): Promise<void> {
    if (session) await this.#openAt(node)
    await Promise.all(
      claims.map(async ({ name, attempt }) => {
        const held = this.#held.get(attempt)
        if (held === undefined) return
        held.nodes.add(node)
        try {
          const grantedAt = this.#grantedAt(node, { name, attempt, grantId: held.grantId })
          const answer = await node.ask(mendItem(this.#ensemble, held.claim, grantedAt))
          rememberVote(held, voteOf(answer))
        } finally {
          // Its release may have overtaken the mending.
          if (this.#isOver(held)) await node.tell(releaseItem(this.#ensemble, held.claim, 0, ''))
        }
      }),
    )
  }
}

/** The first time counts: a node that names another one later was reached by a copy of the request (T84). */
function rememberVote({ grantId, laterVotes }: Held, { kind, runId, grantedAt }: Vote): void {
  if (kind !== 'granted' || runId === '' || laterVotes.has(runId) || grantedAtBy(runId, grantId) !== '')
    return
  laterVotes.set(runId, grantedAt)
}
