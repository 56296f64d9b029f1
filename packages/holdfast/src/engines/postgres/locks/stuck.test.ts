/** Locks of the server that are stuck, and callers who do not wait for them for ever. */
import { changedSchema } from 'holdfast-lab/bugs'
import { startPgBouncer, startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import type { Call } from '../../../spi.ts'
import { LOCK_SEED, LONGEST_LOCK_WAIT_MS } from './sql/locks.ts'

const WAITING = "SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

/** Holds the lock of a name, or the row of a session, in a transaction that does not end. */
const stuck = {
  'the lock of a name': `SELECT pg_advisory_xact_lock(hashtextextended('default' || chr(31) || 'x', ${LOCK_SEED}))`,
  'the row of a session': 'SELECT 1 FROM holdfast.sessions FOR UPDATE',
}
const ways = [
  { way: 'directly', isWanted: wanted('postgres') },
  { way: 'through a pooler', isWanted: wanted('postgres') && wanted('pgbouncer') },
]

/** As it is, but for the time: that of the library would make this test wait for seconds. */
const schemaSql = changedSchema('holdfast', [
  { file: 'sql/locks.ts', find: `'${LONGEST_LOCK_WAIT_MS}'`, replaceBy: "'200'" },
])

function cancelledSoon(): Call {
  return callWith(AbortSignal.timeout(40))
}

describe.each(ways)('$way', ({ way, isWanted }) => {
  describe.each(libraries)('with $name', (library) => {
    test.runIf(isWanted).each(Object.entries(stuck))(
      'G6 calls that were cancelled behind %s do not pile up in the server',
      async (what, sql) => {
        await using server = await startPostgres()
        await using bouncer = way === 'directly' ? null : await startPgBouncer({ postgres: server })
        await using stage = new Stage(server.url)
        const clients = { max: 3, fetchTypes: false, prepare: way === 'directly' }
        const backend = await stage.backend(
          { library, url: bouncer?.url ?? server.url, clients },
          { schemaSql },
        )
        const session = await openSession(backend, 600_000)
        // Not the same: a transaction sees the activity of the server as it was at its first look.
        const [operator, onlooker] = [await stage.operator(), await stage.operator()]
        await operator.query('BEGIN')
        await operator.query(sql)
        const ask = () =>
          what === 'the lock of a name'
            ? session.tryAcquire(exclusive('x'), cancelledSoon())
            : session.keepAlive({ held: [], waiting: [] }, cancelledSoon())
        let most = 0
        for (let calls = 0; calls < 25; calls++) {
          const refused = await ask().catch((error: unknown) => error)
          expect(refused).toBeInstanceOf(BackendUnavailableError)
          most = Math.max(most, (await onlooker.query(WAITING)).rows[0].n)
        }
        // Those whose wait for the lock is not over yet.
        expect(most).toBeLessThan(10)
        await until('no process of the server waits any more', async () => {
          return (await onlooker.query(WAITING)).rows[0].n === 0
        })
        await operator.query('ROLLBACK')
        await take(session, exclusive('x'))
        expect(most).toBeGreaterThan(0)
      },
    )
  })
})

describe.runIf(wanted('postgres'))('a caller that goes on waiting', () => {
  test.each(libraries)(
    'G11 with $name, hears that nothing was applied, and neither that it is busy nor nothing at all',
    async (library) => {
      await using server = await startPostgres()
      await using stage = new Stage(server.url)
      const session = await openSession(await stage.backend({ library }, { schemaSql }), 600_000)
      const operator = await stage.operator()
      await operator.query('BEGIN')
      await operator.query(stuck['the lock of a name'])
      const patient: Call = callWith()
      await expect(session.tryAcquire(exclusive('x'), patient)).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        outcome: 'not-applied',
        message: /lock timeout/,
      })
      await operator.query('ROLLBACK')
      await take(session, exclusive('x'))
    },
  )
})
