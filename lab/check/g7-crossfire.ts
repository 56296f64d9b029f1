/**
 * G7: a late release, renewal, close or force release never touches a successor.
 *
 *   by the engine      what it released, renewed or forced is what the operation behind it was aimed at; and nothing is
 *                      released or forced without a request
 *   by the clients     no client is told that a lease was released, renewed or forced after its name had gone to another
 *   by the victims     no client loses a lease before its time unless it was ended
 */
import { at, describeOperation, type Finding, Findings, ms } from './findings.ts'
import type { EngineEvent, History, Operation } from './history.ts'
import { isAimedAt, type Lease, leasesOf, protectedUntil } from './leases.ts'
import { Succession } from './succession.ts'

export function checkCrossfire(history: History): Finding {
  const found = new Findings('G7')
  byEngine(history, found)
  byClients(history, found)
  byVictims(history, found)
  if (history.operations.every(({ op }) => !endings.has(op)))
    found.leaveOpen('nobody has released or renewed anything')
  return found.done()
}

const endings = new Set<Operation['op']>(['release', 'renew', 'abandon', 'close', 'force-release'])
const touched = new Set<EngineEvent['what']>(['released', 'renewed', 'forced'])

function byEngine(history: History, found: Findings): void {
  const leases = leasesOf(history)
  const operations = new Map(history.operations.map((operation) => [operation.id, operation]))
  const forces = Map.groupBy(
    history.operations.filter(({ op, outcome }) => op === 'force-release' && outcome !== 'fail'),
    ({ name }) => name,
  )
  const closes = Map.groupBy(
    history.operations.filter(({ op }) => op === 'close'),
    ({ process }) => process,
  )
  for (const event of history.engine) {
    const lease = leases.get(event.leaseId ?? '')
    if (!touched.has(event.what) || lease === undefined) continue
    const by = event.by === undefined ? undefined : operations.get(event.by)
    if (by !== undefined) {
      found.judged()
      if (!isMeantFor(by, lease))
        found.violated(lease.name, `${describeOperation(by)} hit ${describeEvent(event, lease)}.`, [
          by.id,
          lease.id,
        ])
    } else if (event.what !== 'renewed') {
      found.judged()
      const fromOutside =
        event.what === 'forced'
          ? (forces.get(lease.name) ?? []).filter((force) => isAimedAt(force, lease))
          : (closes.get(lease.process) ?? [])
      if (!mayHaveEnded(event, lease) && fromOutside.every(({ seq }) => seq > event.seq))
        found.violated(lease.name, `${describeEvent(event, lease)}: nobody had asked for that.`, [lease.id])
    }
  }
}

function isMeantFor(operation: Operation, lease: Lease): boolean {
  if (operation.op === 'close') return operation.process === lease.process
  if (operation.op === 'force-release') return isAimedAt(operation, lease)
  return operation.leaseId === lease.id
}

/** Whether its own client can have been the cause. */
function mayHaveEnded(event: EngineEvent, lease: Lease): boolean {
  if (event.what === 'forced') return false
  const { acquire, belief } = lease
  // An acquire that did not succeed is undone behind the scenes; and so is what its client has stopped believing in.
  if (acquire === undefined || acquire.outcome !== 'ok') return true
  if (belief?.ended && belief.ended.seq < event.seq) return true
  return lease.operations.some(({ op, seq }) => (op === 'release' || op === 'abandon') && seq < event.seq)
}

function byClients(history: History, found: Findings): void {
  const succession = new Succession(history)
  const leases = leasesOf(history)
  const names = Map.groupBy(leases.values(), ({ name }) => name)
  for (const operation of history.operations) {
    if (operation.outcome !== 'ok' || !endings.has(operation.op) || operation.op === 'close') continue
    if (operation.op === 'abandon') continue
    const targets =
      operation.op === 'force-release'
        ? targetsOf(operation, names.get(operation.name) ?? [])
        : [leases.get(operation.leaseId ?? '')]
    found.judged()
    // Aimed at several, it may have met any of them that was not over.
    const over = targets.map((target) => target && overBefore(target, operation, succession))
    if (over.length === 0 || !over.every((each) => each !== undefined)) continue
    found.violated(
      operation.name,
      `${describeOperation(operation)} said that it took effect, but before it was asked for ${over.join(' and ')}.`,
      [operation.id, ...targets.map((target) => target?.id)],
    )
  }
}

/** Why there was certainly nothing left of the lease to touch; undefined if there may have been. */
function overBefore(target: Lease, operation: Operation, succession: Succession): string | undefined {
  const successor = succession.successorOf(target, operation.seq)
  if (successor !== null) return `${describeLease(successor)} had got the name after ${target.id}`
  const released = operation.op === 'release' ? null : releasedBefore(target, operation)
  return released === null ? undefined : `${describeOperation(released)} had released ${target.id}`
}

/** The leases that a force release can have meant, if it said that it ended some. Unaimed ones mean anybody. */
function targetsOf(force: Operation, leases: readonly Lease[]): readonly Lease[] {
  if (force.count === 0 || (force.leaseId ?? force.token ?? force.target) === undefined) return []
  const asked = leases.filter((lease) => lease.acquire === undefined || lease.acquire.seq < force.returnedSeq)
  return asked.filter((lease) => isAimedAt(force, lease))
}

function releasedBefore({ operations }: Lease, operation: Operation): Operation | null {
  const isOver = ({ op, outcome, returnedSeq }: Operation) =>
    op === 'release' && outcome === 'ok' && returnedSeq < operation.seq
  // A re-entrant lease is released as often as it was acquired.
  const acquires = operations.filter(({ op, outcome }) => op === 'acquire' && outcome !== 'fail').length
  const over = operations.filter(isOver)
  return over.length >= acquires ? (over.at(-1) ?? null) : null
}

const endedByOthers = new Set(['taken-over', 'deleted', 'force-released'])

function byVictims(history: History, found: Findings): void {
  for (const lease of leasesOf(history).values()) {
    const ended = lease.belief?.ended
    if (ended?.why !== 'lost' || !endedByOthers.has(ended.reason ?? '')) continue
    found.judged()
    const until = protectedUntil(lease, ended.seq) ?? -Infinity
    const excused = lease.givenUp !== null && lease.givenUp.seq < ended.seq
    if (ended.at >= until || excused || lease.engine.some(({ what }) => what === 'deleted')) continue
    found.violated(
      lease.name,
      `${lease.process} lost ${lease.id} on ${JSON.stringify(lease.name)} ${at(ended)} (${ended.reason}); it had time ` +
        `until ${ms(until)}, and nobody on record has ended it.`,
      [lease.id],
    )
  }
}

function describeLease(lease: Lease): string {
  return lease.acquire === undefined ? `${lease.id} of ${lease.process}` : describeOperation(lease.acquire)
}

function describeEvent(event: EngineEvent, lease: Lease): string {
  return `${lease.id} of ${lease.process} on ${JSON.stringify(lease.name)} (${event.what} ${at(event)})`
}
