import { startProxy } from 'holdfast-lab/faults'
import { reach, startPooledPostgres, wanted } from 'holdfast-lab/servers'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { postgresDatabase } from './database.ts'
import type { PostgresClient } from './types.ts'

const values = ['text', 'quote \' " \\', '', null, true, false, 12, -1.5, '9007199254740993']
const ECHO = `SELECT ${values.map((_, at) => `$${at + 1}::text`).join(', ')}`

describe.runIf(wanted('postgres'))('postgres.js', () => {
  test.each([true, false])(
    'fetch_types %s: a statement that is prepared takes one round trip, and brings its parameters over as they are',
    async (fetchTypes) => {
      await using server = await reach('postgres')
      await using proxy = await startProxy({
        host: new URL(server.url).hostname,
        port: Number(new URL(server.url).port),
      })
      const address = new URL(server.url)
      address.port = String(proxy.port)
      const sql = postgres(address.href, { max: 1, fetch_types: fetchTypes, onnotice: () => {} })
      const database = postgresDatabase(sql as unknown as PostgresClient)
      await database.query(ECHO, values)
      let sent = 0
      const recording = proxy.record()
      const add = recording.add.bind(recording)
      recording.add = (link, bytes) => {
        sent++
        add(link, bytes)
      }
      const [row] = await database.query(ECHO, values)
      expect([...(row ?? [])]).toEqual(values.map((value) => (value === null ? null : String(value))))
      expect(sent).toBe(1)
      await expect(database.query('SELECT 1 / $1::int', [0])).rejects.toMatchObject({
        outcome: 'not-applied',
      })
      await sql.end({ timeout: 1 })
    },
  )

  test('a client that does not reserve the connection of a transaction is refused', () => {
    const sql = postgres('postgres://127.0.0.1:1/none', { max_pipeline: 0, onnotice: () => {} } as object)
    expect(() => postgresDatabase(sql as unknown as PostgresClient)).toThrow(/max_pipeline of at least 1/)
  })

  test('T51 a connection of its own is refused: postgres.js does not tell when it ends', async () => {
    const sql = postgres('postgres://127.0.0.1:1/none', { onnotice: () => {} })
    await expect(postgresDatabase(sql as unknown as PostgresClient).dedicated()).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: /Use a Pool of pg/,
    })
  })
})

describe.runIf(wanted('postgres') && wanted('pgbouncer'))(
  'postgres.js behind a pooler in transaction mode',
  () => {
    test('T50 statements of ours, of the user’s and transactions share one connection, and all are answered', async () => {
      await using pooled = await startPooledPostgres()
      const sql = postgres(pooled.url, { max: 1, prepare: false, fetch_types: false, onnotice: () => {} })
      const database = postgresDatabase(sql as unknown as PostgresClient)
      // Long enough for others to be sent right behind it, if anything were.
      const slow = 'SELECT $1::text FROM pg_sleep(0.005)'
      const ours = (at: number) => database.query(slow, [at]).then(([row]) => Number(row?.[0]))
      const theirs = (at: number) => sql`SELECT ${at}::int AS n`.then(([row]) => row?.n as number)
      const together = (at: number) =>
        database.transaction(async (tx) => Number((await tx.query('SELECT $1::text', [at]))[0]?.[0]))
      const again = async (ask: (at: number) => Promise<number>) => {
        for (let at = 0; at < 20; at++) expect(await ask(at)).toBe(at)
      }
      await Promise.all([ours, theirs, theirs, theirs, together].map(again))
      await sql.end({ timeout: 1 })
    })
  },
)
