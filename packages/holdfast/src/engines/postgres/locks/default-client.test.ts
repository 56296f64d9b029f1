// postgres.js as people make it: with an address, and nothing else. It then asks for array types by itself whenever it connects,
// prepares its statements, and sends several at once. Behind a pooler it must not prepare them, as its documentation says.
import { startPooledPostgres, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import postgresJs from 'postgres'
import { describe, expect, test } from 'vitest'
import { createLocker } from '../../../locker/locker.ts'
import { postgres } from './index.ts'

const ways = [
  { way: 'directly', start: startPostgres, isWanted: wanted('postgres') },
  {
    way: 'through PgBouncer in transaction mode',
    start: startPooledPostgres,
    isWanted: wanted('postgres') && wanted('pgbouncer'),
  },
]

describe.each(ways)('$way', ({ way, start, isWanted }) => {
  test.runIf(isWanted)(
    `T51 T50 postgres.js with its default options takes turns ${way}, and goes on when its connections have ended`,
    async () => {
      await using reached = await start()
      const serverUrl = 'postgres' in reached ? reached.postgres.url : reached.url
      const options = 'postgres' in reached ? { prepare: false } : {}
      const clients = [postgresJs(reached.url, options), postgresJs(reached.url, options)]
      const lockers = await Promise.all(
        clients.map(async (client) => createLocker(await postgres({ client, namespace: 'default-client' }))),
      )
      const operator = new pg.Client(serverUrl)
      await operator.connect()
      let inside = 0
      const tokens: bigint[] = []
      const turn = (name: string, index: number) =>
        lockers[index % 2]?.withLease(name, { waitMs: 30_000 }, async (lease) => {
          expect(++inside).toBe(1)
          tokens.push(lease.fence.token)
          await lease.renew()
          inside--
        })
      for (const round of ['first', 'after the end']) {
        await Promise.all(Array.from({ length: 12 }, (_, index) => turn(round, index)))
        await operator.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE pid <> pg_backend_pid() AND datname = current_database() AND state = 'idle'`,
        )
        await expect.poll(() => lockers[0]?.list('').catch(() => 'not yet')).toEqual([])
      }
      expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
      expect(new Set(tokens).size).toBe(24)
      await Promise.all(lockers.map((locker) => locker.close()))
      await Promise.all(clients.map((client) => client.end({ timeout: 1 })))
      await operator.end()
    },
  )
})
