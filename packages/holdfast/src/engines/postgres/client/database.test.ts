import { drizzle } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleJs } from 'drizzle-orm/postgres-js'
import { startProxy } from 'holdfast-lab/faults'
import { reach, type Server, startPooledPostgres, startPostgres, wanted } from 'holdfast-lab/servers'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type DedicatedConnection, type PostgresDatabase, postgresDatabase } from './database.ts'
import { sqlRunnerOf } from './sql-runner.ts'

interface Opened extends AsyncDisposable {
  readonly database: PostgresDatabase
}

type Open = (url: string, options?: { readonly prepare: boolean }) => Opened

const openPg: Open = (url) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  return { database: postgresDatabase(pool), [Symbol.asyncDispose]: () => pool.end() }
}

const openJs: Open = (url, options) => {
  const sql = postgres(url, { ...options, max: 4, onnotice: () => {}, transform: postgres.pascal })
  return { database: postgresDatabase(sql), [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }) }
}

const openJsWithoutTypes: Open = (url, options) => {
  const sql = postgres(url, { ...options, max: 4, onnotice: () => {}, fetch_types: false })
  return { database: postgresDatabase(sql), [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }) }
}

const clients: [string, Open][] = [
  ['pg', openPg],
  ['postgres.js', openJs],
  ['postgres.js with fetch_types: false', openJsWithoutTypes],
]

describe.runIf(wanted('postgres')).each(clients)('%s', (_client, open) => {
  let server: { readonly url: string; stop(): Promise<void> }
  beforeAll(async () => {
    server = await reach('postgres')
  })
  afterAll(() => server?.stop())

  test('what trying again cannot help is UNSUPPORTED, with what to do; what others made first is not', async () => {
    const [unknownUser, unknownDatabase] = [new URL(server.url), new URL(server.url)]
    unknownUser.username = 'nobody_of_that_name'
    unknownDatabase.pathname = 'no_such_database'
    const mistakes: [URL | string, string, RegExp][] = [
      [unknownUser, 'SELECT 1', /SQLSTATE 28000\)\. Correct the user or the password/],
      [unknownDatabase, 'SELECT 1', /SQLSTATE 3D000\)\. Create the database/],
      [server.url, 'SELECT FROM no_such_table', /SQLSTATE 42P01\)\. Check the names/],
      [server.url, 'SELECT no_such_column', /SQLSTATE 42703\)\. Check the names/],
    ]
    for (const [url, statement, message] of mistakes) {
      await using opened = open(String(url))
      const { database } = opened
      const refused = { code: 'UNSUPPORTED', retryable: false, message: expect.stringMatching(message) }
      await expect(database.query(statement)).rejects.toMatchObject(refused)
      await expect(database.transaction((tx) => tx.query(statement))).rejects.toMatchObject(refused)
      if (typeof url !== 'string')
        await expect(database.dedicated()).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    }
    await using opened = open(server.url)
    await expect(opened.database.query('CREATE SCHEMA public')).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
    })
  })

  test('answers with columns in order, whatever the client would call them', async () => {
    await using opened = open(server.url)
    const rows = await opened.database.query(
      'SELECT some_thing, $2::text AS n FROM unnest($1::text::text[]) AS some_thing',
      ['{a,"b,\\"c"}', '9007199254740993'],
    )
    expect(rows.map((row) => [...row])).toEqual([
      ['a', '9007199254740993'],
      ['b,"c', '9007199254740993'],
    ])
  })

  test('a transaction commits, rolls back, and rethrows what the work threw', async () => {
    await using opened = open(server.url)
    const { database } = opened
    await database.query('CREATE TABLE IF NOT EXISTS written (what text); TRUNCATE written')
    const write = (what: string) => (tx: { query: typeof database.query }) =>
      tx.query('INSERT INTO written VALUES ($1)', [what])
    await database.transaction(write('kept'))
    const undone = database.transaction(async (tx) => {
      await write('undone')(tx)
      throw new RangeError('mine')
    })
    await expect(undone).rejects.toThrow(RangeError)
    expect((await database.query('SELECT what FROM written')).flat()).toEqual(['kept'])
  })

  test('an ERROR of the server is not applied, and the connection goes on', async () => {
    await using opened = open(server.url)
    await expect(opened.database.query('SELECT 1/$1::int', [0])).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
    })
    expect((await opened.database.query('SELECT 1')).flat()).toEqual([1])
  })

  test('a server that cannot be reached: not applied', async () => {
    await using opened = open('postgres://postgres@127.0.0.1:1/postgres')
    await expect(opened.database.query('SELECT 1')).rejects.toMatchObject({ outcome: 'not-applied' })
  })

  test('the end of the connection in flight is an unknown outcome', async () => {
    await using opened = open(server.url)
    const { database } = opened
    const ended = database.query('SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)')
    await expect(ended).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    expect((await database.query('SELECT 1')).flat()).toEqual([1])
  })

  test('cancelled before it is sent: not applied; after: unknown, and the pool goes on', async () => {
    await using opened = open(server.url)
    const { database } = opened
    const signal = AbortSignal.abort('mine')
    await expect(database.query('SELECT 1', [], { signal })).rejects.toMatchObject({ outcome: 'not-applied' })
    const stop = new AbortController()
    const sleeping = database.query("SELECT pg_sleep(10), 'asleep'", [], { signal: stop.signal })
    sleeping.catch(() => {})
    const asleep =
      "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(10)%' AND wait_event = 'PgSleep'"
    await expect.poll(() => database.query(asleep)).toHaveLength(1)
    stop.abort('mine')
    await expect(sleeping).rejects.toMatchObject({ outcome: 'unknown', cause: 'mine' })
    const answers = await Promise.all(Array.from({ length: 8 }, () => database.query('SELECT 1')))
    expect(answers.flat(2)).toEqual(Array.from({ length: 8 }, () => 1))
  })

  test('hears notifications on a connection of its own, also behind a client with one connection', async () => {
    await using opened = open(server.url)
    const { database } = opened
    const heard: string[] = []
    let listening = 0
    const events = {
      onNotification: (payload: string) => heard.push(payload),
      onListening: () => listening++,
      onEnd: () => heard.push('end'),
    }
    const listener = await database.listen('Some "channel"', events)
    await expect.poll(() => listening).toBe(1)
    await database.query('SELECT pg_notify($1, $2)', ['Some "channel"', 'hello'])
    await expect.poll(() => heard).toEqual(['hello'])
    await listener.close()
  })
})

describe.runIf(wanted('postgres'))('a dedicated connection of pg', () => {
  let server: { readonly url: string; stop(): Promise<void> }
  beforeAll(async () => {
    server = await reach('postgres')
  })
  afterAll(() => server?.stop())

  test('a dedicated connection keeps its session, and gives it up at the end', async () => {
    await using opened = openPg(server.url)
    const { database } = opened
    const own = await database.dedicated()
    const pids = [
      await own.query('SELECT pg_backend_pid()'),
      await own.query('SELECT pg_backend_pid()'),
    ].flat(2)
    expect(pids[0]).toBe(pids[1])
    await own.query('SELECT pg_advisory_lock(4711)')
    await own.close()
    await expect
      .poll(async () => (await database.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")).length)
      .toBe(0)
    await expect(own.query('SELECT 1')).rejects.toMatchObject({ outcome: 'not-applied' })
    const answers = await Promise.all(Array.from({ length: 8 }, () => database.query('SELECT 1')))
    expect(answers).toHaveLength(8)
  })

  test('as many connections of their own as are asked for, beside the pool', async () => {
    await using opened = openPg(server.url)
    const { database } = opened
    const owned = await Promise.all(Array.from({ length: 4 }, () => database.dedicated()))
    const pids = await Promise.all(owned.map((own) => own.query('SELECT pg_backend_pid()')))
    expect(new Set(pids.flat(2)).size).toBe(4)
    const later = Promise.all([database.dedicated(), database.dedicated()])
    await Promise.all(owned.slice(0, 2).map((own) => own.close()))
    for (const own of [...(await later), ...owned.slice(2)]) {
      expect((await own.query('SELECT 1')).flat()).toEqual([1])
      await own.close()
    }
    expect((await database.query('SELECT 1')).flat()).toEqual([1])
  })

  test('statements on a dedicated connection run one after the other, and no client warns of it', async () => {
    await using opened = openPg(server.url)
    const warnings: Error[] = []
    const onWarning = (warning: Error) => warnings.push(warning)
    process.on('warning', onWarning)
    try {
      const own = await opened.database.dedicated()
      const statements = Array.from({ length: 6 }, (_, i) => own.query('SELECT $1::int, pg_sleep(0.01)', [i]))
      const answers = await Promise.all(statements)
      expect(answers.flat().map(([i]) => i)).toEqual([0, 1, 2, 3, 4, 5])
      const ended = [own.query('SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)')]
      ended.push(...Array.from({ length: 4 }, () => own.query('SELECT 1')))
      const outcomes = (await Promise.allSettled(ended)).map(({ status }) => status)
      expect(outcomes).toEqual(outcomes.map(() => 'rejected'))
      await own.close()
    } finally {
      await new Promise((resolve) => setImmediate(resolve))
      process.off('warning', onWarning)
    }
    expect(warnings).toEqual([])
  })
})

describe.runIf(wanted('postgres'))('with a server to break', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('T51 every connection terminated: no unhandled error event, and statements go on', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 3 })
    const sql = postgres(server.url, { max: 3, onnotice: () => {} })
    const databases = [postgresDatabase(pool), postgresDatabase(sql)]
    let ends = 0
    const owned: DedicatedConnection[] = []
    for (const database of databases) {
      await Promise.all(Array.from({ length: 3 }, () => database.query('SELECT pg_sleep(0.05)')))
      if (database.client === 'pg') {
        const own = await database.dedicated()
        own.onEnd(() => ends++)
        owned.push(own)
      }
      await database.listen('here', { onNotification: () => {}, onListening: () => {}, onEnd: () => ends++ })
    }
    const operator = new pg.Client(server.url)
    await operator.connect()
    await operator.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL',
    )
    await operator.end()
    // The connection of our own, and the listener of pg: that of postgres.js comes back by itself.
    await expect.poll(() => ends).toBe(2)
    for (const own of owned)
      await expect(own.query('SELECT 1')).rejects.toMatchObject({ outcome: 'not-applied' })
    for (const database of databases) {
      await expect
        .poll(() =>
          database.query('SELECT 1').then(
            () => 'answered',
            () => 'failed',
          ),
        )
        .toBe('answered')
    }
    await sql.end({ timeout: 1 })
    await pool.end()
  })

  test('pg: a connection of its own is opened although others end meanwhile', async () => {
    await using opened = openPg(server.url)
    const { database } = opened
    const operator = new pg.Client(server.url)
    await operator.connect()
    for (let round = 0; round < 4; round++) {
      const other = await database.dedicated()
      const [pid] = (await other.query('SELECT pg_backend_pid()')).flat()
      const ending = operator.query('SELECT pg_terminate_backend($1)', [pid])
      const own = await database.dedicated()
      expect((await own.query('SELECT 1')).flat()).toEqual([1])
      await ending
      await own.close()
    }
    await operator.end()
  })

  test('T96 a black hole: the call settles with its signal, and the pool does not fill up with what hangs', async () => {
    await using proxy = await startProxy(server)
    const pool = new pg.Pool({
      host: proxy.host,
      port: proxy.port,
      user: 'postgres',
      database: 'postgres',
      max: 2,
    })
    const database = postgresDatabase(pool)
    await database.query('SELECT 1')
    proxy.drop('both')
    for (let round = 0; round < 4; round++) {
      const signal = AbortSignal.timeout(50)
      await expect(database.query('SELECT 1', [], { signal })).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
      })
    }
    proxy.heal()
    const again = () => database.query('SELECT 1', [], { signal: AbortSignal.timeout(500) })
    await expect
      .poll(() =>
        again().then(
          () => 'answered',
          () => 'failed',
        ),
      )
      .toBe('answered')
    await pool.end()
  })

  test('runs in transactions of pg, postgres.js, Kysely and Drizzle, and in any other', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 2 })
    const sql = postgres(server.url, { max: 2, onnotice: () => {} })
    const ask = async (tx: Parameters<typeof sqlRunnerOf>[0]) =>
      (await sqlRunnerOf(tx).query('SELECT $1::text, now() = transaction_timestamp()', ['x'])).map((row) => [
        ...row,
      ])
    const expected = [['x', true]]

    const client = await pool.connect()
    expect(await ask(client)).toEqual(expected)
    client.release()
    expect(await sql.begin((tx) => ask(tx))).toEqual(expected)
    const kysely = new Kysely<object>({ dialect: new PostgresDialect({ pool }) })
    expect(await kysely.transaction().execute((trx) => ask(trx))).toEqual(expected)
    expect(await drizzle(pool).transaction((tx) => ask(tx))).toEqual(expected)
    expect(await drizzleJs(sql).transaction((tx) => ask(tx))).toEqual(expected)
    expect(await ask({ run: async () => expected })).toEqual(expected)
    expect(() => sqlRunnerOf({} as never)).toThrow(/must be a transaction/)
    await sql.end({ timeout: 1 })
    await pool.end()
  })
})

describe.runIf(wanted('pgbouncer')).each(clients)('%s behind a transaction pooler', (_client, open) => {
  test('statements and transactions work; notifications come by chance at most', async () => {
    await using pooled = await startPooledPostgres()
    await using opened = open(pooled.url, { prepare: false })
    const { database } = opened
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => database.query('SELECT $1::int', [i])),
    )
    expect(answers.flat(2)).toEqual(Array.from({ length: 20 }, (_, i) => i))
    const heard: string[] = []
    const events = {
      onNotification: (payload: string) => heard.push(payload),
      onListening: () => {},
      onEnd: () => {},
    }
    const listener = await database.listen('channel', events)
    await database.transaction(async (tx) => {
      await tx.query('SELECT pg_notify($1, $2)', ['channel', 'lost'])
    })
    await database.query('SELECT pg_sleep(0.2)')
    expect([[], ['lost']]).toContainEqual(heard)
    await listener.close()
  })
})
