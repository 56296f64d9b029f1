/**
 * The operations of a history as acts on the model of a lock.
 *
 * A lease that is not known to have been released ends by its time, by force or by accident. That is an act too: at
 * the moment that is on record, or else one that may happen from the first moment at which it may have.
 */
import { describeOperation, ms } from '../findings.ts'
import type { EngineEvent, History, Operation } from '../history.ts'
import { type Lease, leasesOf, protectedUntil } from '../leases.ts'
import { placeOf } from '../tenures.ts'
import type { Act } from './model.ts'
import type { LockCall } from './models/call.ts'

export interface FromHistoryOptions {
  /** Who owns what it acquires: each lease by itself (the default), or the process, which may then re-enter. */
  readonly owner?: 'lease' | 'process'
}

export function lockActs(history: History, { owner = 'lease' }: FromHistoryOptions = {}): Act<LockCall>[] {
  return [...leasesOf(history).values()].flatMap((lease) => {
    const who = owner === 'lease' ? lease.id : lease.process
    const acts = lease.operations.filter(isAct).map((operation) => actOf(operation, lease, who))
    return [...acts, ...endsOf(history, lease, who)]
  })
}

/** A release that is not certain is covered by the ways in which the lease may have ended. */
function isAct({ op, outcome }: Operation): boolean {
  return op === 'acquire' ? outcome !== 'fail' : op === 'release' && outcome === 'ok'
}

function actOf(operation: Operation, { name, claim }: Lease, owner: string): Act<LockCall> {
  const { seq, returnedSeq, outcome, token } = operation
  const kind = operation.op === 'acquire' ? 'acquire' : 'release'
  const certain = outcome === 'ok'
  return {
    name,
    call: {
      kind,
      owner,
      weight: claim.weight,
      ...(token === undefined || kind === 'release' ? {} : { token }),
    },
    invoked: seq,
    returned: certain ? returnedSeq : Infinity,
    certain,
    label: () => describeOperation(operation),
  }
}

function endsOf(history: History, lease: Lease, owner: string): Act<LockCall>[] {
  const count = (kind: Operation['op']) =>
    lease.operations.filter(({ op, outcome }) => op === kind && outcome === 'ok').length
  const open = count('acquire') - count('release')
  const { acquire, name, claim } = lease
  if (acquire?.outcome !== 'ok') return []
  const known = engineEnd(lease)
  // A lease that its owner has released needs no other end; but the engine may say that it had ended by then.
  if (open <= 0 && (known === undefined || known.what === 'released')) return []
  const end =
    known === undefined ? possibleEnd(history, lease, acquire) : knownEnd(history, lease, acquire, known)
  const call = { kind: 'release', owner, weight: claim.weight } as const
  // Re-entered, it ends as a whole.
  return Array.from({ length: Math.max(open, 1) }, () => ({ name, call, ...end }))
}

type End = Pick<Act<LockCall>, 'invoked' | 'returned' | 'certain' | 'label'>

function knownEnd({ about }: History, lease: Lease, acquire: Operation, { seq, what, at }: EngineEvent): End {
  const label = () => `${lease.id} of ${lease.process} was ${what} by ${ms(at)}`
  return { invoked: about.engineTimes === 'exact' ? seq : acquire.seq, returned: seq, certain: true, label }
}

function possibleEnd(history: History, lease: Lease, acquire: Operation): End {
  const until = protectedUntil(lease, Infinity)
  const expiry = until === null ? acquire.seq : placeOf(history, until)
  const invoked = Math.min(expiry, lease.givenUp?.seq ?? Infinity)
  const from = invoked === expiry ? (until ?? acquire.at) : (lease.givenUp?.at ?? acquire.at)
  const label = () => `${lease.id} of ${lease.process} may have ended from ${ms(from)} on`
  return { invoked, returned: Infinity, certain: false, label }
}

const ends = new Set<EngineEvent['what']>(['released', 'expired', 'forced', 'deleted'])

/** Of the grant that its owner was told of: a late copy of the request can be granted once more (T84, late duplicates). */
function engineEnd({ engine, acquire }: Lease): EngineEvent | undefined {
  const told = acquire?.token
  const granted = engine.findIndex(
    ({ what, token }) => what === 'granted' && (told === undefined || token === undefined || token === told),
  )
  return granted < 0 ? undefined : engine.slice(granted).find(({ what }) => ends.has(what))
}
