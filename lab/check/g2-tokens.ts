/**
 * G2: tokens strictly increase in grant order, for all names of one issuer.
 *
 * The engine's own order decides where it is known. Otherwise an acquire that returned before another was invoked was
 * granted before it, and no two leases may have the same token at all.
 */
import { at, describeOperation, type Finding, Findings } from './findings.ts'
import type { EngineEvent, History, Operation } from './history.ts'
import { leasesOf } from './leases.ts'

const largest = 2n ** 63n - 1n

export function checkTokens(history: History): Finding {
  const found = new Findings('G2')
  const acquires = history.operations.filter(isGrant)
  const grants = history.engine.filter(({ what, token }) => what === 'granted' && token !== undefined)
  if (acquires.length === 0 && grants.length === 0)
    found.leaveOpen(
      history.about.fencing === 'unfenced' ? 'the engine issues no tokens' : 'no grant has a token on record',
    )
  if (grants.length > 0) byEngine(history, grants, found)
  else byOperations(history, acquires, found)
  compareWithEngine(history, grants, acquires, found)
  return found.done()
}

type Granted = Operation & { readonly token: bigint; readonly leaseId: string }

function isGrant(operation: Operation): operation is Granted {
  const { op, outcome, token, leaseId } = operation
  return op === 'acquire' && outcome === 'ok' && token !== undefined && leaseId !== undefined
}

function byEngine(history: History, grants: readonly EngineEvent[], found: Findings): void {
  const highest = new Map<string, EngineEvent>()
  const known = new Map<string, bigint>()
  for (const event of grants) {
    const { token = 0n, leaseId = '', name = '' } = event
    // A repeated request is answered with the grant that it has already; that is no new grant.
    if (known.get(leaseId) === token) continue
    known.set(leaseId, token)
    found.judged()
    checkRange(found, token, name, `${describeEvent(event)}`, leaseId)
    const issuer = event.issuer ?? history.about.issuer ?? ''
    const before = highest.get(issuer)
    if (before?.token !== undefined && token <= before.token)
      found.violated(
        name,
        `Token ${token} of ${describeEvent(event)} is not greater than token ${before.token} of ${describeEvent(before)}, ` +
          'which came before.',
        [leaseId, before.leaseId],
      )
    else highest.set(issuer, event)
  }
}

function describeEvent({ leaseId, name, process, ...event }: EngineEvent): string {
  return `${leaseId}${process === undefined ? '' : ` of ${process}`} (${JSON.stringify(name)}, granted ${at(event)})`
}

function byOperations(history: History, acquires: readonly Granted[], found: Findings): void {
  const issuerOf = ({ issuer }: Operation) => issuer ?? history.about.issuer ?? ''
  for (const granted of Map.groupBy(acquires, issuerOf).values()) {
    const firsts = new Map<string, Granted>()
    const owners = new Map<bigint, Granted>()
    for (const operation of granted) {
      found.judged()
      checkRange(found, operation.token, operation.name, describeOperation(operation), operation.id)
      const first = firsts.get(operation.leaseId)
      if (first !== undefined) {
        if (first.token !== operation.token) found.violated(...changed(first, operation))
        continue
      }
      firsts.set(operation.leaseId, operation)
      const owner = owners.get(operation.token)
      if (owner !== undefined)
        found.violated(
          operation.name,
          `${describeOperation(operation)} got the token that ${describeOperation(owner)} has.`,
          [operation.id, owner.id],
        )
      else owners.set(operation.token, operation)
    }
    compareInOrder([...firsts.values()], found)
  }
}

function changed(first: Granted, again: Granted): [string, string, string[]] {
  const message = `${describeOperation(again)} changed the token of ${describeOperation(first)}; re-entry keeps it (T39).`
  return [again.name, message, [again.id, first.id]]
}

function compareInOrder(grants: readonly Granted[], found: Findings): void {
  const returned = grants.toSorted((one, other) => one.returnedSeq - other.returnedSeq)
  let next = 0
  let highest: Granted | null = null
  for (const operation of grants.toSorted((one, other) => one.seq - other.seq)) {
    for (let other = returned[next]; other && other.returnedSeq < operation.seq; other = returned[++next])
      if (highest === null || other.token > highest.token) highest = other
    // Equal tokens are reported already.
    if (highest !== null && operation.token < highest.token)
      found.violated(
        operation.name,
        `${describeOperation(operation)} got a lower token than ${describeOperation(highest)}, which had returned before.`,
        [operation.id, highest.id],
      )
  }
}

/** A client that has another token than its grant has drawn it apart from the grant (T37, tokens drawn apart). */
function compareWithEngine(
  history: History,
  grants: readonly EngineEvent[],
  acquires: readonly Granted[],
  found: Findings,
): void {
  const leases = leasesOf(history)
  if (grants.length === 0) return
  for (const operation of acquires) {
    const engine = leases.get(operation.leaseId)?.engine.filter(({ what }) => what === 'granted') ?? []
    if (engine.length === 0 || engine.some(({ token }) => token === operation.token || token === undefined))
      continue
    found.violated(
      operation.name,
      `${describeOperation(operation)} has another token than the engine granted: ${engine[0]?.token}.`,
      [operation.id],
    )
  }
}

function checkRange(found: Findings, token: bigint, name: string, whose: string, id: string): void {
  if (token >= 1n && token <= largest) return
  found.violated(name, `Token ${token} of ${whose} is not a positive number of 63 bits.`, [id])
}
