import { expect, test } from 'vitest'
import type { Attempt } from './attempt.ts'
import type { LeaseRecord } from './lease.ts'
import { SessionAttempts } from './session-attempts.ts'

test('finds the leases on a name, one or several, for as long as they are held', () => {
  const attempts = new SessionAttempts<'fenced'>()
  const hold = (attempt: string, name: string) => {
    const lease = { claim: { name, attempt } } as LeaseRecord
    attempts.set(attempt, { state: 'held', lease } as Attempt<'fenced'>)
    attempts.noteHeld(lease)
    return lease
  }
  const on = (name: string) => [...attempts.leasesOn(name)]
  const [first, other] = [hold('1', 'a'), hold('3', 'b')]
  attempts.set('4', { state: 'unresolved', claim: { name: 'a', attempt: '4' }, closedUntilMs: 0 })
  attempts.set('5', { state: 'waiting' } as Attempt<'fenced'>)
  expect(on('a')).toEqual([first])
  const second = hold('2', 'a')
  expect(on('a')).toEqual([first, second])
  expect(on('c')).toEqual([])
  attempts.noteEnded(first, 'lingering')
  expect(on('a')).toEqual([second])
  expect([...attempts.leases()]).toEqual([other, second])
  attempts.noteEnded(first, 'over')
  attempts.noteEnded(second, 'releasing')
  expect(on('a')).toEqual([])
  expect(on('b')).toEqual([other])
  attempts.noteEnded(other, 'over')
  expect(on('b')).toEqual([])
})
