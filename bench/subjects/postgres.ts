import { verrouOnPostgres } from '../peers/verrou-postgres.ts'
import { holdfastPg, holdfastPostgresJs } from '../postgres/holdfast.ts'
import { notifyFloor } from '../postgres/notify-floor.ts'
import { rawPg, rawPostgresJs } from '../postgres/raw.ts'
import { contender, firstUrl, type Place, type Subject } from '../subject.ts'

export { startServers } from '../postgres/server.ts'

export function subject(place: Place): Subject {
  const url = firstUrl(place)
  return {
    raw: 'a lease row: an upsert where expired, with a token from a sequence, and a DELETE by owner, each its own transaction, with the same client library',
    remarks: [
      'Every TTL is 15 s; renewal as by default; 10 connections for everybody',
      'The raw statements are prepared with postgres.js, as is its default, and not with pg; ours are with both',
    ],
    comparisons: [
      {
        setting: 'pg',
        contenders: [contender(rawPg(url)), contender(holdfastPg(url)), contender(verrouOnPostgres(url))],
      },
      {
        setting: 'postgres.js',
        contenders: [contender(rawPostgresJs(url)), contender(holdfastPostgresJs(url))],
      },
    ],
    contest: {
      waiters: 32,
      holdMs: 1,
      floor: 'The floor is a NOTIFY to the next of a line that the client keeps; no owner, no TTL, no row',
      takers: [
        notifyFloor(url),
        holdfastPg(url, 'holdfast, pg'),
        holdfastPostgresJs(url, 'holdfast, postgres.js'),
      ],
    },
  }
}
