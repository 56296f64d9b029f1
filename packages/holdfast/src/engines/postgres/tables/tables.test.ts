import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { postgresDatabase } from '../client/database.ts'
import { ensureTables, READ_AND_WRITE, type TablePart, tablesSql } from './tables.ts'

const first: TablePart = {
  part: 'tests',
  version: 1,
  relations: { things: READ_AND_WRITE, thing_numbers: ['USAGE'] },
  printedBy: 'testSchema()',
  sql: (s) => `
CREATE TABLE IF NOT EXISTS ${s}.things (id integer PRIMARY KEY);
CREATE SEQUENCE IF NOT EXISTS ${s}.thing_numbers;
CREATE OR REPLACE FUNCTION ${s}.thing() RETURNS integer LANGUAGE sql AS $$ SELECT 1; $$;`,
}

describe.runIf(wanted('postgres'))('what Holdfast keeps in PostgreSQL', () => {
  let server: Server
  let operator: pg.Pool
  beforeAll(async () => {
    server = await startPostgres()
    operator = new pg.Pool({ connectionString: server.url, max: 2 })
    await operator.query('CREATE ROLE stranger LOGIN; CREATE ROLE app LOGIN')
  })
  afterAll(async () => {
    await operator?.end()
    await server?.stop()
  })

  const ensure = async (part: TablePart, schema: string, user?: string, create = true) => {
    const url = new URL(server.url)
    if (user !== undefined) url.username = user
    const pool = new pg.Pool({ connectionString: url.href, max: 1 })
    try {
      return await ensureTables(postgresDatabase(pool), part, schema, { create })
    } finally {
      await pool.end()
    }
  }

  test.for(libraries)(
    '$name: many clients that come first at once create it once',
    async ({ name, open }) => {
      const schema = `first ${name}`
      const opened = Array.from({ length: 8 }, () => open(server.url, { max: 1 }))
      const made = await Promise.all(
        opened.map(({ client }) => ensureTables(postgresDatabase(client), first, schema, { create: true })),
      )
      expect(new Set(made.map(({ origin }) => origin)).size).toBe(1)
      for (const each of opened) await each[Symbol.asyncDispose]()
      expect(await ensure(first, schema)).toEqual({ origin: made[0]?.origin, found: true })
    },
  )

  test('what a transaction creates goes with it, and its settings stay as they were', async () => {
    const database = postgresDatabase(operator)
    const level = () => database.query("SELECT current_setting('client_min_messages')")
    const before = await level()
    const undone = database.transaction(async (tx) => {
      await tx.query("SELECT set_config('client_min_messages', 'error', true)")
      expect((await ensureTables(tx, first, 'undone', { create: true })).found).toBe(false)
      expect(await tx.query("SELECT current_setting('client_min_messages')")).toEqual([['error']])
      throw new Error('undo')
    })
    await expect(undone).rejects.toThrow('undo')
    expect(await level()).toEqual(before)
    await expect(ensure(first, 'undone', undefined, false)).rejects.toThrow(/no tables .*testSchema\(\)/)
    await database.close()
  })

  test('another layout is refused, older or newer, and its functions stay as they are', async () => {
    const { origin } = await ensure(first, 'two_layouts')
    for (const version of [0, 2]) {
      const other = {
        ...first,
        version,
        sql: (s: string) => first.sql(s).replace('SELECT 1', 'SELECT 2'),
      }
      await expect(ensure(other, 'two_layouts')).rejects.toMatchObject({
        code: 'UNSUPPORTED',
        message: expect.stringContaining(`have layout 1, and this release of Holdfast knows ${version}.`),
      })
      const byHand = operator.query(tablesSql(other, 'two_layouts'))
      await expect(byHand).rejects.toThrow(`another layout than ${version}`)
    }
    expect((await operator.query('SELECT two_layouts.thing()')).rows).toEqual([{ thing: 1 }])
    expect(await ensure(first, 'two_layouts')).toEqual({ origin, found: true })
  })

  test('T80 a table that a stranger has put there instead of ours is refused', async () => {
    await operator.query('CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO stranger')
    const stranger = new pg.Client(server.url.replace('postgres@', 'stranger@'))
    await stranger.connect()
    await stranger.query('CREATE TABLE planted.things (id integer PRIMARY KEY)')
    await stranger.end()
    const planted = ensure(first, 'planted')
    await expect(planted).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringMatching(/several owners, and things belongs to stranger\./),
    })
  })

  test('rights that this user lacks and tables that are gone are named', async () => {
    await operator.query(tablesSql(first, 'granted'))
    await operator.query('GRANT USAGE ON SCHEMA granted TO app; GRANT SELECT ON granted.parts TO app')
    await operator.query('GRANT SELECT, INSERT ON granted.things TO app')
    await expect(ensure(first, 'granted', 'app')).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringMatching(/lacks USAGE on thing_numbers, UPDATE and DELETE on things \(/),
    })
    await operator.query(
      'GRANT UPDATE, DELETE ON granted.things TO app; GRANT USAGE ON granted.thing_numbers TO app',
    )
    expect((await ensure(first, 'granted', 'app')).found).toBe(true)
    await operator.query('DROP SEQUENCE granted.thing_numbers')
    await expect(ensure(first, 'granted', 'app')).rejects.toThrow(/thing_numbers is not there any more/)
  })
})
