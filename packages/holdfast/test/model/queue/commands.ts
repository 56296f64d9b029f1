/** Commands of the sessions of a predecessor queue, their callers, their operators and their network, as data. */
import fc from 'fast-check'

export const SESSIONS = 3

interface Fields {
  join: {
    readonly session: number
    readonly mode: 'exclusive' | 'shared' | 'permits'
    readonly weight: number
    readonly maxWaiters: number | null
  }
  try: {
    readonly session: number
    readonly mode: 'exclusive' | 'shared' | 'permits'
    readonly weight: number
  }
  /** The attempt is asked for once more. */
  repeat: { readonly pick: number }
  cancel: { readonly pick: number }
  release: { readonly pick: number }
  /** An operator deletes a key. */
  delete: { readonly pick: number }
  abandon: { readonly pick: number }
  expire: { readonly session: number }
  keepAlive: { readonly session: number }
  resize: { readonly capacity: number }
  deliver: { readonly pick: number; readonly count: number }
  lose: { readonly pick: number; readonly silently: boolean }
  disconnect: { readonly session: number }
  advance: { readonly ms: number }
}

export type QueueCommand = { [Kind in keyof Fields]: { readonly do: Kind } & Fields[Kind] }[keyof Fields]

const session = fc.nat({ max: SESSIONS - 1 })
const pick = fc.nat({ max: 30 })
const mode = fc.constantFrom('exclusive', 'exclusive', 'shared', 'permits') as fc.Arbitrary<
  Fields['try']['mode']
>
const weight = fc.integer({ min: 1, max: 3 })

function command<Kind extends keyof Fields>(
  times: number,
  kind: Kind,
  fields: { readonly [Field in keyof Fields[Kind]]: fc.Arbitrary<Fields[Kind][Field]> },
) {
  const arbitrary = fc.record({ do: fc.constant(kind), ...fields }) as unknown as fc.Arbitrary<QueueCommand>
  return { weight: times, arbitrary }
}

const peaceful = [
  command(8, 'join', { session, mode, weight, maxWaiters: fc.constantFrom(null, null, null, 0, 1, 3) }),
  command(2, 'try', { session, mode, weight }),
  command(2, 'repeat', { pick }),
  command(3, 'cancel', { pick }),
  command(5, 'release', { pick }),
  command(2, 'delete', { pick }),
  command(1, 'abandon', { pick }),
  command(1, 'expire', { session }),
  command(1, 'resize', { capacity: fc.integer({ min: 3, max: 5 }) }),
  command(14, 'deliver', { pick, count: fc.integer({ min: 1, max: 6 }) }),
] as const

const lengths = { minLength: 20, maxLength: 100 }
const anyOf = (...kinds: (typeof peaceful)[number][]) =>
  fc.array(fc.oneof(...kinds), { ...lengths, size: 'max' })

/** Messages may take any time and overtake each other, but none is lost: then no keep-alive is needed. */
export const peacefulCommands = anyOf(...peaceful)

export const faultyCommands = anyOf(
  ...peaceful,
  command(2, 'keepAlive', { session }),
  command(3, 'lose', { pick, silently: fc.boolean() }),
  command(1, 'disconnect', { session }),
  command(1, 'advance', { ms: fc.integer({ min: 1, max: 6_000 }) }),
)
