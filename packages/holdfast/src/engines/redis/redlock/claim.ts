/** A claim as the nodes are told of it, and what they have made of it. */

import type { Instant } from '../../../base/clock.ts'
import type { Claim } from '../../../spi.ts'
import type { RedisReply, RedisScript } from '../client/index.ts'
import { grantedAtBy, grantIdOf, sharesVote } from './keys.ts'
import type { ClaimRequest, RedlockNode } from './node.ts'
import type { Poll } from './poll.ts'
import { claimsScript, releaseScript, voteScript } from './scripts.ts'

/** An attempt of a session, with its two keys, and the start of its locks. */
export interface NodeClaim extends Claim {
  readonly session: string
  readonly lock: string
  readonly owner: string
}

/** A node's vote, the answer to an `acquire`: the time of the grant, or a refusal. */
export type VoteReply = RedisReply

export function isGranted(reply: VoteReply | undefined): reply is string {
  return typeof reply === 'string' && reply !== 'no-session' && reply !== 'abandoned'
}

/** The lock of another owner: how long it lives yet (-1: for ever), and the start of its value. */
export function otherOwnerIn(reply: VoteReply): { readonly leftMs: number; readonly owner: string } | null {
  return Array.isArray(reply) ? { leftMs: Number(reply[0]), owner: String(reply[1]) } : null
}

/** `terms`: TTL, lock-delay and details. `grantedAt`: of the grant that the node had made, to restore it. */
export function acquireRequest(
  { session, lock, owner }: NodeClaim,
  terms: readonly string[],
  grantedAt?: (node: RedlockNode) => string,
): ClaimRequest {
  if (grantedAt !== undefined) {
    const argsFor = (node: RedlockNode) => [owner, ...terms, grantedAt(node)]
    return { operation: 'restore', session, lock, argsFor }
  }
  const args = [owner, ...terms, '']
  return { operation: 'acquire', session, lock, argsFor: () => args }
}

/** `grantedAt`: only the grant that the node made then; without it, any grant of the attempt. */
export function releaseRequest(
  { session, lock, owner }: NodeClaim,
  keepForMs: number,
  grantedAt: (node: RedlockNode) => string = () => '',
): ClaimRequest {
  const keep = String(Math.ceil(keepForMs))
  return { operation: 'release', session, lock, argsFor: (node) => [owner, keep, grantedAt(node)] }
}

/** `abandon` leaves a mark, so that a late request is refused. `close` ends the session as well. */
export function giveUpRequest(
  operation: 'abandon' | 'close',
  { session, lock, owner }: NodeClaim,
): ClaimRequest {
  return { operation, session, lock, argsFor: () => [owner] }
}

interface ClaimCall {
  readonly script: RedisScript
  readonly keys: readonly string[]
  readonly args: readonly string[]
}

/** One call for these requests. `runId`: empty if no vote is asked for. */
export function callOf(requests: readonly ClaimRequest[], node: RedlockNode, runId: string): ClaimCall {
  const [first] = requests
  const alone = requests.length === 1 && first !== undefined ? shortCallOf(first, node, runId) : undefined
  if (alone !== undefined) return alone
  const keys: string[] = []
  const args = [runId]
  for (const request of requests) {
    keys.push(request.session, request.lock)
    args.push(request.operation, ...request.argsFor(node))
  }
  return { script: claimsScript, keys, args }
}

function shortCallOf(request: ClaimRequest, node: RedlockNode, runId: string): ClaimCall | undefined {
  const { operation, session, lock } = request
  if (operation === 'acquire') {
    const [owner = '', ttl = '', delay, details = ''] = request.argsFor(node)
    if (delay !== '0' || runId === '') return undefined
    return { script: voteScript, keys: [session, lock], args: [runId, owner, ttl, details] }
  }
  if (operation !== 'release') return undefined
  const [owner, keep, grantedAt] = request.argsFor(node)
  if (keep !== '0' || grantedAt === '') return undefined
  return { script: releaseScript, keys: [session, lock], args: [`${owner}0|${grantedAt}|`] }
}

/** A claim that was granted through this session object. */
export class HeldClaim {
  readonly claim: NodeClaim
  readonly grantId: string
  /** The claim may be lost; that is unknown until a keep-alive says so. */
  confirmedAt: Instant
  /** The claim is being given up, so that it is not restored any more. */
  isOver = false
  readonly #terms: readonly string[]
  readonly #votes: Poll<VoteReply>
  /** By the index of the node: times of its grant that are not in the votes. */
  readonly #times: string[] = []
  /** Where it was restored; rarely any. */
  #restored: readonly RedlockNode[] = []

  /** `earlier`: the same attempt, which was granted before. Other nodes may have answered first; it is the same grant. */
  constructor(
    claim: NodeClaim,
    terms: readonly string[],
    votes: Poll<VoteReply>,
    since: Instant,
    earlier?: HeldClaim,
  ) {
    this.claim = claim
    this.confirmedAt = since
    this.#terms = terms
    this.#votes = votes
    const granted = votes.answers.filter(({ value }) => isGranted(value))
    const grantId = grantIdOf(
      granted.map(({ node, value }) => ({ runId: node.runId, grantedAt: String(value) })),
    )
    const isSame = earlier !== undefined && sharesVote(earlier.grantId, grantId)
    this.grantId = isSame ? earlier.grantId : grantId
    if (isSame) this.#times = votes.answers.map(({ node }) => earlier.grantedAt(node))
  }

  /** When the node made the grant; empty if it did not. */
  grantedAt({ index }: RedlockNode): string {
    const vote = this.#votes.answers[index]?.value
    return this.#times[index] || (isGranted(vote) ? vote : '')
  }

  /** Certainly: the node refused it or was not asked, and it was not restored there. */
  isNotAt(node: RedlockNode): boolean {
    const vote = this.#votes.answers[node.index]
    if (vote === undefined || vote.state === 'pending' || this.#restored.includes(node)) return false
    return vote.state === 'answered' ? !isGranted(vote.value) : !vote.isUncertain
  }

  /** Sets the lock at a node that has none. The lane keeps this before a release that comes later. */
  async restoreAt(node: RedlockNode): Promise<void> {
    this.#restored = [...this.#restored, node]
    const grantedAt = () => this.grantedAt(node)
    const reply = await node.request(acquireRequest(this.claim, this.#terms, grantedAt))
    // The first time counts: a node that names another one later was reached by a copy of the request (T84, late duplicates).
    if (isGranted(reply)) this.#times[node.index] ||= this.grantedAt(node) || reply
  }
}

/** When a node made a grant that this session object has not seen; empty if that is not known. */
export function grantedAtOf(held: HeldClaim | undefined, node: RedlockNode, grantId: string): string {
  return held?.grantId === grantId ? held.grantedAt(node) : grantedAtBy(node.runId, grantId)
}
