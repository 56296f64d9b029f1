import { describe, expect, test } from 'vitest'
import { LOCK_CAPACITY } from '../spi.ts'
import { permits, request } from '../testing/conformance/requests.ts'
import { claimRecord, nameState, type StoredClaim, toldOf } from './claim-records.ts'

const session = { id: 'session', holder: 'ada', ttlMs: 6_000 }

function stored(name: string, token: bigint | null, sinceMs: number, facts = {}): StoredClaim {
  const asked = { ...request(name), ...facts }
  return { name, mode: 'exclusive', id: `id ${token}`, token, record: claimRecord(asked, session, sinceMs) }
}

describe('a record', () => {
  test('has what others are shown, and whole milliseconds', () => {
    const asked = { ...permits('s', 2, 5), note: 'nightly', owner: 'job 7' }
    expect(claimRecord(asked, session, 1_000.4)).toEqual({
      session,
      weight: 2,
      capacity: 5,
      sinceMs: 1_000,
      note: 'nightly',
      owner: 'job 7',
    })
  })

  test('has nothing for what was not given, and no secret', () => {
    const asked = request('x')
    const record = claimRecord(asked, session, 0)
    expect(Object.keys(record)).toEqual(['session', 'weight', 'capacity', 'sinceMs'])
    expect(JSON.stringify(record)).not.toContain(asked.attempt)
  })
})

describe('the state of a name', () => {
  const nothing = { name: 'x', claims: [], capacity: null, data: undefined, isClosed: false }

  test('there is none if nothing of it is in use', () => {
    expect(nameState(nothing, 5_000)).toBeNull()
  })

  test.each([{ data: '' }, { isClosed: true }, { claims: [stored('x', 1n, 0)] }])(
    'there is one with %o alone',
    (used) => {
      expect(nameState({ ...nothing, ...used }, 5_000)).not.toBeNull()
    },
  )

  test('holders and waiters are apart, each in the order of the queue, with their ages', () => {
    const claims = [
      stored('x', 7n, 1_000, { note: 'n', owner: 'o' }),
      stored('x', null, 2_000),
      stored('x', 8n, 3_000),
      stored('x', null, 4_000),
    ]
    const state = nameState({ ...nothing, claims, capacity: 9, data: 'd' }, 5_000.7)
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
      expiresInMs: 6_000,
    })
  })

  test('a client whose clock is ahead does not make an age negative', () => {
    const claims = [stored('x', 1n, 9_000), stored('x', null, 9_000)]
    const state = nameState({ ...nothing, claims }, 5_000)
    expect([state?.holders[0]?.heldForMs, state?.waiters[0]?.waitingForMs]).toEqual([0, 0])
  })

  test('how long a name stays closed is not told, and without a capacity it is a lock', () => {
    const state = nameState({ ...nothing, isClosed: true }, 5_000)
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
