/**
 * A keep-alive: a majority must have the session, and for each claim a majority must have prolonged its lock.
 *
 * What may go wrong: a node has lost a lock that the majority has (it was restarted, or another's try was in the way when
 * it was asked). It is set there again, *after* the majority has been confirmed and not in the same step, because a
 * request that sets what it does not find would bring back what has expired (T31). So a lease outlives any number of
 * restarts, one after the other. If the mending comes so late that the lease is over, it meets the mark of an abandoned
 * attempt, or ends by its TTL on a node that alone decides nothing.
 */
import type { Instant } from '../../base/clock.ts'
import { elapsedMs } from '../../base/clock.ts'
import type { Call, Claim, GrantedClaim, KeepAliveResult, LostClaim } from '../../spi.ts'
import type { Ensemble } from './ensemble.ts'
import { ownerText } from './layout.ts'
import type { RedlockNode } from './node.ts'
import type { Poll } from './poll.ts'
import { keepAliveScript } from './scripts.ts'

/** How many locks are prolonged in one call, so that nobody else waits long for the server. */
const LARGEST_CALL = 500

export interface Renewal {
  readonly session: string
  readonly ttlMs: number
  readonly held: readonly GrantedClaim[]
  /** When this node made the grant; empty if that is not known. */
  grantedAt(node: RedlockNode, claim: GrantedClaim): string
  /** When a claim was last confirmed, if that is known here. */
  confirmedAt(claim: Claim): Instant | undefined
}

export interface Renewed {
  readonly result: KeepAliveResult<'unfenced'>
  /** What each of the nodes that answered lacks of what the majority has; all of it if it does not know the session. */
  readonly lacking: Promise<readonly Lack[]>
}

export interface Lack {
  readonly node: RedlockNode
  readonly session: boolean
  readonly claims: readonly GrantedClaim[]
}

interface Kept {
  readonly knowsSession: boolean
  /** A digit for each listed claim: see `keepAliveScript`. */
  readonly digits: string
  /** Of those that were released by force, by their index: what the operator said; empty if it is not known. */
  readonly reasons: ReadonlyMap<number, string>
}

export async function renew(ensemble: Ensemble, renewal: Renewal, call: Call): Promise<Renewed> {
  const since = ensemble.begin(call)
  const { held, ttlMs } = renewal
  const { quorum, blocking } = ensemble
  const poll = ensemble.poll((node) => keepAliveAt(ensemble, node, renewal))
  const kept = (index: number) => poll.count(({ digits }) => digits[index] === '1')
  const alive = () => poll.count(({ knowsSession }) => knowsSession)
  await poll.until(() => alive() >= quorum && held.every((_, index) => kept(index) >= quorum), call)

  const nothing: Promise<readonly Lack[]> = Promise.resolve([])
  if (poll.count(({ knowsSession }) => !knowsSession) >= blocking)
    return { result: { kind: 'gone' }, lacking: nothing }
  if (alive() < quorum)
    throw ensemble.unavailable('keep-alive: the session is known', alive(), poll, 'unknown')

  const lost: LostClaim[] = []
  for (const [index, claim] of held.entries()) {
    const reached = kept(index)
    if (reached >= quorum) continue
    // Nodes that did not answer could still make a majority, and then it is not lost but unknown.
    const isUnknown = reached + poll.failed.length >= quorum
    if (!isUnknown) lost.push({ attempt: claim.attempt, ...whyLost(poll, index, blocking) })
    else if (!isOverdue(ensemble, renewal, claim))
      throw ensemble.unavailable(
        `keep-alive of ${JSON.stringify(claim.name)}: renewed`,
        reached,
        poll,
        'unknown',
      )
    else lost.push({ attempt: claim.attempt, reason: 'unreachable' })
  }
  const over = new Set(lost.map(({ attempt }) => attempt))
  return {
    result: { kind: 'alive', since, ttlMs, lost, granted: [], unlisted: [] },
    lacking: poll.allIn.then(() => lackingAt(poll, held, over)),
  }
}

async function keepAliveAt(
  { layout }: Ensemble,
  node: RedlockNode,
  { held, session, ttlMs, grantedAt }: Renewal,
): Promise<Kept> {
  await node.identify()
  let digits = ''
  const reasons = new Map<number, string>()
  for (let from = 0; from === 0 || from < held.length; from += LARGEST_CALL) {
    const part = held.slice(from, from + LARGEST_CALL)
    const keys = [layout.session(session), ...part.map(({ name }) => layout.lock(name))]
    const owners = part.flatMap((claim) => [
      ownerText({ attempt: claim.attempt, session }),
      grantedAt(node, claim),
    ])
    const reply = await node.run(keepAliveScript, keys, [String(ttlMs), ...owners])
    if (reply === null) return { knowsSession: false, digits: '', reasons }
    const [some, ...told] = [reply].flat().map(String)
    for (const [index, digit] of [...(some ?? '')].entries())
      if (digit === '3') reasons.set(from + index, told.shift() ?? '')
    digits += some
  }
  return { knowsSession: true, digits, reasons }
}

/** A claim that stays unknown must not keep the others of its session from being confirmed until their time is up. */
function isOverdue({ clock }: Ensemble, renewal: Renewal, claim: Claim): boolean {
  const confirmedAt = renewal.confirmedAt(claim)
  const others = renewal.held.length > 1
  return others && (confirmedAt === undefined || elapsedMs(clock, confirmedAt) > renewal.ttlMs / 2)
}

function whyLost(poll: Poll<Kept>, index: number, blocking: number): Omit<LostClaim, 'attempt'> {
  const reasons = poll.answered
    .map(({ value }) => value.reasons.get(index))
    .filter((each) => each !== undefined)
  if (reasons.length > 0) {
    const detail = reasons.find((reason) => reason !== '')
    return { reason: 'force-released', ...(detail !== undefined && { detail }) }
  }
  const isTaken = poll.count(({ digits }) => digits[index] === '2') >= blocking
  return { reason: isTaken ? 'taken-over' : 'deleted' }
}

function lackingAt(
  poll: Poll<Kept>,
  held: readonly GrantedClaim[],
  over: ReadonlySet<string>,
): readonly Lack[] {
  return poll.answered
    .map(({ node, value }) => ({
      node,
      session: !value.knowsSession,
      claims: held.filter(({ attempt }, index) => !over.has(attempt) && (value.digits[index] ?? '0') === '0'),
    }))
    .filter(({ session, claims }) => session || claims.length > 0)
}
