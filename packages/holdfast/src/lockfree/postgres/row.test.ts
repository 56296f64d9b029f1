/** What is written arrives the same, through either client and on every way to the row. */
import assert from 'node:assert/strict'
import { reach, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fence } from '../../../test/guard-table.ts'
import { libraries } from '../../../test/postgres/clients.ts'
import { inTransaction } from '../../../test/postgres/guard-world.ts'
import type { SqlTransaction } from '../../clients/postgres/index.ts'
import { applyFenced, fencedUpdate } from '../../guards/postgres.ts'
import { postgresRow } from './row.ts'

const json = JSON.stringify({ units: 1 })

/** Column, value, and what the server says that it has. */
const values: readonly [column: string, value: unknown, stored: string | null][] = [
  ['a', 'text', 'text'],
  ['a', null, null],
  ['f', 9007199254740993n, '9007199254740993'],
  ['f', 12, '12'],
  ['g', true, 'true'],
  ['d', json, '{"units": 1}'],
  ['d', { units: 1 }, '{"units": 1}'],
  ['b', new Uint8Array([1, 2, 255]), '\\x0102ff'],
  ['b', Buffer.from([1, 2, 255]), '\\x0102ff'],
  ['c', new Date(1_700_000_000_123), '1700000000.123'],
  ['e', [1, 2], '{1,2}'],
]

describe.runIf(wanted('postgres')).each(libraries)('values of a row with $name', (library) => {
  let server: Awaited<ReturnType<typeof reach>>
  let operator: pg.Client
  let opened: ReturnType<typeof library.open>
  const table = `values_of_${library.name.replace('.', '_')}`
  beforeAll(async () => {
    server = await reach('postgres')
    opened = library.open(server.url, { max: 3 })
    operator = new pg.Client(server.url)
    await operator.connect()
    await operator.query(`DROP TABLE IF EXISTS ${table}`)
    await operator.query(
      `CREATE TABLE ${table} (id int PRIMARY KEY, version int DEFAULT 0, owner_token bigint, a text, b bytea,
        c timestamptz, d jsonb, e int[], f bigint, g boolean)`,
    )
    await operator.query(`INSERT INTO ${table} (id) VALUES (1)`)
  }, 60_000)
  afterAll(async () => {
    await operator.query(`DROP TABLE ${table}`)
    await operator.end()
    await opened[Symbol.asyncDispose]()
    await server.stop()
  })

  const shape = { table, key: { id: 1 }, columns: ['a'] as const }
  const write = async (where: { client: never } | { tx: SqlTransaction }, changes: object) => {
    const row = postgresRow({ ...where, ...shape })
    const before = await row.read()
    return row.write(before?.version ?? -1n, changes as never)
  }
  const ways: Record<string, (changes: object) => Promise<unknown>> = {
    'with a client': (changes) => write({ client: opened.client as never }, changes),
    'in a transaction': (changes) => inTransaction(opened.client, (tx) => write({ tx }, changes)),
    'by one statement': (set) =>
      applyFenced(
        opened.client as unknown as SqlTransaction,
        fencedUpdate(fence(5n), { table, key: { id: 1 }, set: set as never }),
      ),
  }

  test.each(Object.keys(ways))('%s, they are stored as what they are', async (way) => {
    for (const [column, value, stored] of values) {
      await operator.query(`UPDATE ${table} SET a = 'old', b = null, c = null, d = null, e = null, f = null`)
      await ways[way]?.({ [column]: value })
      const shown = column === 'c' ? 'extract(epoch FROM c)::numeric(20, 3)::text' : `${column}::text`
      const { rows } = await operator.query(`SELECT ${shown} AS stored FROM ${table}`)
      assert.equal(rows[0].stored, stored, `${column} = ${String(value)}`)
    }
    await assert.rejects(async () => ways[way]?.({ a: undefined }), {
      code: 'INVALID_ARGUMENT',
      message: /null for none/,
    })
  })
})
