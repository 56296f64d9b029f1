import { expect, test } from 'vitest'
import type { LeaseRecord } from './lease.ts'
import { SessionLeases } from './session-leases.ts'

const leaseOn = (name: string) => ({ claim: { name } }) as LeaseRecord

test('finds the leases on a name, one or several, for as long as they are there', () => {
  const leases = new SessionLeases()
  const [first, second, other] = [leaseOn('a'), leaseOn('a'), leaseOn('b')]
  leases.set('1', first)
  leases.set('1', first)
  leases.set('3', other)
  expect([...leases.onName('a')]).toEqual([first])
  leases.set('2', second)
  expect([...leases.onName('a')]).toEqual([first, second])
  expect([...leases.onName('c')]).toEqual([])
  expect(leases.delete('1')).toBe(true)
  expect(leases.delete('1')).toBe(false)
  expect([...leases.onName('a')]).toEqual([second])
  leases.delete('2')
  expect([...leases.onName('a')]).toEqual([])
  expect([...leases.onName('b')]).toEqual([other])
  leases.clear()
  expect([...leases.onName('b')]).toEqual([])
})
