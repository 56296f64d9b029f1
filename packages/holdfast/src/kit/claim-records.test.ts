import { describe, expect, test } from 'vitest'
import { permits, request } from '../testing/conformance/requests.ts'
import { claimRecord } from './claim-records.ts'

const session = { id: 'session', holder: 'ada', ttlMs: 6_000 }

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
