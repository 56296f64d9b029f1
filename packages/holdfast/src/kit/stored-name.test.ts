import { describe, expect, test } from 'vitest'
import { LOCK_CAPACITY } from '../spi.ts'
import { request } from '../testing/conformance/requests.ts'
import { claimRecord } from './claim-records.ts'
import { isEligible } from './ordered-store.ts'
import { type NameFacts, type StoredClaim, StoredName, toldOf } from './stored-name.ts'

const session = { id: 'session', holder: 'ada', ttlMs: 6_000 }
let created = 0n

function stored(name: string, token: bigint | null, sinceMs: number, facts = {}): StoredClaim {
  const asked = { ...request(name), ...facts }
  const { attempt, mode, weight, capacity } = asked
  const order = ++created
  const record = claimRecord(asked, session, sinceMs)
  const [key, id, granted] = [`key ${order}`, `id ${token}`, token !== null]
  return { name, mode, attempt, id, key, order, weight, capacity, granted, token, record }
}

const stateOf = (facts: Partial<NameFacts<StoredClaim>>, wallMs = 5_000) =>
  new StoredName({ version: 9n, claims: [], ...facts }).state('x', wallMs)
const closedBy = [{ key: 'closing', order: 0n }]

describe('the state of a name', () => {
  test('there is none if nothing of it is in use', () => {
    expect(stateOf({})).toBeNull()
  })

  const data = { data: '', id: 'id', holder: 'ada', token: '7' }
  test.each([{ data }, { closedBy }, { claims: [stored('x', 1n, 0)] }])(
    'there is one with %o alone',
    (used) => {
      expect(stateOf(used)).not.toBeNull()
    },
  )

  test('holders and waiters are apart, each in the order of the queue, with their ages', () => {
    const claims = [
      stored('x', 7n, 1_000, { note: 'n', owner: 'o' }),
      stored('x', null, 2_000),
      stored('x', 8n, 3_000),
      stored('x', null, 4_000),
    ]
    const capacities = [{ order: 100n, capacity: 9 }]
    const state = stateOf({ claims, capacities, data: { ...data, data: 'd' } }, 5_000.7)
    expect(state).toMatchObject({ name: 'x', capacity: 9, data: 'd', closedForMs: 0, atMs: 5_001 })
    expect(state?.holders.map(({ token, heldForMs }) => [token, heldForMs])).toEqual([
      [7n, 4_001],
      [8n, 2_001],
    ])
    expect(state?.waiters.map(({ waitingForMs }) => waitingForMs)).toEqual([3_001, 1_001])
    expect(state?.holders[0]).toEqual({
      id: 'id 7',
      holder: 'ada',
      mode: 'exclusive',
      weight: LOCK_CAPACITY,
      session: 'session',
      ttlMs: 6_000,
      owner: 'o',
      note: 'n',
      token: 7n,
      heldForMs: 4_001,
    })
  })

  test('what is left of a holder’s time is shown if the engine was asked', () => {
    const left = new StoredName({ version: 9n, claims: [stored('x', 1n, 0)] })
    expect(left.state('x', 5_000)?.holders[0]).not.toHaveProperty('expiresInMs')
    const leftMs = new Map([[session.id, 2_000]])
    expect(left.state('x', 5_000, leftMs)?.holders[0]).toHaveProperty('expiresInMs', 2_000)
  })

  test('a client whose clock is ahead does not make an age negative', () => {
    const claims = [stored('x', 1n, 9_000), stored('x', null, 9_000)]
    const state = stateOf({ claims })
    expect([state?.holders[0]?.heldForMs, state?.waiters[0]?.waitingForMs]).toEqual([0, 0])
  })

  test('how long a name stays closed is not told, and without a capacity it is a lock', () => {
    const state = stateOf({ closedBy })
    expect(state).not.toHaveProperty('closedForMs')
    expect(state).not.toHaveProperty('data')
    expect(state?.capacity).toBe(LOCK_CAPACITY)
  })
})

test('an event names the holder, and its owner if there is one', () => {
  expect(toldOf(stored('x', 7n, 0, { owner: 'o' }), 'acquired')).toEqual({
    kind: 'acquired',
    name: 'x',
    id: 'id 7',
    holder: 'ada',
    token: 7n,
    owner: 'o',
  })
  expect(toldOf(stored('x', null, 0), 'waiting')).not.toHaveProperty('owner')
})

describe('the queue of a name', () => {
  const reader = { mode: 'shared', weight: 1 }

  test('a claim sees what is older, with the last capacity that was set after it was created', () => {
    const [first, second, third] = [stored('x', 7n, 0), stored('x', null, 0), stored('x', null, 0)]
    const capacities = [
      { order: third.order + 1n, capacity: 5 },
      { order: third.order + 2n, capacity: 6 },
      { order: first.order, capacity: 4 },
    ]
    const name = new StoredName({ version: 9n, claims: [third, first, second], capacities })
    expect(name.claims).toEqual([first, second, third])
    expect(name.queue(second, 3)).toEqual({ own: second, older: [first], capacity: 6, version: 9n })
    const earlier = new StoredName({ version: 9n, claims: [first], capacities: capacities.slice(2) })
    expect(earlier.capacity).toBe(LOCK_CAPACITY)
  })

  test('nothing is eligible on a closed name', () => {
    const own = stored('x', null, 0, reader)
    const name = new StoredName({ version: 9n, claims: [own], closedBy, closedForMs: 50 })
    expect(name.queue(own, LOCK_CAPACITY)).toMatchObject({ closedForMs: 50 })
    expect(isEligible(name.queue(own, LOCK_CAPACITY))).toBe(false)
    expect(name.state('x', 0)).toMatchObject({ closedForMs: 50, waiters: [{ id: own.id }] })
  })

  test('G9 only a waiter that is first otherwise looks when the name may be open again', () => {
    const [first, second] = [stored('x', null, 0), stored('x', null, 0)]
    const name = new StoredName({ version: 9n, claims: [first, second], closedBy, closedForMs: 50 })
    expect(name.queue(first, LOCK_CAPACITY).closedForMs).toBe(50)
    expect(name.queue(second, LOCK_CAPACITY).closedForMs).toBeUndefined()
  })

  test('with derived grants, a claim holds that fits beside everything older', () => {
    const [first, writer, last] = [stored('x', null, 0, reader), stored('x', null, 0), stored('x', null, 0)]
    const claims = [first, writer, last]
    const holders = (facts: object) => new StoredName({ version: 9n, claims, ...facts }).holders
    expect(holders({ derivesGrants: true })).toEqual([first])
    expect(holders({ derivesGrants: true, claims: claims.slice(1) })).toEqual([writer])
    expect(holders({})).toEqual([])
  })

  test('with derived grants, a claim that disagrees on the capacity holds nothing, however large its own is', () => {
    const [first, second] = [stored('x', null, 0), stored('x', null, 0)]
    const claims = [
      { ...first, mode: 'permits', weight: 2, capacity: 2 } as const,
      { ...second, mode: 'permits', weight: 1, capacity: 3 } as const,
    ]
    const [held] = claims
    expect(new StoredName({ version: 9n, claims, derivesGrants: true }).holders).toEqual([held])
  })

  test('with derived grants, a claim from before the name was closed goes on holding it', () => {
    const [before, after] = [stored('x', null, 0, reader), stored('x', null, 0, reader)]
    const closed = [{ key: 'closing', order: after.order }]
    const name = new StoredName({
      version: 9n,
      claims: [before, { ...after, order: after.order + 1n }],
      closedBy: closed,
      derivesGrants: true,
    })
    expect(name.holders).toEqual([before])
  })
})
