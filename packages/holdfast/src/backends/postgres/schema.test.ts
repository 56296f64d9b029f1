import { readFileSync } from 'node:fs'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { libraries } from '../../../test/postgres/clients.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../test/postgres/stage.ts'
import { callWith } from '../../base/aborting.ts'
import { LOCK_CAPACITY } from '../../spi.ts'
import { postgres, postgresSchema } from './index.ts'

/** The SQL of an older version. */
function fixtureOf(version: number, schema: string): string {
  const file = new URL(`../../../test/postgres/fixtures/schema-${version}.sql`, import.meta.url)
  return readFileSync(file, 'utf8').replaceAll('"holdfast"', `"${schema}"`)
}

describe.runIf(wanted('postgres'))('postgres schema', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  }, 60_000)
  afterAll(() => server?.stop())

  test('many who start at once for the first time do not collide, and find the same issuer', async () => {
    await using stage = new Stage(server.url)
    const starts = Array.from({ length: 12 }, (_, i) =>
      stage.backend({
        schema: 'first_start',
        ...(libraries[i % 2] && { library: libraries[i % 2] }),
        clients: { max: 1 },
      }),
    )
    const backends = await Promise.all(starts)
    expect(new Set(backends.map(({ info }) => info.issuer)).size).toBe(1)
    const sessions = await Promise.all(backends.map((backend) => openSession(backend)))
    const tokens = await Promise.all(sessions.map((session, i) => take(session, exclusive(`n${i}`))))
    expect(new Set(tokens).size).toBe(12)
  }, 60_000)

  test('a newer schema is refused clearly, and left as it is', async () => {
    await using stage = new Stage(server.url)
    await stage.backend({ schema: 'newer' })
    const operator = await stage.operator()
    await operator.query('UPDATE newer.meta SET version = 6')
    await expect(stage.backend({ schema: 'newer' })).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringContaining('layout 6'),
    })
  })

  test.each([1, 2, 3, 4])(
    'version %i is upgraded in place, and a client of it that runs excludes the new ones',
    async (version) => {
      await using stage = new Stage(server.url)
      const operator = await stage.operator()
      await operator.query('DROP SCHEMA IF EXISTS upgraded CASCADE')
      await operator.query(fixtureOf(version, 'upgraded'))
      // A client of that version: what it sends, as it sends it.
      const old = {
        take: (attempt: string, no: string) =>
          operator.query(
            `SELECT upgraded.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11${', NULL'.repeat([0, 0, 0, 2, 3][version] ?? 0)})`,
            ['default', null, 't', 'x', attempt, no, 'exclusive', LOCK_CAPACITY, LOCK_CAPACITY, 0, null],
          ),
        giveBack: (attempt: string, no: string) =>
          operator.query(`SELECT upgraded.give_back($1, $2, $3, $4, $5, $6${version === 1 ? '' : ", '1'"})`, [
            'default',
            null,
            'x',
            attempt,
            no,
            0,
          ]),
        keepAlive: (no: string, held: string[]) =>
          operator.query(
            `SELECT kind FROM upgraded.keep_alive($1, $2, $3, $4, ${version === 1 ? '' : "'{1}', "}$5)`,
            ['default', no, held, held.map(() => 'x'), []],
          ),
      }
      const opened = await operator.query(
        `SELECT no::text FROM upgraded.open_session('default', 'old', 'old', 60000)`,
      )
      const { no } = opened.rows[0]
      const attempt = 'AAAAAAAAAAAAAAAAAAAAAA.BBBBBBBBBBBBBBBBBBBBBB'
      await old.take(attempt, no)

      await expect(stage.backend({ schema: 'upgraded', createSchema: false })).rejects.toThrow(
        /postgresSchema/,
      )
      const starts = Array.from({ length: 4 }, () => stage.backend({ schema: 'upgraded' }))
      const [backend] = await Promise.all(starts)
      if (backend === undefined) throw new Error('no backend')
      const meta = await operator.query('SELECT version FROM upgraded.meta')
      expect(meta.rows).toEqual([{ version: 5 }])
      await stage.backend({ schema: 'made_anew' })
      const indexesOf = async (schema: string) => {
        const found = await operator.query(
          'SELECT indexdef FROM pg_indexes WHERE schemaname = $1 ORDER BY 1',
          [schema],
        )
        return found.rows.map(({ indexdef }) => indexdef.replace(schema, ''))
      }
      expect(await indexesOf('upgraded')).toEqual(await indexesOf('made_anew'))
      const columnsOf = async (schema: string) => {
        const found = await operator.query(
          `SELECT table_name, column_name, ordinal_position, data_type, is_nullable FROM information_schema.columns
        WHERE table_schema = $1 ORDER BY 1, 3`,
          [schema],
        )
        return found.rows
      }
      expect(await columnsOf('upgraded')).toEqual(await columnsOf('made_anew'))

      const controller = new AbortController()
      const seen: string[] = []
      const watching = (async () => {
        for await (const { kind } of backend.watch('', { cursor: 'none' }, callWith(controller.signal)))
          seen.push(kind)
      })()
      await until('the picture is there', () => seen.length === 2)
      const session = await openSession(backend)
      expect((await session.tryAcquire(exclusive('x'), call())).kind).toBe('busy')
      expect((await old.keepAlive(no, [attempt])).rows.map(({ kind }) => kind)).toEqual(['alive'])
      await old.giveBack(attempt, no)
      const mine = exclusive('x')
      await take(session, mine)
      const busy = await old.take('CCCCCCCCCCCCCCCCCCCCCC.DDDDDDDDDDDDDDDDDDDDDD', no)
      expect(busy.rows[0].take).toContain('busy')
      expect(await session.release(mine, { keepForMs: 0 }, call())).toBe('released')
      // A watch also sees what the old client does, if its version knows the log.
      await old.take('EEEEEEEEEEEEEEEEEEEEEE.FFFFFFFFFFFFFFFFFFFFFF', no)
      const story = ['gap', 'acquired', 'released', 'acquired', 'released', 'acquired']
      const known = version < 3 ? ['gap', 'acquired', 'acquired', 'released'] : story
      await until('all is seen', () => seen.length >= known.length)
      expect(seen).toEqual(known)
      controller.abort()
      await watching
    },
  )

  test('an upgrade gives the rights on new tables to all that had them on the old ones', async () => {
    await using stage = new Stage(server.url)
    const operator = await stage.operator()
    await operator.query(fixtureOf(2, 'granted'))
    await operator.query(`CREATE ROLE "a modest ""one" LOGIN;
      GRANT USAGE ON SCHEMA granted TO "a modest ""one";
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA granted TO "a modest ""one";
      GRANT USAGE ON ALL SEQUENCES IN SCHEMA granted TO "a modest ""one"`)
    await operator.query(postgresSchema({ schema: 'granted' }))
    const url = new URL(server.url)
    url.username = encodeURIComponent('a modest "one')
    const backend = await stage.backend({ schema: 'granted', createSchema: false, url: url.href })
    const controller = new AbortController()
    const events = backend.watch('', { cursor: 'none' }, callWith(controller.signal))[Symbol.asyncIterator]()
    expect(await events.next()).toMatchObject({ value: { kind: 'gap' } })
    await take(await openSession(backend), exclusive('x'))
    expect(await events.next()).toMatchObject({ value: { kind: 'acquired', name: 'x' } })
    controller.abort()
    await events.return?.()
  })

  test.each([
    ['waiters', 'holders'],
    ['holders', 'waiters'],
    ['marks', 'holders'],
  ])(
    'an upgrade and a running call that has used %s and then uses %s do not wait for each other',
    async (first, then) => {
      await using stage = new Stage(server.url)
      const operator = await stage.operator()
      await operator.query('DROP SCHEMA IF EXISTS busy CASCADE')
      await operator.query(fixtureOf(2, 'busy'))
      await operator.query('BEGIN')
      await operator.query(`SELECT count(*) FROM busy.${first}`)
      let isUpgraded = false
      const upgrading = stage.backend({ schema: 'busy' }).then(() => {
        isUpgraded = true
      })
      const watcher = await stage.operator()
      await until('the upgrade has begun', async () => {
        const { rows } = await watcher.query(
          `SELECT 1 FROM pg_stat_activity WHERE query LIKE '%holdfast_once%' AND state = 'active' AND pid <> pg_backend_pid()`,
        )
        return rows.length > 0
      })
      await operator.query("SET LOCAL lock_timeout = '20s'")
      await operator.query(`DELETE FROM busy.${first}`)
      await operator.query(`DELETE FROM busy.${then}`)
      expect(isUpgraded).toBe(false)
      await operator.query('COMMIT')
      await upgrading
    },
  )

  test('the printed SQL makes the same schema, for a user who may not make one', async () => {
    await using stage = new Stage(server.url)
    const operator = await stage.operator()
    await operator.query('CREATE ROLE modest LOGIN; REVOKE CREATE ON DATABASE postgres FROM PUBLIC')
    const pool = new pg.Pool({ connectionString: server.url.replace('postgres@', 'modest@'), max: 2 })
    const options = { client: pool, schema: `Printed "by" o'clock` }
    await expect(postgres(options)).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await expect(postgres({ ...options, createSchema: false })).rejects.toThrow(/postgresSchema/)
    await operator.query(postgresSchema({ schema: options.schema }))
    const quoted = `"Printed ""by"" o'clock"`
    await operator.query(`GRANT USAGE ON SCHEMA ${quoted} TO modest;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${quoted} TO modest;
      GRANT USAGE ON ALL SEQUENCES IN SCHEMA ${quoted} TO modest`)
    const backend = await postgres({ ...options, createSchema: false })
    const session = await openSession(backend as never)
    await take(session, exclusive('x'))
    await session.close(callWith())
    await backend[Symbol.asyncDispose]()
    await pool.end()
  })

  test('two schemas in one database are two worlds', async () => {
    await using stage = new Stage(server.url)
    const [one, other] = [await stage.backend({ schema: 'one' }), await stage.backend({ schema: 'other' })]
    await take(await openSession(one), exclusive('x'))
    await take(await openSession(other), exclusive('x'))
    expect(one.info.issuer).not.toBe(other.info.issuer)
  })

  test('an isolation level other than READ COMMITTED is refused, at the start and later', async () => {
    await using stage = new Stage(server.url)
    const settings = { default_transaction_isolation: 'serializable' }
    await expect(stage.backend({ clients: { settings } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const backend = await postgres({ client: pool })
    await pool.query("SET default_transaction_isolation = 'repeatable read'")
    await expect(openSession(backend as never)).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await backend[Symbol.asyncDispose]()
    await pool.end()
  })

  test('the client itself in place of the options is refused with what to write', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const sql = postgresJs(server.url, { max: 1 })
    for (const client of [pool, sql])
      await expect(postgres(client as never)).rejects.toThrow(/pass \{ client: … \} instead of the client/)
    await Promise.all([pool.end(), sql.end()])
  })

  test.each([
    ['schema', { schema: '' }],
    ['schema', { schema: 'pg_mine' }],
    ['schema', { schema: 'a$b' }],
    ['schema', { schema: 'a\\b' }],
    ['schema', { schema: 'a;\nb' }],
    ['schema', { schema: 'x'.repeat(64) }],
    ['pollMs', { pollMs: 0 }],
    ['createSchema', { createSchema: 'yes' }],
    ['client', { client: {} }],
  ])('a nonsensical %s is refused', async (argument, options) => {
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    await expect(postgres({ client: pool, ...options } as never)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      argument,
    })
    await pool.end()
  })
})
