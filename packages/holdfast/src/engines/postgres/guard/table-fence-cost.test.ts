/** Cost of the triggers of a fenced table: one judgement for a fence and a transaction, however many rows and fences. */
import assert from 'node:assert/strict'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { formatFence } from '../../../base/fence-text.ts'
import { postgresGuard, showFence, tableFence, writeRefusalOf } from './postgres-guard.ts'

const ROWS = 200

describe.runIf(wanted('postgres'))('the cost of a fenced table', () => {
  let server: Server
  let pool: pg.Pool
  let client: pg.PoolClient
  const whole = tableFence({ table: 'accounts', name: 'accounts' })
  const byRow = tableFence({ table: 'accounts', name: 'account/', column: 'id' })

  beforeAll(async () => {
    // Nothing but the test makes statistics.
    server = await startPostgres({ settings: { autovacuum: 'off', track_functions: 'all' } })
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
    client = await pool.connect()
    await pool.query('CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)')
    await pool.query(`INSERT INTO accounts SELECT i, 0 FROM generate_series(1, ${ROWS}) AS i`)
  })
  afterAll(async () => {
    client?.release()
    await pool?.end()
    await server?.stop()
  })
  beforeEach(async () => {
    await client.query('ROLLBACK')
    await pool.query('DROP SCHEMA IF EXISTS holdfast CASCADE')
  })

  const show = (text: string, from: pg.ClientBase = client) =>
    from.query("SELECT set_config('holdfast.fence', $1, true)", [text])
  const accounts = (token: bigint) => formatFence(fence(token, 'accounts'))
  const update = 'UPDATE accounts SET balance = balance + 1'
  const refusal = async (work: Promise<unknown>) =>
    work.then(
      () => 'written',
      (error) => writeRefusalOf(error) ?? error,
    )

  /** How often functions of Holdfast are called, and rows of its tables read, in the transaction so far. */
  const counted = async () => {
    const { rows } = await client.query(`
      SELECT (SELECT coalesce(sum(pg_stat_get_xact_function_calls(oid)), 0)::int FROM pg_proc
          WHERE pronamespace = 'holdfast'::regnamespace AND proname <> 'fence_row') AS calls,
        (SELECT sum(pg_stat_get_xact_tuples_returned(oid))::int FROM pg_class
          WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')) AS reads`)
    return rows[0] as { calls: number; reads: number }
  }
  const costOf = async (work: () => Promise<unknown>) => {
    const before = await counted()
    await work()
    const after = await counted()
    return { calls: after.calls - before.calls, reads: after.reads - before.reads }
  }

  test('a write of many rows under one fence is judged once, also with others shown and in many partitions', async () => {
    await pool.query(`
      CREATE TABLE spread (id int, balance int) PARTITION BY HASH (id);
      CREATE TABLE spread_0 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 0);
      CREATE TABLE spread_1 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
    await whole.install(pool)
    for (const table of ['spread_0', 'spread_1']) await tableFence({ table, name: 'accounts' }).install(pool)
    await client.query('BEGIN')
    await show(`${formatFence(fence(1n, 'another'))} ${accounts(5n)}`)
    const insert = `INSERT INTO spread SELECT id, balance FROM accounts`
    for (const statement of [update, insert, 'DELETE FROM spread']) {
      const { calls, reads } = await costOf(() => client.query(statement))
      assert.ok(calls < ROWS / 4 && reads < ROWS / 4, `${statement}: ${calls} calls, ${reads} reads`)
    }
    await client.query('COMMIT')
    await whole.remove(pool)
    await pool.query('DROP TABLE spread')
  })

  test.each(['at once', 'one by one'])('each row finds its fence among many, shown %s', async (way) => {
    await byRow.install(pool)
    const fences = Array.from({ length: ROWS }, (_, at) => fence(5n, `account/${at + 1}`))
    await client.query('BEGIN')
    const { calls, reads } = await costOf(async () => {
      if (way === 'at once') {
        await showFence(client, fences)
        await client.query(update)
      } else
        for (const each of fences) {
          await showFence(client, each)
          await client.query(`${update} WHERE id = ${each.name.slice('account/'.length)}`)
        }
    })
    await client.query('COMMIT')
    assert.ok(calls < 12 * ROWS && reads < 12 * ROWS, `${calls} calls, ${reads} reads`)
    await byRow.remove(pool)
  })

  test('T83 with plans made while the guard remembered nothing, a row reads its own mark only', async () => {
    await byRow.install(pool)
    const write = async (id: number) => {
      await client.query('BEGIN')
      await show(formatFence(fence(5n, `account/${id}`)))
      const cost = await costOf(() => client.query(`${update} WHERE id = ${id}`))
      await client.query('COMMIT')
      return cost.reads
    }
    await write(1)
    await client.query('VACUUM ANALYZE holdfast.guard_names, holdfast.guards, holdfast.guard_issuers')
    // PostgreSQL makes a plan for every call at first, and one for all calls later.
    for (let id = 1; id < 12; id++) await write(id)
    await client.query(`
      INSERT INTO holdfast.guard_names SELECT 'default', 'other/' || i, 'i', 'exclusive', 5, 'g', 5, 0
      FROM generate_series(1, 11000) AS i`)
    const reads = [await write(1), await write(100)]
    assert.ok(Math.max(...reads) < 100, `${reads} reads`)
    await byRow.remove(pool)
  })

  test('G5 a pass ends with the savepoint under which the mark was locked', async () => {
    await whole.install(pool)
    await client.query('BEGIN')
    await show(accounts(5n))
    await client.query('SAVEPOINT before_write')
    await client.query(update)
    await client.query('ROLLBACK TO before_write')
    const newer = await pool.connect()
    await newer.query('BEGIN')
    await show(accounts(6n), newer)
    await newer.query(update)
    await newer.query('COMMIT')
    newer.release()
    assert.equal(await refusal(client.query(update)), 'stale')
    await client.query('ROLLBACK')
    await whole.remove(pool)
  })

  test('G5 a pass is for the fences that are shown, for one name and one guard, and for one transaction', async () => {
    await pool.query('CREATE TABLE others (id int)')
    const elsewhere = tableFence({ table: 'others', name: 'accounts', guard: 'elsewhere', issuers: ['o'] })
    await whole.install(pool)
    await elsewhere.install(pool)
    const attempt = async (...steps: readonly (() => Promise<unknown>)[]) => {
      await client.query('BEGIN')
      const [last] = await Promise.allSettled([
        (async () => {
          for (const step of steps) await step()
        })(),
      ])
      await client.query('ROLLBACK')
      return last.status === 'fulfilled' ? 'written' : writeRefusalOf(last.reason)
    }
    const write = () => client.query(update)
    const insert = () => client.query('INSERT INTO others VALUES (1)')
    assert.equal(
      await attempt(
        () => show(accounts(5n)),
        write,
        () => show(''),
        write,
      ),
      'missing',
    )
    assert.equal(
      await attempt(
        () => show(accounts(6n)),
        write,
        () => show(accounts(5n)),
        write,
      ),
      'stale',
    )
    assert.equal(await attempt(() => show(accounts(5n)), write, insert), 'foreign')
    await client.query('BEGIN')
    await show(accounts(5n))
    await write()
    const { rows } = await client.query("SELECT current_setting('holdfast.fence_pass') AS pass")
    assert.match(rows[0].pass, /accounts/)
    await client.query('COMMIT')
    await postgresGuard({ client: pool }).run(fence(6n, 'accounts'), () => {})
    // As if a session kept it.
    await client.query(`SET holdfast.fence_pass = '${rows[0].pass}'; SET holdfast.fence = '${accounts(5n)}'`)
    await client.query(
      "SELECT set_config('holdfast.fence_tables', ' ' || 'accounts'::regclass::oid || ' ', false)",
    )
    assert.equal(await refusal(write()), 'stale')
    await client.query('RESET ALL')
    await whole.remove(pool)
    await pool.query('DROP TABLE others')
  })

  test('T80 a table whose owner may not use the function is refused, also after a pass for another table', async () => {
    await pool.query(`
      CREATE ROLE guest;
      CREATE TABLE parts_of (id int) PARTITION BY LIST (id);
      CREATE TABLE parts_of_1 PARTITION OF parts_of FOR VALUES IN (1);
      CREATE TABLE parts_of_2 PARTITION OF parts_of FOR VALUES IN (2)`)
    for (const table of ['parts_of_1', 'parts_of_2'])
      await tableFence({ table, name: 'accounts' }).install(pool)
    await pool.query('ALTER TABLE parts_of_2 OWNER TO guest')
    await client.query('BEGIN')
    await show(accounts(5n))
    await client.query('INSERT INTO parts_of VALUES (1)')
    await assert.rejects(client.query('INSERT INTO parts_of VALUES (2)'), { code: '42501' })
    await client.query('ROLLBACK')
    await pool.query('DROP TABLE parts_of; DROP ROLE guest')
  })
})
