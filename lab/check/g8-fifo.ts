/**
 * G8: first come, first served, where the engine keeps a queue; a dead waiter never blocks the living, so it may be
 * overtaken, and no other request may: also not one that would fit where the first waiter does not.
 *
 * With engine events, their replay decides. Without, a waiter that knew of its place before another asked was
 * before it; and of two grants the one with the lower token was first or, if they exclude each other, the one whose
 * acquire returned first.
 */
import { conflict } from './claims.ts'
import { Faults } from './faults.ts'
import { at, describeOperation, type Finding, Findings } from './findings.ts'
import type { EngineEvent, History, Operation } from './history.ts'
import { leasesOf, protectedUntil } from './leases.ts'

export function checkFirstComeFirstServed(history: History): Finding {
  const found = new Findings('G8')
  if (history.about.waiting !== 'queue')
    found.leaveOpen(`the engine keeps no queue (waiting: ${history.about.waiting ?? 'not said'})`)
  else if (history.engine.some(({ what }) => what === 'enqueued')) byEngine(history, found)
  else if (history.operations.some(({ queued }) => queued.length > 0)) byOperations(history, found)
  else found.leaveOpen('nobody is known to have waited')
  return found.done()
}

const leaves = new Set<EngineEvent['what']>(['left', 'released', 'expired', 'forced', 'deleted'])

function byEngine(history: History, found: Findings): void {
  const faults = new Faults(history)
  const leases = leasesOf(history)
  const processOf = ({ process, leaseId }: EngineEvent) => process ?? leases.get(leaseId ?? '')?.process ?? ''
  /** By name, the waiters, in the order of the queue. */
  const lines = new Map<string, Map<string, EngineEvent>>()

  for (const event of history.engine) {
    const { what, name, leaseId } = event
    if (name === undefined || leaseId === undefined) {
      if (what === 'gap') found.leaveOpen('engine events are missing: the line before a gap is not known')
      if (what === 'gap' || what === 'deleted') name === undefined ? lines.clear() : lines.delete(name)
      continue
    }
    const line = lines.get(name) ?? new Map<string, EngineEvent>()
    lines.set(name, line)
    if (what === 'enqueued') {
      // Asked again, it keeps its place.
      if (!line.has(leaseId)) line.set(leaseId, event)
    } else if (what === 'granted') {
      found.judged()
      const overtaken = firstLiving(line, leaseId, (waiter) => !faults.wereAt(processOf(waiter), event.at))
      const own = line.get(leaseId)
      line.delete(leaseId)
      if (overtaken !== null)
        found.violated(
          name,
          `${leaseId} of ${processOf(event)} was granted ${JSON.stringify(name)} ${at(event)} ` +
            `(${own === undefined ? 'without having waited' : `queued since ${own.at} ms`}), before ` +
            `${overtaken.leaseId} of ${processOf(overtaken)}, which had come before it ${at(overtaken)}.`,
          [leaseId, overtaken.leaseId],
        )
    } else if (leaves.has(what)) line.delete(leaseId)
  }
}

/** The first living waiter before `leaseId`. */
function firstLiving(
  line: Map<string, EngineEvent>,
  leaseId: string,
  lives: (waiter: EngineEvent) => boolean,
): EngineEvent | null {
  for (const [other, waiter] of line) {
    if (other === leaseId) return null
    if (lives(waiter)) return waiter
  }
  return null
}

function byOperations(history: History, found: Findings): void {
  const faults = new Faults(history)
  const granted = history.operations.filter(({ op, outcome }) => op === 'acquire' && outcome === 'ok')
  for (const ofName of Map.groupBy(granted, ({ name }) => name).values()) {
    // The oldest waiters come first, so that the search for one that was overtaken can stop early.
    const waited = ofName
      .filter(({ queued }) => queued.length > 0)
      .sort((one, other) => placeOf(one) - placeOf(other))
    for (const operation of ofName) {
      found.judged()
      const overtaken = waited.find(
        (other) =>
          placeOf(other) < operation.seq &&
          other.returnedSeq > operation.seq &&
          wasGrantedBefore(history, operation, other) &&
          faults.of(other.process).length === 0,
      )
      if (overtaken !== undefined)
        found.violated(
          operation.name,
          `${describeOperation(operation)} was granted before ${describeOperation(overtaken)}, which had been queued ` +
            'when it was asked for.',
          [operation.id, overtaken.id],
        )
    }
  }
}

/** Who lost its place and took another counts from the other. */
function placeOf({ queued }: Operation): number {
  return queued.at(-1)?.seq ?? Infinity
}

function wasGrantedBefore(history: History, one: Operation, other: Operation): boolean {
  if (one.leaseId === other.leaseId) return false
  if (one.token !== undefined && other.token !== undefined) return one.token < other.token
  // The other's lease had not ended when this one's acquire returned: it had not even begun for its client.
  const leases = leasesOf(history)
  const [first, second] = [leases.get(one.leaseId ?? ''), leases.get(other.leaseId ?? '')]
  if (first === undefined || second === undefined || !conflict(first.claim, second.claim)) return false
  const until = protectedUntil(second, Infinity)
  return one.returnedSeq < other.returnedSeq && until !== null && until > one.returnedAt
}
