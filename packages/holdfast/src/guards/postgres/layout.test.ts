/** The guard's tables: who makes them, and when they are refused. */
import assert from 'node:assert/strict'
import { reach, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fence } from '../../../test/guard-table.ts'
import { libraries } from '../../../test/postgres/clients.ts'
import { statementsOf } from '../../clients/postgres/tables.ts'
import { postgresGuard, postgresGuardSchema, tableFence } from '../postgres.ts'

describe.runIf(wanted('postgres'))('the tables of postgresGuard', () => {
  let server: Awaited<ReturnType<typeof reach>>
  let pool: pg.Pool
  beforeAll(async () => {
    server = await reach('postgres')
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
    for (const schema of ['many', 'by_hand', 'nobody', 'newer', 'Odd "one"'])
      await pool.query(`DROP SCHEMA IF EXISTS "${schema.replaceAll('"', '""')}" CASCADE`)
  }, 60_000)
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })

  test('many processes that start at once do not collide', async () => {
    const opened = Array.from({ length: 12 }, (_, at) => libraries[at % 2]?.open(server.url, { max: 1 }))
    const runs = opened.map(async (each, at) => {
      if (each === undefined) return
      await postgresGuard({ client: each.client, schema: 'many' }).run(fence(1n, `n${at}`), () => {})
    })
    await Promise.all(runs)
    for (const each of opened) await each?.[Symbol.asyncDispose]()
    const { rows } = await pool.query('SELECT count(*)::int AS names FROM many.guard_names')
    assert.equal(rows[0].names, 12)
  })

  test('those who apply migrations themselves print them; they can be run again, and are enough', async () => {
    const sql = postgresGuardSchema({ schema: 'by_hand' })
    const guard = postgresGuard({ client: pool, schema: 'by_hand', createSchema: false })
    await assert.rejects(guard.highest('n'), (error: Error & { code?: string }) => {
      assert.equal(error.code, 'UNSUPPORTED')
      assert.match(error.message, /postgresGuardSchema\(\)/)
      return true
    })
    await pool.query(sql)
    await pool.query(sql)
    await guard.run(fence(1n), () => {})
    assert.equal((await guard.highest('n'))?.token, 1n)
  })

  test('the printed SQL is the same when it is applied a statement at a time', () => {
    const sql = postgresGuardSchema()
    const statements = statementsOf(sql)
    assert.ok(statements.length > 8)
    assert.equal(statements.join('\n').replaceAll(/\s+/g, ''), sql.replaceAll(/\s+/g, ''))
    for (const each of statements) assert.match(each.trim(), /^(CREATE|INSERT)[\s\S]*;$/)
  })

  test('tables of a later release are refused, and left alone', async () => {
    await postgresGuard({ client: pool, schema: 'newer' }).highest('n')
    await pool.query("UPDATE newer.parts SET version = 2 WHERE part = 'guards'")
    const refused = { code: 'UNSUPPORTED', message: /layout 2.*knows 1/ }
    await assert.rejects(postgresGuard({ client: pool, schema: 'newer' }).highest('n'), refused)
    await assert.rejects(
      postgresGuard({ client: pool, schema: 'newer' }).run(fence(1n), () => {}),
      refused,
    )
  })

  test('a user who may not create them is told who should', async () => {
    await pool.query('DROP ROLE IF EXISTS guest')
    await pool.query('CREATE ROLE guest LOGIN')
    const url = new URL(server.url)
    url.username = 'guest'
    const guest = new pg.Pool({ connectionString: url.href, max: 1 })
    const refused = postgresGuard({ client: guest, schema: 'nobody' }).highest('n')
    await assert.rejects(refused, { code: 'UNSUPPORTED', message: /may not create.*grant/ })
    await guest.end()
    await pool.query('DROP ROLE guest')
  })

  test('a schema with an odd name is quoted, and one with an impossible name refused', async () => {
    const guard = postgresGuard({ client: pool, schema: 'Odd "one"' })
    await guard.run(fence(1n), () => {})
    assert.equal((await guard.highest('n'))?.token, 1n)
    for (const schema of ['', 'x'.repeat(64), 'a\0b', 5 as unknown as string])
      assert.throws(() => postgresGuard({ client: pool, schema }), { code: 'INVALID_ARGUMENT' })
  })

  test('options that make no sense are refused', () => {
    for (const options of [
      {},
      { client: {} },
      { client: pool, isolation: 'dirty' },
      { client: pool, createSchema: 1 },
      { client: pool, pool },
    ])
      assert.throws(() => postgresGuard(options as never), { code: 'INVALID_ARGUMENT' })
    for (const options of [
      undefined,
      { table: 'a.b.c', name: 'n' },
      { table: 't' },
      { table: 't', name: '' },
      { table: 't', name: 'n', column: '' },
      { table: 't', name: 'n', issuers: [] },
    ])
      assert.throws(() => tableFence(options as never), { code: 'INVALID_ARGUMENT' })
  })
})
