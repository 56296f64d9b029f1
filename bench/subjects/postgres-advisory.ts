import { advisoryFloor, advisoryPg, rawAdvisoryPg } from '../postgres/advisory.ts'
import { contender, firstUrl, type Place, type Subject } from '../subject.ts'

export { startServers } from '../postgres/server.ts'

export function subject(place: Place): Subject {
  const url = firstUrl(place)
  return {
    raw: '`pg_try_advisory_lock` and `pg_advisory_unlock` on a connection of the pool, with the same client library; no token, no record',
    remarks: ['Every TTL is 15 s; renewal as by default; 10 connections for the raw locks, one for ours'],
    comparisons: [{ setting: 'pg', contenders: [contender(rawAdvisoryPg(url)), contender(advisoryPg(url))] }],
    contest: {
      waiters: 32,
      holdMs: 1,
      floor: 'The floor is `pg_advisory_lock` on a connection for each waiter; no token, no TTL, no record',
      takers: [advisoryFloor(url), advisoryPg(url, 'holdfast, pg')],
    },
  }
}
