/** Commands of several lockers, their callers, their machines and their network, as data. */
import fc from 'fast-check'
import { type CallKind, callKinds, type Fault } from '../../../src/testing/faults.ts'

export const MACHINES = 3
export const locks = ['a', 'b'] as const
export const SEMAPHORE = 'sem'
export const PERMITS = 3
export const ttls = [300, 300, 1_000] as const
/** The longest that a request may be in flight. */
export const LATEST_MS = 400

interface Holding {
  readonly machine: number
  readonly name: number
  readonly ttl: number
  readonly mode: 'exclusive' | 'shared'
  readonly lockDelayMs: number
  readonly holdAtLeastMs: number
  readonly maxHoldMs: number
}

interface Waiting {
  readonly waitMs: number
}

interface Fields {
  acquire: Holding & Waiting
  tryAcquire: Holding
  withLease: Holding & Waiting & { readonly bodyMs: number; readonly fails: boolean }
  acquireAll: { readonly machine: number; readonly ttl: number } & Waiting
  acquirePermits: { readonly machine: number; readonly ttl: number; readonly weight: number } & Waiting
  release: { readonly lease: number; readonly impatient: boolean }
  ensure: { readonly lease: number; readonly share: number }
  renew: { readonly lease: number; readonly impatient: boolean }
  setData: { readonly lease: number }
  abort: { readonly pending: number }
  close: { readonly machine: number; readonly graceMs: number }
  force: { readonly lease: number; readonly machine: number }
  delete: { readonly name: number }
  advance: { readonly ms: number }
  blockAll: { readonly ms: number }
  block: { readonly machine: number; readonly ms: number }
  suspend: { readonly machine: number; readonly ms: number }
  stepWall: { readonly machine: number; readonly ms: number }
  freeze: { readonly machine: number }
  unfreeze: { readonly machine: number }
  cutOff: { readonly machine: number }
  restore: { readonly machine: number }
  fault: { readonly machine: number; readonly call: CallKind; readonly fault: Fault }
  /** The next renewal is answered late, and those after it are lost: what counts is when it was sent (T1, validity from the send time). */
  squeeze: { readonly machine: number; readonly ms: number }
  storm: { readonly machine: number; readonly seed: number }
  calm: { readonly machine: number }
}

export type LockerCommand = { [Kind in keyof Fields]: { readonly do: Kind } & Fields[Kind] }[keyof Fields]

const machine = fc.nat({ max: MACHINES - 1 })
const some = fc.nat({ max: 11 })
const ttl = fc.nat({ max: ttls.length - 1 })
const rarely = fc.integer({ min: 0, max: 7 }).map((n) => n === 0)
const mostlyNone = (ms: number) => fc.constantFrom(0, 0, 0, 0, ms)
const waitMs = fc.constantFrom(0, 60, 350, 2_500, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY)
const shortMs = fc.integer({ min: 1, max: 250 })
const longMs = fc.oneof(shortMs, fc.integer({ min: 250, max: 1_300 }))

const holding = {
  machine,
  name: fc.nat({ max: locks.length - 1 }),
  ttl,
  mode: fc.constantFrom('exclusive', 'exclusive', 'shared') as fc.Arbitrary<'exclusive' | 'shared'>,
  lockDelayMs: mostlyNone(150),
  holdAtLeastMs: mostlyNone(120),
  maxHoldMs: fc.constantFrom(...Array<number>(7).fill(Number.POSITIVE_INFINITY), 400),
}

const late = fc.integer({ min: 1, max: LATEST_MS })
const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.constantFrom<Fault>(
    { kind: 'error-before' },
    { kind: 'error-before', error: new Error('ECONNREFUSED') },
    { kind: 'error-after' },
    { kind: 'error-after', error: new Error('socket hang up') },
    { kind: 'lost-request' },
    { kind: 'lost-reply' },
    { kind: 'frozen' },
    { kind: 'duplicate' },
  ),
  late.map((ms): Fault => ({ kind: 'late-reply', ms })),
  late.map((ms): Fault => ({ kind: 'late-landing', ms })),
  late.map((ms): Fault => ({ kind: 'duplicate', ms })),
)

function command<Kind extends keyof Fields>(
  kind: Kind,
  fields: { [Field in keyof Fields[Kind]]: fc.Arbitrary<Fields[Kind][Field]> },
): fc.Arbitrary<LockerCommand> {
  return fc.record(fields).map((record) => ({ do: kind, ...record }) as unknown as LockerCommand)
}

const weighted: { arbitrary: fc.Arbitrary<LockerCommand>; weight: number }[] = [
  { weight: 12, arbitrary: command('acquire', { ...holding, waitMs }) },
  { weight: 6, arbitrary: command('tryAcquire', holding) },
  { weight: 5, arbitrary: command('withLease', { ...holding, waitMs, bodyMs: longMs, fails: rarely }) },
  { weight: 2, arbitrary: command('acquireAll', { machine, ttl, waitMs }) },
  {
    weight: 3,
    arbitrary: command('acquirePermits', {
      machine,
      ttl,
      waitMs,
      weight: fc.integer({ min: 1, max: PERMITS }),
    }),
  },
  { weight: 9, arbitrary: command('release', { lease: some, impatient: rarely }) },
  { weight: 3, arbitrary: command('ensure', { lease: some, share: fc.constantFrom(0.2, 0.6, 0.95) }) },
  { weight: 2, arbitrary: command('renew', { lease: some, impatient: rarely }) },
  { weight: 2, arbitrary: command('setData', { lease: some }) },
  { weight: 3, arbitrary: command('abort', { pending: some }) },
  { weight: 1, arbitrary: command('close', { machine, graceMs: fc.constantFrom(0, 100) }) },
  { weight: 1, arbitrary: command('force', { lease: some, machine }) },
  { weight: 1, arbitrary: command('delete', { name: fc.nat({ max: locks.length - 1 }) }) },
  { weight: 14, arbitrary: command('advance', { ms: longMs }) },
  { weight: 1, arbitrary: command('blockAll', { ms: longMs }) },
  { weight: 2, arbitrary: command('block', { machine, ms: longMs }) },
  { weight: 2, arbitrary: command('suspend', { machine, ms: longMs }) },
  {
    weight: 1,
    arbitrary: command('stepWall', { machine, ms: fc.constantFrom(-3_600_000, -200, 200, 3_600_000) }),
  },
  { weight: 2, arbitrary: command('freeze', { machine }) },
  { weight: 3, arbitrary: command('unfreeze', { machine }) },
  { weight: 1, arbitrary: command('cutOff', { machine }) },
  { weight: 2, arbitrary: command('restore', { machine }) },
  { weight: 10, arbitrary: command('fault', { machine, call: fc.constantFrom(...usualCalls()), fault }) },
  { weight: 2, arbitrary: command('squeeze', { machine, ms: shortMs }) },
  { weight: 2, arbitrary: command('storm', { machine, seed: fc.nat({ max: 9_999 }) }) },
  { weight: 2, arbitrary: command('calm', { machine }) },
]

/** The calls that lockers make by themselves, the most interesting ones more often. */
function usualCalls(): CallKind[] {
  const rest: readonly CallKind[] = ['attachSession', 'inspect', 'list', 'check', 'resize', 'forget']
  return [
    ...callKinds.filter((kind) => !rest.includes(kind)),
    'tryAcquire',
    'enqueue',
    'release',
    'keepAlive',
    'keepAlive',
  ]
}

export const lockerCommands = fc.array(fc.oneof(...weighted), { maxLength: 90, size: 'max' })
