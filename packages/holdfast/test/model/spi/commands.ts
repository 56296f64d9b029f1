/** Questions to an engine, as data. Numbers stand for "one of those that there are", counted modulo. */
import fc from 'fast-check'

export const ttls = [150, 400, 1_000] as const
export const names = ['a', 'b', 'a/sem', 'é'] as const
export const CLIENTS = 3

/** How a name is asked for: mostly in the way that fits it, now and then as something else. */
export interface Shape {
  readonly name: number
  readonly mode: 'exclusive' | 'shared' | 'permits'
  readonly weight: number
  readonly capacity: number
  readonly lockDelayMs: number
  readonly note: boolean
}

type Asking = Shape & { readonly session: number; readonly via: number }

/** `via`: through which of the session's clients. `wrong`: by a session that it does not belong to. */
interface Fields {
  open: { readonly client: number; readonly ttl: number }
  reopen: { readonly session: number; readonly via: number }
  attach: { readonly session: number; readonly client: number }
  close: { readonly session: number; readonly via: number }
  keepAlive: { readonly session: number; readonly via: number; readonly list: 'known' | 'none' }
  try: Asking
  enqueue: Asking
  tryAgain: { readonly attempt: number; readonly via: number }
  enqueueAgain: { readonly attempt: number }
  hangUp: { readonly wait: number }
  release: {
    readonly attempt: number
    readonly via: number
    readonly wrong: boolean
    readonly keepForMs: number
  }
  abandon: { readonly attempt: number; readonly via: number; readonly wrong: boolean }
  setData: { readonly attempt: number; readonly via: number; readonly wrong: boolean }
  force: { readonly attempt: number; readonly client: number; readonly target: 'all' | 'holder' | 'token' }
  resize: { readonly name: number; readonly client: number; readonly capacity: number }
  forget: { readonly name: number; readonly client: number }
  inspect: { readonly name: number; readonly client: number }
  list: { readonly name: number; readonly client: number }
  check: { readonly attempt: number; readonly client: number }
  pass: { readonly ms: number }
}

export type SpiCommand = { [Kind in keyof Fields]: { readonly do: Kind } & Fields[Kind] }[keyof Fields]

const some = fc.nat({ max: 11 })
const rarely = fc.integer({ min: 0, max: 9 }).map((n) => n === 0)

const shape: fc.Arbitrary<Shape> = fc
  .record({
    name: fc.nat({ max: names.length - 1 }),
    misfit: fc.integer({ min: 0, max: 11 }).map((n) => n === 0),
    shared: fc.boolean(),
    weight: fc.integer({ min: 1, max: 3 }),
    lockDelayMs: fc.constantFrom(0, 0, 0, 120),
    note: rarely,
  })
  .map(({ name, misfit, shared, weight, lockDelayMs, note }) => {
    const counted = (names[name] === 'a/sem') !== misfit
    const capacity = counted ? 3 : 2 ** 30
    if (counted) return { name, mode: 'permits', weight, capacity, lockDelayMs, note } as const
    const mode = shared ? 'shared' : 'exclusive'
    return { name, mode, weight: shared ? 1 : capacity, capacity, lockDelayMs, note } as const
  })

function command<Kind extends keyof Fields>(
  kind: Kind,
  fields: { [Field in keyof Fields[Kind]]: fc.Arbitrary<Fields[Kind][Field]> },
): fc.Arbitrary<SpiCommand> {
  return fc.record(fields).map((record) => ({ do: kind, ...record }) as unknown as SpiCommand)
}

const asking = (kind: 'try' | 'enqueue'): fc.Arbitrary<SpiCommand> =>
  fc
    .tuple(fc.record({ session: some, via: some }), shape)
    .map(([who, what]) => ({ do: kind, ...who, ...what }))

const weighted: { arbitrary: fc.Arbitrary<SpiCommand>; weight: number }[] = [
  { weight: 4, arbitrary: command('open', { client: some, ttl: some }) },
  { weight: 1, arbitrary: command('reopen', { session: some, via: some }) },
  { weight: 2, arbitrary: command('attach', { session: some, client: some }) },
  { weight: 1, arbitrary: command('close', { session: some, via: some }) },
  {
    weight: 9,
    arbitrary: command('keepAlive', {
      session: some,
      via: some,
      list: fc.constantFrom('known', 'known', 'none'),
    }),
  },
  { weight: 9, arbitrary: asking('try') },
  { weight: 12, arbitrary: asking('enqueue') },
  { weight: 1, arbitrary: command('tryAgain', { attempt: some, via: some }) },
  { weight: 2, arbitrary: command('enqueueAgain', { attempt: some }) },
  { weight: 2, arbitrary: command('hangUp', { wait: some }) },
  {
    weight: 9,
    arbitrary: command('release', {
      attempt: some,
      via: some,
      wrong: rarely,
      keepForMs: fc.constantFrom(0, 0, 0, 90),
    }),
  },
  { weight: 4, arbitrary: command('abandon', { attempt: some, via: some, wrong: rarely }) },
  { weight: 2, arbitrary: command('setData', { attempt: some, via: some, wrong: rarely }) },
  {
    weight: 2,
    arbitrary: command('force', {
      attempt: some,
      client: some,
      target: fc.constantFrom('all', 'holder', 'token'),
    }),
  },
  {
    weight: 2,
    arbitrary: command('resize', { name: some, client: some, capacity: fc.integer({ min: 1, max: 5 }) }),
  },
  { weight: 1, arbitrary: command('forget', { name: some, client: some }) },
  { weight: 1, arbitrary: command('inspect', { name: some, client: some }) },
  { weight: 1, arbitrary: command('list', { name: some, client: some }) },
  { weight: 2, arbitrary: command('check', { attempt: some, client: some }) },
  {
    weight: 9,
    arbitrary: command('pass', {
      ms: fc.oneof(fc.constantFrom(1, 149, 150, 151), fc.integer({ min: 1, max: 500 })),
    }),
  },
]

/** Of any length from none on, so that a failure shrinks; on average about half of the most. */
export const spiCommands = fc.array(fc.oneof(...weighted), { maxLength: 90, size: 'max' })
