/**
 * One try to get a majority of the nodes' votes, and how it is taken back.
 *
 * All nodes are asked at once. With a quorum of votes the answer is there, whatever the others say; without one, every
 * answer (or time-out) is awaited and what was won is given back, before anybody tries again (T25). What may go wrong:
 *
 * - The caller goes away, or this process does, before the votes are in: the first is cleaned up behind (T14), the second
 *   ends by the TTL, because nobody renews it.
 * - A node answers after its time-out (T15): it is told to abandon the attempt right behind the request. The mark that
 *   this leaves also meets a request that is overtaken by it, because the client reconnected or sent it again (T73).
 * - Two who try at once split the votes, also evenly (T24): neither has a quorum, both give back, and both try again after
 *   a pause of random length.
 * - It is released again before a node has been asked, because that one is just connecting again: the release may overtake
 *   the request. So whoever votes for what is over is told once more.
 * - The votes come in later than the TTL: core counts from before the asking, and gives the lease back (T6).
 * - A node was restarted and has forgotten that another holds the name: its votes do not count for as long as a lock from
 *   before may be believed in.
 * - Two addresses lead to one server: its vote counts once, and the try is refused.
 */

import { BackendUnavailableError } from '../../base/errors.ts'
import type { RedisReply } from '../../clients/redis/index.ts'
import type { AcquireResult, Call } from '../../spi.ts'
import { assertDistinct, type Ensemble } from './ensemble.ts'
import { grantIdOf, type Owner, ownerText } from './layout.ts'
import type { Item, ItemAnswer, RedlockNode } from './node.ts'
import type { Poll } from './poll.ts'

/** A claim as the nodes are told of it. */
export interface NodeClaim {
  readonly name: string
  readonly owner: Owner
  readonly ttlMs: number
  readonly lockDelayMs: number
  readonly details: string
}

export interface Vote {
  readonly kind: 'granted' | 'held' | 'abandoned' | 'no-session'
  /** The node's time of the grant; empty if there is none. */
  readonly grantedAt: string
  readonly runId: string
  readonly quarantinedForMs: number
  /** How long the lock of another lives yet; -1 if for ever. */
  readonly leftMs: number
  readonly heldBy: string
}

export function acquireItem(ensemble: Ensemble, claim: NodeClaim): Item {
  return { word: 'acquire', ...keysOf(ensemble, claim), args: [...wordsOf(claim), ''] }
}

/** `grantedAt`: the time of the grant that the node had made; empty if it had made none. */
export function mendItem(ensemble: Ensemble, claim: NodeClaim, grantedAt: string): Item {
  return { word: 'mend', ...keysOf(ensemble, claim), args: [...wordsOf(claim), grantedAt] }
}

function wordsOf({ owner, ttlMs, lockDelayMs, details }: NodeClaim): readonly string[] {
  return [ownerText(owner), String(ttlMs), String(lockDelayMs), details]
}

/** `grantedAt`: only the grant that the node made then; whatever the owner has there if it is empty. */
export function releaseItem(ensemble: Ensemble, claim: Claimed, keepForMs: number, grantedAt: string): Item {
  const args = [ownerText(claim.owner), String(Math.ceil(keepForMs)), grantedAt]
  return { word: 'release', ...keysOf(ensemble, claim), args }
}

/** Leaves a mark that meets a late request; one that is later than the session comes to nothing anyway. */
export function abandonItem(ensemble: Ensemble, claim: Claimed): Item {
  return { word: 'abandon', ...keysOf(ensemble, claim), args: [ownerText(claim.owner)] }
}

export type Claimed = Pick<NodeClaim, 'name' | 'owner'>

function keysOf({ layout }: Ensemble, { name, owner }: Claimed): { session: string; lock: string } {
  return { session: layout.session(owner.session), lock: layout.lock(name) }
}

export interface Tried {
  readonly result: AcquireResult<'unfenced'>
  /** The nodes that have the claim, or may have it. */
  readonly nodes: readonly RedlockNode[]
  /** The nodes that do not know the session, although most may do. */
  readonly strangers: readonly RedlockNode[]
  /** Of a grant: the votes, some of which may come in yet. */
  readonly poll: Poll<Vote>
}

export async function tryAcquire(ensemble: Ensemble, claim: NodeClaim, call: Call): Promise<Tried> {
  const since = ensemble.begin(call)
  const item = acquireItem(ensemble, claim)
  const poll = ensemble.poll(async (node) => voteOf(await node.ask(item)))
  try {
    await poll.until(() => grantedBy(poll) >= ensemble.quorum, call)
  } catch (error) {
    ensemble.inBackground(async () => {
      await poll.allIn
      await takeBack(ensemble, claim, poll)
    })
    throw error
  }
  const strangers = nodesThat(poll, 'no-session')
  try {
    assertDistinct(poll.answered.map(({ node, value }) => ({ node, runId: value.runId })))
  } catch (error) {
    await takeBack(ensemble, claim, poll)
    throw error
  }
  if (grantedBy(poll) >= ensemble.quorum) {
    const grant = {
      name: claim.name,
      attempt: claim.owner.attempt,
      grantId: grantIdOf(poll.answered.map(({ value }) => value)),
      token: null,
      since,
      ttlMs: claim.ttlMs,
    }
    const without = new Set(nodesThat(poll, 'held', 'no-session', 'abandoned'))
    // Who was certainly not asked has nothing to be told of later.
    for (const { node } of poll.failed) if (!poll.uncertain.includes(node)) without.add(node)
    const nodes = ensemble.nodes.filter((node) => !without.has(node))
    return { result: { kind: 'granted', grant }, nodes, strangers, poll }
  }
  const leftOver = await takeBack(ensemble, claim, poll)
  return { result: refusal(ensemble, claim, poll, leftOver), nodes: [], strangers, poll }
}

export function voteOf({ runId, quarantinedForMs, reply }: ItemAnswer): Vote {
  const about = { runId, quarantinedForMs }
  if (reply === 'abandoned' || reply === 'no-session')
    return { ...about, kind: reply, grantedAt: '', leftMs: 0, heldBy: '' }
  if (typeof reply === 'string') return { ...about, kind: 'granted', grantedAt: reply, leftMs: 0, heldBy: '' }
  const [leftMs, heldBy] = reply as readonly RedisReply[]
  return { ...about, kind: 'held', grantedAt: '', leftMs: Number(leftMs), heldBy: String(heldBy) }
}

/** The votes that count: of processes that have not started just now. */
function grantedBy(poll: Poll<Vote>): number {
  let granted = 0
  for (const { value } of poll.answered)
    if (value.kind === 'granted' && value.quarantinedForMs <= 0 && !isRepeated(poll, value)) granted++
  return granted
}

/** Whether an earlier answer came from the same process, under another address. */
function isRepeated(poll: Poll<Vote>, vote: Vote): boolean {
  for (const { value } of poll.answered) {
    if (value === vote) return false
    if (value.runId === vote.runId) return true
  }
  return false
}

function nodesThat(poll: Poll<Vote>, ...kinds: readonly Vote['kind'][]): readonly RedlockNode[] {
  return poll.answered.filter(({ value }) => kinds.includes(value.kind)).map(({ node }) => node)
}

/** Gives back what was won, once all votes are in. Answers on how many nodes the attempt may be left, or land yet. */
export async function takeBack(ensemble: Ensemble, claim: NodeClaim, poll: Poll<Vote>): Promise<number> {
  await poll.allIn
  const abandon = abandonItem(ensemble, claim)
  for (const node of poll.uncertain)
    ensemble.inBackground(async () => {
      await node.tell(abandon)
    })
  const release = releaseItem(ensemble, claim, 0, '')
  const outcomes = await Promise.allSettled(nodesThat(poll, 'granted').map((node) => node.ask(release)))
  return poll.uncertain.length + outcomes.filter(({ status }) => status === 'rejected').length
}

function refusal(
  ensemble: Ensemble,
  claim: NodeClaim,
  poll: Poll<Vote>,
  leftOver: number,
): AcquireResult<'unfenced'> {
  const { quorum, blocking } = ensemble
  if (poll.count(({ kind }) => kind === 'no-session') >= blocking) return { kind: 'session-gone' }
  if (poll.count(({ kind }) => kind === 'abandoned') > 0)
    throw new BackendUnavailableError('redlock', 'the attempt was abandoned', 'not-applied')
  const counting = poll.count(({ kind, quarantinedForMs }) => kind !== 'no-session' && quarantinedForMs <= 0)
  if (counting >= quorum) return { kind: 'busy', retryAfterMs: retryAfterMs(ensemble, poll) }
  // With fewer than a quorum nothing can come of what may be left; it ends by its TTL.
  const outcome = leftOver >= quorum ? 'unknown' : 'not-applied'
  throw ensemble.unavailable(`acquire of ${JSON.stringify(claim.name)}: voted`, counting, poll, outcome, {
    note: whyNotCounted(ensemble, poll),
  })
}

/** Nodes that answered and do not count, because of their age; empty if there are none. */
function whyNotCounted({ nodes, maxTtlMs }: Ensemble, poll: Poll<Vote>): string {
  const waitsMs = poll.answered.map(({ value }) => value.quarantinedForMs).filter((ms) => ms > 0)
  if (waitsMs.length === 0) return ''
  return (
    `${waitsMs.length} of ${nodes.length} answered, but have no vote yet: they started (or took over) less than maxTtlMs (${maxTtlMs} ms) ago, so ` +
    'somebody may still rely on a lock that they have forgotten. The last of them votes in ' +
    `${Math.ceil(Math.max(...waitsMs) / 1_000)} s: wait for longer than that, or use a smaller maxTtlMs in all clients; if every ` +
    "server keeps each write over a crash (appendfsync always), set persistence: 'every-write'"
  )
}

/**
 * When so many locks of others have run out that a quorum is free. If nobody has a quorum, all who tried give back at
 * once: whoever comes first after that has it, and a random pause decides who it is.
 */
function retryAfterMs({ quorum, nodeTimeoutMs, random }: Ensemble, poll: Poll<Vote>): number {
  const held = poll.answered.filter(({ value }) => value.kind === 'held').map(({ value }) => value)
  const perHolder = Map.groupBy(held, ({ heldBy }) => heldBy)
  const most = Math.max(0, ...[...perHolder.values()].map((votes) => votes.length))
  if (most + poll.failed.length < quorum) return 1 + random.fraction() * 2 * nodeTimeoutMs
  const free = poll.count(({ kind }) => kind === 'granted')
  const ends = held
    .map(({ leftMs }) => (leftMs < 0 ? Number.POSITIVE_INFINITY : leftMs))
    .sort((a, b) => a - b)
  return Math.max(1, ends[quorum - free - 1] ?? Number.POSITIVE_INFINITY)
}
