import { expect, test } from 'vitest'
import { serverFindings } from './findings.ts'

/** Settings of a server that is well. PostgreSQL has `transaction_timeout` since 17, so a server of the tests may lack it. */
const settings = { max_connections: '200', superuser_reserved_connections: '3' }

test.each([
  ['0', []],
  ['14999', ['transaction_timeout is 14999 ms for this client, less than a lease of 15000 ms.']],
  ['15000', []],
])('a transaction_timeout of %s ms is held against the TTL', (timeout, expected) => {
  const facts = {
    settings: new Map(Object.entries({ ...settings, transaction_timeout: timeout })),
    ...{ receivers: 0, connections: 1, oldestTransactionS: 0 },
  }
  expect(serverFindings(facts, { seesWarnings: true }).map(({ what }) => what)).toEqual(expected)
})

test.each([
  [{ max_connections: '10' }, []],
  [{ max_connections: '9' }, ['4 of 6 connections are left.']],
  // Since PostgreSQL 16.
  [{ max_connections: '12', reserved_connections: '2' }, []],
  [{ max_connections: '12', reserved_connections: '3' }, ['4 of 6 connections are left.']],
])('connections that are reserved do not count as left: %j', (further, expected) => {
  const facts = {
    settings: new Map(Object.entries({ ...settings, ...further })),
    ...{ receivers: 0, connections: 2, oldestTransactionS: 0 },
  }
  expect(serverFindings(facts, { seesWarnings: true }).map(({ what }) => what)).toEqual(expected)
})
