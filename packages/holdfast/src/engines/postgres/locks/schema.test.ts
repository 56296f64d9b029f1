import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { exclusive, openSession, Stage, take } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { postgres, postgresSchema } from './index.ts'

describe.runIf(wanted('postgres'))('postgres schema', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
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
  })

  test('a schema of another version is refused clearly, and left as it is, also by the printed SQL', async () => {
    await using stage = new Stage(server.url)
    await stage.backend({ schema: 'other_version' })
    const operator = await stage.operator()
    for (const version of [0, 2]) {
      await operator.query(`UPDATE other_version.parts SET version = ${version}`)
      const refused = { code: 'UNSUPPORTED', message: expect.stringContaining(`layout ${version}, and`) }
      await expect(stage.backend({ schema: 'other_version' })).rejects.toMatchObject(refused)
      await expect(stage.backend({ schema: 'other_version', createSchema: false })).rejects.toMatchObject(
        refused,
      )
      const byHand = operator.query(postgresSchema({ schema: 'other_version' }))
      await expect(byHand).rejects.toThrow('are there with another layout than 1')
    }
  })

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
