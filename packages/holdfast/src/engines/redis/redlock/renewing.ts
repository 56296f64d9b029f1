/**
 * A keep-alive: a majority must have the session, and for each claim a majority must have prolonged its lock.
 *
 * A node may have lost a lock that the majority has, because it was restarted, or because another client's try was in the way
 * when it was asked. The lock is restored there after the majority has been confirmed, not in the same step: a request that sets
 * what it does not find would bring back what has expired (T31, revived locks). So a lease outlives the restart of all nodes, one after the
 * other.
 */
import { elapsedMs } from '../../../base/clock.ts'
import { quote } from '../../../base/errors.ts'
import type { Call, GrantedClaim, KeepAliveResult, LostClaim } from '../../../spi.ts'
import { grantedAtOf, type HeldClaim } from './claim.ts'
import type { Ensemble } from './ensemble.ts'
import { ownerText } from './keys.ts'
import type { RedlockNode } from './node.ts'
import type { Poll } from './poll.ts'
import { keepAliveScript } from './scripts.ts'

/** How many locks are prolonged in one call, so that no other client waits long for the server. */
const LARGEST_CALL = 500

export interface Renewal {
  readonly session: string
  readonly ttlMs: number
  readonly listed: readonly GrantedClaim[]
  /** Claims as they are known here, by attempt. */
  readonly held: ReadonlyMap<string, HeldClaim>
}

/** Claims that a node lacks although the majority has them. */
export interface Missing {
  readonly session: boolean
  readonly attempts: readonly string[]
}

interface Kept {
  readonly knowsSession: boolean
  /** A digit for each listed claim: see `keepAliveScript`. */
  readonly digits: string
  /** The operator's reasons for force releases, by the index of the claim; empty if it is not known. */
  readonly reasons: ReadonlyMap<number, string>
}

/** `onMissing` is called for nodes that lack something, when all have answered. */
export async function renew(
  ensemble: Ensemble,
  renewal: Renewal,
  call: Call,
  onMissing: (node: RedlockNode, missing: Missing) => void,
): Promise<KeepAliveResult<'unfenced'>> {
  const since = ensemble.begin(call)
  const { listed, ttlMs } = renewal
  const { quorum, blocking } = ensemble
  const poll = ensemble.poll((node) => keepAliveAt(ensemble, node, renewal))
  const kept = (index: number) => poll.count(({ digits }) => digits[index] === '1')
  const alive = () => poll.count(({ knowsSession }) => knowsSession)
  await poll.until(() => alive() >= quorum && listed.every((_, index) => kept(index) >= quorum), call)

  if (poll.count(({ knowsSession }) => !knowsSession) >= blocking) return { kind: 'gone' }
  if (alive() < quorum)
    throw ensemble.unavailable('keep-alive: the session is known', alive(), poll, 'unknown')

  const lost: LostClaim[] = []
  for (const [index, claim] of listed.entries()) {
    const reached = kept(index)
    if (reached >= quorum) continue
    const { attempt, name } = claim
    // Nodes that did not answer could still make a majority, and then it is not lost but unknown.
    const isUnknown = reached + poll.failed.length >= quorum
    if (!isUnknown) lost.push({ attempt, ...whyLost(poll, index, blocking) })
    else if (isOverdue(ensemble, renewal, claim)) lost.push({ attempt, reason: 'unreachable' })
    else throw ensemble.unavailable(`keep-alive of ${quote(name)}: renewed`, reached, poll, 'unknown')
  }
  const isLost = new Set(lost.map(({ attempt }) => attempt))
  poll.whenAllIn(() => {
    for (const { node, value } of poll.answered) {
      const attempts = listed
        .filter(({ attempt }, index) => !isLost.has(attempt) && (value.digits[index] ?? '0') === '0')
        .map(({ attempt }) => attempt)
      if (!value.knowsSession || attempts.length > 0)
        onMissing(node, { session: !value.knowsSession, attempts })
    }
  })
  return { kind: 'alive', since, ttlMs, lost, granted: [], unlisted: [] }
}

async function keepAliveAt(
  { keys }: Ensemble,
  node: RedlockNode,
  { listed, held, session, ttlMs }: Renewal,
): Promise<Kept> {
  await node.identify()
  let digits = ''
  const reasons = new Map<number, string>()
  for (let from = 0; from === 0 || from < listed.length; from += LARGEST_CALL) {
    const part = listed.slice(from, from + LARGEST_CALL)
    const touched = [keys.session(session), ...part.map(({ name }) => keys.lock(name))]
    const owners = part.flatMap(({ attempt, grantId }) => [
      ownerText(attempt, session),
      grantedAtOf(held.get(attempt), node, grantId),
    ])
    const reply = await node.run(keepAliveScript, touched, [String(ttlMs), ...owners])
    if (reply === null) return { knowsSession: false, digits: '', reasons }
    const [some = '', ...told] = [reply].flat().map(String)
    for (const [index, digit] of [...some].entries())
      if (digit === '3') reasons.set(from + index, told.shift() ?? '')
    digits += some
  }
  return { knowsSession: true, digits, reasons }
}

/** A claim that stays unknown must not keep the others of its session from being confirmed until their time is up. */
function isOverdue({ options: { clock } }: Ensemble, renewal: Renewal, { attempt }: GrantedClaim): boolean {
  const { listed, held, ttlMs } = renewal
  const confirmedAt = held.get(attempt)?.confirmedAt
  return listed.length > 1 && (confirmedAt === undefined || elapsedMs(clock, confirmedAt) > ttlMs / 2)
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
