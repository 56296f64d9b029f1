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
  })
  afterAll(() => server?.stop())

  test('T83 with plans made while the table was small, a call reads its own record only', async () => {
    const client = new pg.Client(server.url)
    await client.connect()
    await client.query(`CREATE SCHEMA plans; ${advisoryPart.sql('"plans"')}`)
    const sql = statementsFor('plans')
    const conn = '7'
    await client.query(sql.open.text, [conn, '600000'])
    await client.query(sql.register.text, [conn, 'default', 'public', 'test', '600000'])
    let key = 0
    const apply = async (releases: object[] | null, acquires: object[] | null) => {
      const [released, asked] = [releases, acquires].map((each) => each && JSON.stringify(each))
      const values = [conn, 'default', '0', 'false', released, asked]
      const { rows } = await client.query({ ...sql.apply, values })
      expect(rows).toHaveLength((acquires ?? releases)?.length ?? 0)
    }
    const pair = async () => {
      const claim = { mode: 'exclusive', key: String(++key), slot: 1 }
      await apply(null, [{ ...claim, name: 'x', id: 'id' }])
      await apply([claim], null)
      const one = [conn, String(++key), '1']
      await client.query({ ...sql.take, values: [...one, '0', 'x', 'id', null, null] })
      await client.query({ ...sql.free, values: one.slice(0, 2) })
      await client.query({ ...sql.keep, values: [conn] })
    }
    await pair()
    await client.query('VACUUM ANALYZE plans.advisory_holders')
    // PostgreSQL makes a plan for every call at first, and one for all calls later.
    for (let made = 0; made < 8; made++) await pair()
    await client.query(`INSERT INTO plans.advisory_holders
      SELECT 7, i, i, i, now(), 'default', 'other/' || i, 'other', 'exclusive' FROM generate_series(2, 11000) AS i`)
    const entries = async () => {
      const { rows } = await client.query(`
        SELECT sum(pg_stat_get_xact_tuples_returned(oid))::int AS entries FROM pg_class
        WHERE relnamespace = 'plans'::regnamespace AND relkind IN ('r', 'i')`)
      return rows[0].entries
    }
    await client.query('BEGIN')
    const before = await entries()
    await pair()
    expect((await entries()) - before).toBeLessThan(100)
    await client.query('COMMIT')
    await client.end()
  })
})
