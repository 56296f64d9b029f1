// Cost of each call at the server.
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { acquiring, applySql, rowsOf } from '../../../../test/postgres/requests.ts'
import { call, exclusive, openSession, Stage, until } from '../../../../test/postgres/stage.ts'
import { listAll } from '../../../kit/backend-kit.ts'

describe.runIf(wanted('postgres'))('postgres traffic', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres({ settings: { autovacuum: 'off' } })
  })
  afterAll(() => server?.stop())

  test('10,000 held leases are one updated row and one statement per interval', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend()
    const session = await openSession(backend)
    const held = Array.from({ length: 10_000 }, (_, i) => exclusive(`many/${i}`))
    for (let i = 0; i < held.length; i += 500)
      await Promise.all(held.slice(i, i + 500).map((request) => session.tryAcquire(request, call())))
    const operator = await stage.operator()
    // Statistics are sent with a delay.
    await until('all of them are counted', async () => (await rowsWritten(operator)).others > held.length)
    const before = await rowsWritten(operator)
    const statements = backend.statistics.statements
    for (let i = 0; i < 3; i++) {
      const kept = await session.keepAlive({ held, waiting: [] }, call())
      expect(kept).toMatchObject({ kind: 'alive', lost: [], unlisted: [] })
    }
    expect(backend.statistics.statements - statements).toBe(3)
    await until(
      'statistics have arrived',
      async () => (await rowsWritten(operator)).updates - before.updates >= 3,
    )
    const after = await rowsWritten(operator)
    expect({ updates: after.updates - before.updates, others: after.others - before.others }).toEqual({
      updates: 3,
      others: 0,
    })
    await session.close(call())
    expect(await listAll(backend, 'many/', call())).toEqual([])
  })

  test('a batch reads as little after thousands of grants and releases of the same names as at first', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'worn' })
    const session = await openSession(backend)
    const names = Array.from({ length: 32 }, (_, index) => `worn/${index}`)
    for (let round = 0; round < 100; round++) {
      const held = names.map((name) => exclusive(name))
      await Promise.all(held.map((request) => session.tryAcquire(request, call())))
      await Promise.all(held.map((claim) => session.release(claim, { keepForMs: 0 }, call())))
    }
    const operator = await stage.operator()
    await operator.query('BEGIN')
    const { rows } = await operator.query(
      applySql(
        'worn',
        names.map((name) => acquiring(name, `again/${name}`)),
      ),
    )
    const kinds = rowsOf(rows[0].answer).map(([, , kind]) => kind)
    expect(kinds).toEqual(names.map(() => 'granted'))
    const read = await operator.query(
      "SELECT pg_stat_get_xact_tuples_returned('worn.holders_pkey'::regclass)::int AS entries",
    )
    await operator.query('ROLLBACK')
    // Every name has been granted a hundred times, and most of what that left behind is passed over.
    expect(read.rows[0].entries).toBeLessThan(100 * names.length)
  })

  test('renewals leave no bloat: dead rows stay bounded without any vacuum, and no index grows', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'bloat' })
    const sessions = []
    for (let i = 0; i < 20; i++) sessions.push(await openSession(backend))
    const operator = await stage.operator()
    const indexes = () =>
      operator.query(
        "SELECT sum(pg_relation_size(indexrelid))::int AS bytes FROM pg_stat_user_indexes WHERE schemaname = 'bloat'",
      )
    const before = (await indexes()).rows[0].bytes
    const renewals = 60
    for (let i = 0; i < renewals; i++)
      await Promise.all(sessions.map((session) => session.keepAlive({ held: [], waiting: [] }, call())))
    // Statistics are sent with a delay.
    const dead = async () => {
      await operator.query('SELECT pg_stat_clear_snapshot()')
      const { rows } = await operator.query(
        "SELECT n_tup_upd::int AS updates, n_dead_tup::int AS dead FROM pg_stat_user_tables WHERE schemaname = 'bloat' AND relname = 'sessions'",
      )
      return rows[0] as { updates: number; dead: number }
    }
    await until(
      'statistics have arrived',
      async () => (await dead()).updates >= renewals * sessions.length * 0.9,
    )
    expect((await dead()).dead).toBeLessThan((renewals * sessions.length) / 4)
    expect((await indexes()).rows[0].bytes).toBe(before)
    const { rows } = await operator.query("SELECT pg_relation_size('bloat.sessions')::int AS bytes")
    expect(rows[0].bytes).toBeLessThan(20 * 8_192)
  })
})

async function rowsWritten(operator: pg.Client): Promise<{ updates: number; others: number }> {
  await operator.query('SELECT pg_stat_clear_snapshot()')
  const { rows } = await operator.query(
    "SELECT sum(n_tup_upd)::int AS updates, sum(n_tup_ins + n_tup_del)::int AS others FROM pg_stat_user_tables WHERE schemaname = 'holdfast'",
  )
  return rows[0]
}
