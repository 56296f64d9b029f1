/**
 * G5: once a guard has seen a fence, in a read or a write, it accepts none that is older.
 *
 *   exclusive   accepted if its token is greater than every token seen, or equal with the same grant
 *   shared      accepted if its token is greater than the highest exclusive one seen
 *
 * Guard events stand in the guard's own order and are replayed by a model that remembers everything. Operations
 * that went through a guard say less: one that returned before another was invoked was judged before it.
 */
import { at, describeOperation, type Finding, Findings } from './findings.ts'
import type { GuardEvent, History, Operation } from './history.ts'

export function checkGuard(history: History): Finding {
  const found = new Findings('G5')
  const guarded = history.operations.filter(isAccepted)
  if (history.guard.length === 0 && guarded.length === 0) found.leaveOpen('nothing went through a guard')

  const place = ({ guard, name }: { guard: string; name: string }) => JSON.stringify([guard, name])
  for (const events of Map.groupBy(history.guard, place).values()) replay(history, events, found)
  for (const operations of Map.groupBy(guarded, place).values()) compareInOrder(history, operations, found)
  return found.done()
}

/** One guard's memory of one name. */
class Memory {
  highest: GuardEvent | null = null
  highestExclusive: GuardEvent | null = null
  readonly #used = new Set<string>()

  add(event: GuardEvent): void {
    if (this.highest === null || event.token > this.highest.token) this.highest = event
    if (event.mode !== 'shared' && event.token >= (this.highestExclusive?.token ?? 0n))
      this.highestExclusive = event
    this.#used.add(`${event.token} ${event.leaseId}`)
  }

  /** The earlier fence that speaks against this one, and how. Null if this one is to be accepted. */
  against(
    event: GuardEvent,
    issuerOf: (event: GuardEvent) => string,
  ): { before: GuardEvent; how: string } | null {
    const { highest, highestExclusive } = this
    if (highest === null) return null
    if (issuerOf(event) !== issuerOf(highest)) return { before: highest, how: 'is of another issuer than' }
    if (event.mode === 'shared') {
      if (highestExclusive === null || event.token > highestExclusive.token) return null
      return { before: highestExclusive, how: 'is shared and not newer than the exclusive' }
    }
    if (event.token < highest.token) return { before: highest, how: 'is older than' }
    if (event.token > highest.token) return null
    if (highest.mode === 'shared' || event.leaseId !== highest.leaseId)
      return { before: highest, how: 'has the token, but not the grant, of' }
    if (event.once && this.#used.has(`${event.token} ${event.leaseId}`))
      return { before: highest, how: 'may be used once, and was:' }
    return null
  }
}

function replay(history: History, events: readonly GuardEvent[], found: Findings): void {
  const memory = new Memory()
  const issuerOf = ({ issuer }: GuardEvent) => issuer ?? history.about.issuer ?? ''
  for (const event of events) {
    found.judged()
    const against = memory.against(event, issuerOf)
    if (event.verdict === 'accepted') {
      if (against !== null)
        found.violated(
          event.name,
          `Guard ${event.guard} accepted ${describe(event)}, which ${against.how} ${describe(against.before)}.`,
          [event.leaseId, against.before.leaseId],
        )
      memory.add(event)
    } else if (event.reason === 'stale' && against === null && !mayBeFloor(event, memory)) {
      found.violated(
        event.name,
        `Guard ${event.guard} refused ${describe(event)} as stale, although it had seen nothing newer.`,
        [event.leaseId],
      )
    }
  }
}

/** A guard that has forgotten names compares with the highest token among the forgotten, which is not on record here. */
function mayBeFloor(event: GuardEvent, memory: Memory): boolean {
  return (
    event.highest !== undefined && event.highest >= event.token && event.highest !== memory.highest?.token
  )
}

function describe(event: GuardEvent): string {
  const { leaseId, token, mode = 'exclusive', access = 'access' } = event
  const whose = event.process === undefined ? '' : ` of ${event.process}`
  return `the ${access} ${at(event)} with ${leaseId}${whose} (${mode}, token ${token})`
}

type Accepted = Operation & { readonly guard: string; readonly token: bigint }

function isAccepted(operation: Operation): operation is Accepted {
  const { guard, token, outcome, op } = operation
  const touches = op === 'read' || op === 'write' || op === 'update'
  return touches && guard !== undefined && token !== undefined && outcome === 'ok'
}

function compareInOrder(history: History, operations: readonly Accepted[], found: Findings): void {
  const issuerOf = ({ issuer }: Operation) => issuer ?? history.about.issuer ?? ''
  const returned = operations.toSorted((one, other) => one.returnedSeq - other.returnedSeq)
  let next = 0
  let highest: Accepted | null = null
  let highestExclusive: Accepted | null = null
  for (const operation of operations.toSorted((one, other) => one.seq - other.seq)) {
    for (let other = returned[next]; other && other.returnedSeq < operation.seq; other = returned[++next]) {
      if (highest === null || other.token > highest.token) highest = other
      if (other.mode !== 'shared' && other.token > (highestExclusive?.token ?? 0n)) highestExclusive = other
    }
    found.judged()
    const before: Accepted | null = operation.mode === 'shared' ? highestExclusive : highest
    if (before === null) continue
    const sameGrant = operation.leaseId === before.leaseId && before.mode !== 'shared' && !operation.once
    const newer = operation.token > before.token || (operation.token === before.token && sameGrant)
    const foreign = issuerOf(operation) !== issuerOf(before)
    if (newer && !foreign) continue
    found.violated(
      operation.name,
      `Guard ${operation.guard} accepted ${describeOperation(operation)}, which is ` +
        `${foreign ? 'of another issuer' : 'not newer'} than ${describeOperation(before)}, accepted before.`,
      [operation.id, before.id],
    )
  }
}
