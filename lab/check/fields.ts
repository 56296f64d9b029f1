/** How each field of each kind of event is read from JSON. The types make the table complete. */
import type {
  About,
  BeliefEvent,
  Claimant,
  EngineEvent,
  FaultEvent,
  FinalEvent,
  GuardEvent,
  HistoryEvent,
  InvokeEvent,
  MeddledEvent,
  QueuedEvent,
  QuietEvent,
  ReturnEvent,
  SnapshotEvent,
} from './history.ts'

/** Returns the value as it is in memory; throws a plain Error that says what was expected. */
type Reader<T> = (value: unknown) => T

interface Field<T, Optional extends boolean> {
  readonly read: Reader<T>
  readonly optional: Optional
}

export type Shape<E> = {
  readonly [K in keyof E]-?: Field<
    Exclude<E[K], undefined>,
    Record<never, never> extends Pick<E, K> ? true : false
  >
}

const required = <T>(read: Reader<T>): Field<T, false> => ({ read, optional: false })
const optional = <T>(read: Reader<T>): Field<T, true> => ({ read, optional: true })

const text: Reader<string> = (value) => {
  if (typeof value === 'string' && value !== '') return value
  throw new Error('must be a text that is not empty')
}

const number: Reader<number> = (value) => {
  if (typeof value === 'number' && Number.isFinite(value)) return value
  throw new Error('must be a number')
}

const duration: Reader<number> = (value) => {
  if (number(value) >= 0) return value as number
  throw new Error('must not be negative')
}

const count: Reader<number> = (value) => {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw new Error('must be a whole number, 0 or more')
}

const flag: Reader<boolean> = (value) => {
  if (typeof value === 'boolean') return value
  throw new Error('must be true or false')
}

const token: Reader<bigint> = (value) => {
  // A JSON number has lost its last digits already (T42, tokens as doubles).
  if (typeof value === 'string' && /^\d{1,40}$/.test(value)) return BigInt(value)
  throw new Error('must be a decimal number as a string')
}

function oneOf<const T extends string | number>(...allowed: readonly T[]): Reader<T> {
  return (value) => {
    if (allowed.includes(value as T)) return value as T
    throw new Error(`must be one of ${allowed.map((each) => JSON.stringify(each)).join(', ')}`)
  }
}

function listOf<T>(read: Reader<T>): Reader<readonly T[]> {
  return (value) => {
    if (!Array.isArray(value)) throw new Error('must be a list')
    return value.map(read)
  }
}

/** Unknown fields are refused: a misspelt one would be evidence that silently vanishes. */
export function readShape<E>(shape: Shape<E>, value: unknown): E {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('must be an object')
  const given = value as Record<string, unknown>
  const result: Record<string, unknown> = {}
  for (const [key, field] of Object.entries<Field<unknown, boolean>>(shape)) {
    if (given[key] === undefined) {
      if (!field.optional) throw new Error(`${key} is missing`)
      continue
    }
    try {
      result[key] = field.read(given[key])
    } catch (error) {
      throw new Error(`${key} ${(error as Error).message}`)
    }
  }
  const stranger = Object.keys(given).find((key) => !Object.hasOwn(shape, key))
  if (stranger !== undefined) throw new Error(`there is no field ${JSON.stringify(stranger)} here`)
  return result as E
}

const claimant: Shape<Claimant> = {
  leaseId: required(text),
  process: optional(text),
  token: optional(token),
}

export const aboutShape: Shape<About> = {
  kind: required(oneOf('about')),
  version: required(oneOf(1)),
  backend: optional(text),
  issuer: optional(text),
  fencing: optional(oneOf('fenced', 'unfenced')),
  waiting: optional(oneOf('queue', 'poll')),
  expirySlackMs: optional(duration),
  roundTripMs: optional(duration),
  lockDelayMs: optional(duration),
  engineTimes: optional(oneOf('exact', 'seen')),
}

const stamp = { seq: required(count), at: required(number) }

const asked = {
  mode: optional(oneOf('exclusive', 'shared', 'permits')),
  weight: optional(count),
  capacity: optional(count),
}

const facts = {
  leaseId: optional(text),
  token: optional(token),
  ttlMs: optional(duration),
  sentAt: optional(number),
  saw: optional(text),
  wrote: optional(text),
}

const invoke: Shape<InvokeEvent> = {
  kind: required(oneOf('invoke')),
  ...stamp,
  ...asked,
  ...facts,
  id: required(text),
  process: required(text),
  op: required(
    oneOf('acquire', 'release', 'renew', 'abandon', 'close', 'force-release', 'read', 'write', 'update'),
  ),
  name: optional(text),
  issuer: optional(text),
  waits: optional(flag),
  lockDelayMs: optional(duration),
  holdAtLeastMs: optional(duration),
  target: optional(text),
  guard: optional(text),
  once: optional(flag),
  resource: optional(text),
  delta: optional(number),
  entry: optional(text),
}

const returned: Shape<ReturnEvent> = {
  kind: required(oneOf('return')),
  ...stamp,
  ...facts,
  id: required(text),
  outcome: required(oneOf('ok', 'fail', 'unknown')),
  count: optional(count),
  error: optional(text),
}

const queued: Shape<QueuedEvent> = { kind: required(oneOf('queued')), ...stamp, id: required(text) }

type BeliefShapes = {
  readonly [W in BeliefEvent['what']]: Shape<Extract<BeliefEvent, { readonly what: W }>>
}

const belief = { kind: required(oneOf('belief')), ...stamp, leaseId: required(text) }

const beliefs: BeliefShapes = {
  began: {
    ...belief,
    ...asked,
    what: required(oneOf('began')),
    process: required(text),
    name: required(text),
    token: optional(token),
    sentAt: required(number),
    ttlMs: required(duration),
    driftMs: optional(duration),
  },
  confirmed: {
    ...belief,
    what: required(oneOf('confirmed')),
    sentAt: required(number),
    ttlMs: optional(duration),
  },
  seen: { ...belief, what: required(oneOf('seen')) },
  ended: {
    ...belief,
    what: required(oneOf('ended')),
    why: required(oneOf('released', 'lost')),
    reason: optional(text),
    believedUntil: optional(number),
  },
}

const engine: Shape<EngineEvent> = {
  kind: required(oneOf('engine')),
  ...stamp,
  ...asked,
  what: required(
    oneOf(
      'granted',
      'renewed',
      'released',
      'expired',
      'forced',
      'deleted',
      'enqueued',
      'left',
      'resized',
      'gap',
    ),
  ),
  name: optional(text),
  leaseId: optional(text),
  process: optional(text),
  issuer: optional(text),
  token: optional(token),
  ttlMs: optional(duration),
  by: optional(text),
}

const guard: Shape<GuardEvent> = {
  kind: required(oneOf('guard')),
  ...stamp,
  guard: required(text),
  name: required(text),
  verdict: required(oneOf('accepted', 'refused')),
  token: required(token),
  leaseId: required(text),
  mode: optional(oneOf('exclusive', 'shared')),
  issuer: optional(text),
  process: optional(text),
  access: optional(oneOf('read', 'write')),
  once: optional(flag),
  reason: optional(oneOf('stale', 'foreign', 'used')),
  highest: optional(token),
}

const fault: Shape<FaultEvent> = {
  kind: required(oneOf('fault')),
  ...stamp,
  what: required(oneOf('crash', 'pause', 'cut-off', 'outage')),
  phase: required(oneOf('began', 'ended')),
  process: optional(text),
}

const meddled: Shape<MeddledEvent> = {
  kind: required(oneOf('meddled')),
  ...stamp,
  name: optional(text),
  process: optional(text),
  note: optional(text),
}

const snapshot: Shape<SnapshotEvent> = {
  kind: required(oneOf('snapshot')),
  ...stamp,
  name: required(text),
  askedAt: required(number),
  holders: required(listOf((each) => readShape(claimant, each))),
  waiters: required(listOf((each) => readShape(claimant, each))),
}

const quiet: Shape<QuietEvent> = { kind: required(oneOf('quiet')), ...stamp, name: optional(text) }

const final: Shape<FinalEvent> = {
  kind: required(oneOf('final')),
  ...stamp,
  resource: required(text),
  initial: optional(number),
  total: optional(number),
  value: optional(text),
  entries: optional(listOf(text)),
}

const shapes = { invoke, return: returned, queued, engine, guard, fault, meddled, snapshot, quiet, final }

export function readEvent(value: unknown): HistoryEvent {
  const { kind, what } = (value ?? {}) as { readonly kind?: unknown; readonly what?: unknown }
  if (kind === 'belief') {
    if (typeof what === 'string' && Object.hasOwn(beliefs, what))
      return readShape<BeliefEvent>(beliefs[what as BeliefEvent['what']] as Shape<BeliefEvent>, value)
    throw new Error(`what must be one of ${Object.keys(beliefs).join(', ')}`)
  }
  if (typeof kind !== 'string' || !Object.hasOwn(shapes, kind))
    throw new Error(`kind must be one of belief, ${Object.keys(shapes).join(', ')}`)
  return readShape<HistoryEvent>(shapes[kind as keyof typeof shapes] as unknown as Shape<HistoryEvent>, value)
}
