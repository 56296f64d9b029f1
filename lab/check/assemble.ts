/** Puts a history together from its events, and refuses one that contradicts itself. */
import type {
  About,
  Belief,
  BeliefEvent,
  Confirmation,
  EngineEvent,
  History,
  HistoryEvent,
  InvokeEvent,
  Operation,
  ReturnEvent,
  Stamp,
} from './history.ts'
import { HistoryError } from './history-error.ts'
import { fillInLeases } from './lease-ids.ts'

/** `lines` says which line each event came from, for the errors. */
export function assemble(
  about: About,
  events: readonly HistoryEvent[],
  lines: readonly number[] | null = null,
): History {
  const operations = new Map<string, Draft>()
  const beliefs = new Map<string, BeliefDraft>()

  let before: Stamp | null = null
  for (const [index, event] of events.entries()) {
    const complain = (message: string): never => {
      throw new HistoryError('CONTRADICTORY', lines?.[index] ?? null, message)
    }
    if (before !== null && event.seq <= before.seq)
      complain(`seq ${event.seq} comes after seq ${before.seq}; it must increase`)
    if (before !== null && event.at < before.at)
      complain(`seq ${event.seq} is at ${event.at} ms, before its predecessor at ${before.at} ms`)
    before = event

    if (event.kind === 'invoke') addInvocation(operations, event, complain)
    else if (event.kind === 'return') addReturn(operations, event, complain)
    else if (event.kind === 'queued') addQueued(operations, event, complain)
    else if (event.kind === 'belief') addBelief(beliefs, event, complain)
    else if (event.kind === 'engine') checkEngine(event, complain)
    else if (event.kind === 'snapshot' && event.askedAt > event.at)
      complain(
        `a snapshot cannot be answered at ${event.at} ms before it is asked for at ${event.askedAt} ms`,
      )
  }

  const of = <K extends HistoryEvent['kind']>(kind: K) =>
    events.filter((event): event is Extract<HistoryEvent, { readonly kind: K }> => event.kind === kind)
  return {
    about,
    events,
    operations: fillInLeases([...operations.values()].map(finishOperation)),
    beliefs: [...beliefs.values()].map(finishBelief),
    engine: of('engine'),
    guard: of('guard'),
    faults: of('fault'),
    meddled: of('meddled'),
    snapshots: of('snapshot'),
    quiet: of('quiet'),
    finals: of('final'),
    endedAt: events.at(-1)?.at ?? 0,
  }
}

type Complain = (message: string) => never

interface Draft {
  readonly invoke: InvokeEvent
  readonly queued: Stamp[]
  returned: ReturnEvent | null
}

function addInvocation(operations: Map<string, Draft>, event: InvokeEvent, complain: Complain): void {
  if (operations.has(event.id)) complain(`operation ${event.id} is invoked twice`)
  const needsName = !['close', 'read', 'write', 'update'].includes(event.op)
  if (needsName && event.name === undefined) complain(`operation ${event.id} (${event.op}) has no name`)
  operations.set(event.id, { invoke: event, queued: [], returned: null })
}

function addReturn(operations: Map<string, Draft>, event: ReturnEvent, complain: Complain): void {
  const draft =
    operations.get(event.id) ?? complain(`operation ${event.id} returns without having been invoked`)
  if (draft.returned !== null) complain(`operation ${event.id} returns twice`)
  draft.returned = event
}

function addQueued(operations: Map<string, Draft>, event: Stamp & { id: string }, complain: Complain): void {
  const draft =
    operations.get(event.id) ?? complain(`operation ${event.id} waits without having been invoked`)
  if (draft.returned !== null) complain(`operation ${event.id} waits after having returned`)
  draft.queued.push({ seq: event.seq, at: event.at })
}

function finishOperation({ invoke, queued, returned }: Draft): Operation {
  const { kind: _kind, name = '', ...fields } = invoke
  if (returned === null)
    return { ...fields, name, queued, outcome: 'unknown', returnedSeq: Infinity, returnedAt: Infinity }
  const { kind: _other, seq: returnedSeq, at: returnedAt, ...answer } = returned
  return { ...fields, name, queued, ...answer, returnedSeq, returnedAt }
}

type Began = Extract<BeliefEvent, { what: 'began' }>
type Ended = Extract<BeliefEvent, { what: 'ended' }>

interface BeliefDraft {
  readonly began: Began
  readonly confirmations: Confirmation[]
  readonly seen: Stamp[]
  ended: Ended | null
}

function addBelief(beliefs: Map<string, BeliefDraft>, event: BeliefEvent, complain: Complain): void {
  if ('sentAt' in event && event.sentAt > event.at)
    complain(
      `the belief in ${event.leaseId} counts from ${event.sentAt} ms, after the answer at ${event.at} ms`,
    )
  if (event.what === 'began') {
    if (beliefs.has(event.leaseId)) complain(`the belief in ${event.leaseId} begins twice`)
    beliefs.set(event.leaseId, { began: event, confirmations: [confirmation(event)], seen: [], ended: null })
    return
  }
  const draft = beliefs.get(event.leaseId) ?? complain(`the belief in ${event.leaseId} has not begun`)
  if (event.what === 'confirmed')
    draft.confirmations.push(confirmation({ ...event, ttlMs: event.ttlMs ?? draft.began.ttlMs }))
  else if (event.what === 'seen') draft.seen.push({ seq: event.seq, at: event.at })
  else {
    if (draft.ended !== null) complain(`the belief in ${event.leaseId} ends twice`)
    if ((event.believedUntil ?? event.at) > event.at)
      complain(`the belief in ${event.leaseId} lasts until after its end was noticed`)
    draft.ended = event
  }
}

function confirmation({ seq, at, sentAt, ttlMs }: Confirmation): Confirmation {
  return { seq, at, sentAt, ttlMs }
}

function finishBelief({ began, confirmations, seen, ended }: BeliefDraft): Belief {
  const { kind: _kind, what: _what, sentAt: _sentAt, ttlMs: _ttlMs, driftMs = 0, ...fields } = began
  return { ...fields, driftMs, confirmations, seen, ended: ended === null ? null : finishEnd(ended) }
}

function finishEnd({ seq, at, why, reason, believedUntil = at }: Ended): NonNullable<Belief['ended']> {
  return { seq, at, why, ...(reason === undefined ? {} : { reason }), until: believedUntil }
}

const concernsEverything: readonly string[] = ['deleted', 'gap']
const concernsAName: readonly string[] = ['deleted', 'gap', 'resized']

function checkEngine(event: EngineEvent, complain: Complain): void {
  if (event.name === undefined && !concernsEverything.includes(event.what))
    complain(`the engine event "${event.what}" has no name`)
  if (event.leaseId === undefined && !concernsAName.includes(event.what))
    complain(`the engine event "${event.what}" has no leaseId`)
  if (event.what === 'resized' && event.capacity === undefined)
    complain('the engine event "resized" has no capacity')
}
