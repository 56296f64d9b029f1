/**
 * One try to get the votes of a majority. All nodes are asked at once. With a quorum of votes the answer is there. Without one,
 * every answer or time-out is awaited, and what was won is given back before the caller tries again (T25, leftover votes).
 *
 * - The caller goes away: what was won is given back in the background (T14, cleanup after cancelling).
 * - A node answers after its time-out (T15, late acquires): it is told to abandon the attempt behind the request. The mark also refuses a
 *   request that comes even later, because the client reconnected or sent it again (T73, late originals).
 * - Two callers split the votes, also evenly (T24, even splits): both give back, and both try again after a random pause (`retryAfterMs`).
 * - A node was restarted without its claims: its votes do not count while its quarantine lasts (`grantedBy`).
 * - The votes come in later than the TTL: core counts from before the asking, and gives the lease back (T6, late grants).
 */

import { BackendUnavailableError, quote } from '../../../base/errors.ts'
import type { AcquireResult, Call } from '../../../spi.ts'
import {
  giveUpRequest,
  isGranted,
  type NodeClaim,
  otherOwnerIn,
  releaseRequest,
  type VoteReply,
} from './claim.ts'
import { assertDistinct, type Ensemble } from './ensemble.ts'
import type { ClaimRequest } from './node.ts'
import type { Poll } from './poll.ts'

/** The votes when a majority has granted it, or all are in. */
export async function askForVotes(
  ensemble: Ensemble,
  claim: NodeClaim,
  request: ClaimRequest,
  call: Call,
): Promise<Poll<VoteReply>> {
  const votes = ensemble.pollWith<VoteReply>((node, answer) => node.ask(request, answer))
  try {
    await votes.until(() => grantedBy(votes) >= ensemble.quorum, call)
  } catch (error) {
    ensemble.inBackground(async () => {
      await votes.allIn()
      await takeBack(ensemble, claim, votes)
    })
    throw error
  }
  try {
    assertDistinct(votes.answered.map(({ node }) => node))
  } catch (error) {
    await takeBack(ensemble, claim, votes)
    throw error
  }
  return votes
}

/** The votes that count: of processes that have not started just now. */
export function grantedBy(votes: Poll<VoteReply>): number {
  let granted = 0
  for (const { node, value } of votes.answers) if (isGranted(value) && node.quarantinedForMs === 0) granted++
  return granted
}

/** Answers at how many nodes something may be left. */
async function takeBack(ensemble: Ensemble, claim: NodeClaim, votes: Poll<VoteReply>): Promise<number> {
  const abandon = giveUpRequest('abandon', claim)
  for (const { node, isUncertain } of votes.answers)
    if (isUncertain) ensemble.inBackground(() => node.request(abandon))
  const release = releaseRequest(claim, 0)
  const releasing = ensemble.pollWith<VoteReply>((node, answer) => {
    if (isGranted(votes.answers[node.index]?.value)) node.ask(release, answer)
    else answer.answered(null)
  })
  await releasing.allIn()
  return votes.uncertain + releasing.failed.length
}

/** The answer of a try without a majority, when it has been taken back. */
export async function refused(
  ensemble: Ensemble,
  claim: NodeClaim,
  votes: Poll<VoteReply>,
): Promise<AcquireResult<'unfenced'>> {
  const { quorum, blocking } = ensemble
  const left = await takeBack(ensemble, claim, votes)
  if (votes.count((reply) => reply === 'no-session') >= blocking) return { kind: 'session-gone' }
  if (votes.count((reply) => reply === 'abandoned') > 0)
    throw new BackendUnavailableError('redlock', 'the attempt was abandoned', 'not-applied')
  const counting = votes.answered.filter(
    ({ node, value }) => value !== 'no-session' && node.quarantinedForMs === 0,
  ).length
  if (counting >= quorum) return { kind: 'busy', retryAfterMs: retryAfterMs(ensemble, votes) }
  // With fewer than a quorum nothing can come of what may be left; it ends by its TTL.
  const outcome = left >= quorum ? 'unknown' : 'not-applied'
  const what = `acquire of ${quote(claim.name)}: voted`
  throw ensemble.unavailable(what, counting, votes, outcome, whyNotCounted(ensemble, votes))
}

/** Nodes that answered and do not count, because of their age; empty if there are none. */
function whyNotCounted({ nodes, options: { maxTtlMs } }: Ensemble, votes: Poll<VoteReply>): string {
  const waitsMs = votes.answered.map(({ node }) => node.quarantinedForMs).filter((ms) => ms > 0)
  if (waitsMs.length === 0) return ''
  return (
    `${waitsMs.length} of ${nodes.length} answered, but have no vote yet: they started (or took over) less than maxTtlMs (${maxTtlMs} ms) ago, so ` +
    'another client may still rely on a lock that they have forgotten. The last of them votes in ' +
    `${Math.ceil(Math.max(...waitsMs) / 1_000)} s: wait for longer than that, or use a smaller maxTtlMs in all clients; if every ` +
    "server keeps each write over a crash (appendfsync always), set persistence: 'every-write'"
  )
}

/**
 * When so many locks of others have run out that a quorum is free. If no client has a quorum, all of them give back at once, and
 * a random pause decides which one comes first.
 */
function retryAfterMs({ quorum, options }: Ensemble, votes: Poll<VoteReply>): number {
  const others = votes.answered.map(({ value }) => otherOwnerIn(value)).filter((other) => other !== null)
  const perOwner = Map.groupBy(others, ({ owner }) => owner)
  const most = Math.max(0, ...[...perOwner.values()].map(({ length }) => length))
  if (most + votes.failed.length < quorum) return 1 + options.random.fraction() * 2 * options.nodeTimeoutMs
  const free = votes.count(isGranted)
  const ends = others
    .map(({ leftMs }) => (leftMs < 0 ? Number.POSITIVE_INFINITY : leftMs))
    .sort((a, b) => a - b)
  return Math.max(1, ends[quorum - free - 1] ?? Number.POSITIVE_INFINITY)
}
