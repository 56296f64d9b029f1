/** The statements that a lock connection keeps must not depend on how small the table was when they were planned. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { advisoryPart } from './schema.ts'
import { statementsFor } from './statements.ts'

describe.runIf(wanted('postgres'))('plans on postgres-advisory', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres({ settings: { autovacuum: 'off' } })
  }, 60_000)
  afterAll(() => server?.stop())

  test('T83 with plans made while the table was small, an acquire reads its own record only', async () => {
    const client = new pg.Client(server.url)
    await client.connect()
    await client.query(`CREATE SCHEMA plans; ${advisoryPart.sql('"plans"')}`)
    const sql = statementsFor('plans')
    const conn = '7'
    await client.query(sql.openSession.text, [conn, '600000', 'somebody', 'nobody', 'default', 'public'])
    let key = 0
    const grab = async () => {
      const { rows } = await client.query({
        ...sql.grab,
        values: ['1', conn, String(++key), 'x', 'id', null, null],
      })
      expect(rows).toHaveLength(1)
    }
    const first = await client.query({
      ...sql.try,
      values: [conn, '1', 'x', '100000', 'default', 'x', 'id', null, null, '0'],
    })
    expect(first.rows).toHaveLength(1)
    await client.query('VACUUM ANALYZE plans.advisory_claims')
    // PostgreSQL makes a plan for every call at first, and one for all calls later.
    for (let made = 0; made < 8; made++) await grab()
    await client.query(`INSERT INTO plans.advisory_claims
      SELECT 8, i, i, i, now(), 8, 'default', 'other/' || i, 'other', 'exclusive' FROM generate_series(1, 11000) AS i`)
    const entries = async () => {
      const { rows } = await client.query(`
        SELECT sum(pg_stat_get_xact_tuples_returned(oid))::int AS entries FROM pg_class
        WHERE relnamespace = 'plans'::regnamespace AND relkind IN ('r', 'i')`)
      return rows[0].entries
    }
    await client.query('BEGIN')
    const before = await entries()
    await grab()
    expect((await entries()) - before).toBeLessThan(100)
    await client.query('COMMIT')
    await client.end()
  })
})
