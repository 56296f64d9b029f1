/** The guard's tables: who makes them, and when they are refused. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { reach, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { libraries } from '../../../../test/postgres/clients.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { postgresGuard, postgresGuardSchema, tableFence } from './postgres-guard.ts'

describe.runIf(wanted('postgres'))('the tables of postgresGuard', () => {
  let server: Awaited<ReturnType<typeof reach>>
  let pool: pg.Pool
  beforeAll(async () => {
    server = await reach('postgres')
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
    for (const schema of ['many', 'by_hand', 'nobody', 'Odd "one"', "o'clock", 'read_only'])
      await pool.query(`DROP SCHEMA IF EXISTS "${schema.replaceAll('"', '""')}" CASCADE`)
  })
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

  test('migrations can be printed and applied by hand; they can be run again, and are enough', async () => {
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

  test.each([0, 2])('tables of layout %i are refused, with what to do, and left alone', async (version) => {
    await pool.query('DROP SCHEMA IF EXISTS other CASCADE')
    await postgresGuard({ client: pool, schema: 'other' }).highest('n')
    await pool.query("UPDATE other.parts SET version = $1 WHERE part = 'guards'", [version])
    const guard = postgresGuard({ client: pool, schema: 'other' })
    const refused = {
      code: 'UNSUPPORTED',
      message: new RegExp(`layout ${version}.*knows 1.*another schema`),
    }
    await assert.rejects(guard.highest('n'), refused)
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      refused,
    )
    await pool.query('CREATE TABLE other.fenced (id int)')
    const fenced = tableFence({ table: 'other.fenced', name: 'n', schema: 'other' })
    await assert.rejects(fenced.install(pool), refused)
    const { rows } = await pool.query("SELECT version FROM other.parts WHERE part = 'guards'")
    assert.deepEqual(rows, [{ version }])
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
    for (const schema of ['Odd "one"', "o'clock"]) {
      const guard = postgresGuard({ client: pool, schema })
      await guard.run(fence(1n), () => {})
      assert.equal((await guard.highest('n'))?.token, 1n)
    }
    for (const schema of [
      '',
      'x'.repeat(64),
      'a\0b',
      5 as unknown as string,
      'a$$b',
      'pg_mine',
      'a\\b',
      'a;\nb',
    ])
      for (const use of [
        () => postgresGuard({ client: pool, schema }),
        () => postgresGuardSchema({ schema }),
        () => tableFence({ table: 't', name: 'n', schema }),
      ])
        assert.throws(use, { code: 'INVALID_ARGUMENT', argument: 'schema' })
  })

  test('the grants on the page are enough', async () => {
    const page = readFileSync(new URL('../../../../../../docs/guards.md', import.meta.url), 'utf8')
    const grants = page.match(/^GRANT .*;$/gm) ?? []
    assert.equal(grants.length, 2)
    await pool.query('DROP DATABASE IF EXISTS granted_guard')
    await pool.query('CREATE DATABASE granted_guard')
    const url = new URL(server.url)
    url.pathname = 'granted_guard'
    const owner = new pg.Pool({ connectionString: url.href, max: 1 })
    await owner.query(postgresGuardSchema())
    await owner.query('DROP ROLE IF EXISTS app')
    await owner.query('CREATE ROLE app LOGIN')
    for (const grant of grants) await owner.query(grant)
    url.username = 'app'
    const client = new pg.Pool({ connectionString: url.href, max: 2 })
    const guard = postgresGuard({ client, createSchema: false })
    await guard.run(fence(5n), () => {})
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      { code: 'FENCE_STALE' },
    )
    assert.equal((await guard.highest('n'))?.token, 5n)
    await guard.prune({ untouchedForMs: 0 })
    await Promise.all([client.end(), owner.end()])
    await pool.query('DROP DATABASE granted_guard')
    await pool.query('DROP ROLE app')
  })

  test('a right that is missing is said as such, and what an effect itself gets wrong stays its own', async () => {
    await pool.query(postgresGuardSchema({ schema: 'read_only' }))
    await pool.query('CREATE ROLE reader LOGIN')
    await pool.query('GRANT USAGE ON SCHEMA read_only TO reader')
    await pool.query('GRANT SELECT ON ALL TABLES IN SCHEMA read_only TO reader')
    const url = new URL(server.url)
    url.username = 'reader'
    for (const library of libraries) {
      await using opened = library.open(url.href, { max: 2 })
      const guard = postgresGuard({ client: opened.client, schema: 'read_only' })
      let effects = 0
      const refused = guard.run(fence(1n), () => {
        effects++
      })
      await assert.rejects(refused, {
        code: 'UNSUPPORTED',
        retryable: false,
        message: /42501.*grant it USAGE/s,
      })
      assert.equal(effects, 0)
      await using own = library.open(server.url, { max: 2 })
      const mine = postgresGuard({ client: own.client })
      const text = 'SELECT FROM nowhere'
      const lost = mine.run(fence(1n, `effect ${library.name}`), async (tx) => {
        await ('unsafe' in tx ? tx.unsafe(text).values() : tx.query({ text, rowMode: 'array' }))
      })
      await assert.rejects(lost, (error: Error & { code?: string }) => {
        assert.equal(error.code, '42P01')
        assert.equal(isHoldfastError(error), false)
        return true
      })
    }
    await pool.query('DROP OWNED BY reader')
    await pool.query('DROP ROLE reader')
  })

  test('options that make no sense are refused', () => {
    for (const options of [
      {},
      { client: {} },
      { client: pool, isolation: 'dirty' },
      { client: pool, createSchema: 1 },
      { client: pool, pool },
      pool,
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
