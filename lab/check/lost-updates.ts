/**
 * No acknowledged update is lost: what was acknowledged is in the resource in the end, once; what is unknown may be;
 * what failed is not.
 *
 *   counter    the sum of what was added, with room for the unknown
 *   log        each acknowledged entry once, no failed one, none that no client wrote
 *   register   no two acknowledged updates were based on the same value: one of them overwrote the other
 */
import { describeOperation, type Finding, Findings } from './findings.ts'
import type { FinalEvent, History, Operation } from './history.ts'

export function checkLostUpdates(history: History): Finding {
  const found = new Findings('lost-updates')
  const updates = history.operations.filter(({ op }) => op === 'update' || op === 'write')
  if (updates.length === 0) found.leaveOpen('nothing was updated')
  for (const [resource, ofResource] of Map.groupBy(updates, ({ resource, name }) => resource ?? name)) {
    const final = history.finals.findLast((each) => each.resource === resource)
    checkCounter(
      resource,
      ofResource.filter(({ delta }) => delta !== undefined),
      final,
      found,
    )
    checkLog(
      resource,
      ofResource.filter(({ entry }) => entry !== undefined),
      final,
      found,
    )
    checkRegister(resource, ofResource, final, found)
    const blank = ofResource.filter(
      ({ delta, entry, saw, wrote }) => (delta ?? entry ?? saw ?? wrote) === undefined,
    )
    if (blank.length > 0) found.leaveOpen('an update does not say what it did', blank.length)
  }
  return found.done()
}

function checkCounter(
  resource: string,
  updates: readonly Operation[],
  final: FinalEvent | undefined,
  found: Findings,
): void {
  if (updates.length === 0) return
  if (final?.total === undefined) {
    found.leaveOpen('the final value of a counter is not on record', updates.length)
    return
  }
  found.judged(updates.length)
  const sum = (chosen: readonly Operation[]) => chosen.reduce((total, { delta = 0 }) => total + delta, 0)
  const acknowledged = updates.filter(({ outcome }) => outcome === 'ok')
  const unknown = updates.filter(({ outcome }) => outcome === 'unknown')
  const certain = (final.initial ?? 0) + sum(acknowledged)
  const least = certain + sum(unknown.filter(({ delta = 0 }) => delta < 0))
  const most = certain + sum(unknown.filter(({ delta = 0 }) => delta > 0))
  if (final.total >= least && final.total <= most) return
  const expected = least === most ? `${least}` : `${least} to ${most}`
  const what =
    final.total < least ? `${least - final.total} are lost` : `${final.total - most} came from nowhere`
  found.violated(
    resource,
    `${resource} ends at ${final.total} instead of ${expected}: after ${acknowledged.length} acknowledged and ` +
      `${unknown.length} unknown updates, ${what}. The last acknowledged: ${describeLast(acknowledged)}.`,
    acknowledged.slice(-5).map(({ id }) => id),
  )
}

function describeLast(operations: readonly Operation[]): string {
  return operations.slice(-3).map(describeOperation).join('; ') || 'none'
}

function checkLog(
  resource: string,
  updates: readonly Operation[],
  final: FinalEvent | undefined,
  found: Findings,
): void {
  if (updates.length === 0) return
  if (final?.entries === undefined) {
    found.leaveOpen('the entries of a log are not on record', updates.length)
    return
  }
  found.judged(updates.length)
  const times = new Map<string, number>()
  for (const entry of final.entries) times.set(entry, (times.get(entry) ?? 0) + 1)
  const known = new Set<string>()
  for (const update of updates) {
    const { entry = '', outcome } = update
    const there = times.get(entry) ?? 0
    const complain = (what: string) =>
      found.violated(resource, `${describeOperation(update)}: its entry ${JSON.stringify(entry)} ${what}.`, [
        update.id,
      ])
    if (known.has(entry)) complain('was written by another before, so that they cannot be told apart')
    known.add(entry)
    if (outcome === 'ok' && there === 0) complain(`is not in ${resource}, although it was acknowledged`)
    if (outcome === 'fail' && there > 0) complain(`is in ${resource}, although it failed`)
    if (there > 1) complain(`is in ${resource} ${there} times`)
  }
  for (const entry of times.keys())
    if (!known.has(entry))
      found.violated(resource, `${resource} has an entry ${JSON.stringify(entry)} that nobody wrote.`, [])
}

function checkRegister(
  resource: string,
  updates: readonly Operation[],
  final: FinalEvent | undefined,
  found: Findings,
): void {
  const acknowledged = updates.filter(({ outcome, saw }) => outcome === 'ok' && saw !== undefined)
  const bases = new Map<string, Operation>()
  for (const update of acknowledged) {
    found.judged()
    const { saw = '' } = update
    const other = bases.get(saw)
    if (other !== undefined)
      found.violated(
        resource,
        `${describeOperation(other)} and ${describeOperation(update)} were both based on ${JSON.stringify(saw)}: one is lost.`,
        [other.id, update.id],
      )
    bases.set(saw, update)
  }
  checkEndOfChain(resource, updates, acknowledged, final, found)
}

/** Following the bases back from the final value must meet every acknowledged update. */
function checkEndOfChain(
  resource: string,
  updates: readonly Operation[],
  acknowledged: readonly Operation[],
  final: FinalEvent | undefined,
  found: Findings,
): void {
  const chained = acknowledged.filter(({ wrote }) => wrote !== undefined)
  if (chained.length === 0) return
  if (final?.value === undefined) {
    found.leaveOpen('the final value of a register is not on record', chained.length)
    return
  }
  const writers = new Map<string, Operation>()
  for (const update of updates) if (update.wrote !== undefined) writers.set(update.wrote, update)
  const met = new Set<Operation>()
  for (let next = writers.get(final.value); next && !met.has(next); next = writers.get(next.saw ?? ''))
    met.add(next)
  for (const update of chained)
    if (!met.has(update))
      found.violated(
        resource,
        `${describeOperation(update)} wrote ${JSON.stringify(update.wrote)}, which nothing up to the final value ` +
          `${JSON.stringify(final.value)} is based on: it is lost.`,
        [update.id],
      )
}
