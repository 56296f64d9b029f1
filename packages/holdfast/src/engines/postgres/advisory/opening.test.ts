import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { advisoryLibraries as libraries, withPostgresJs } from '../../../../test/postgres/clients.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openLocker } from '../../../open.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { openPostgresAdvisory } from './assemble.ts'
import { postgresAdvisory, postgresAdvisorySchema } from './index.ts'

describe.runIf(wanted('postgres'))('opening', () => {
  let server: Server
  let admin: pg.Pool
  beforeAll(async () => {
    server = await startPostgres()
    admin = new pg.Pool({ connectionString: server.url, max: 2 })
    admin.on('error', () => {})
    await admin.query('CREATE ROLE app LOGIN')
  })
  afterAll(async () => {
    await admin?.end()
    await server?.stop()
  })

  let databases = 0
  /** An empty database of an ordinary user, and its address for that user. */
  const ownDatabase = async () => {
    const name = `own${++databases}`
    await admin.query(`CREATE DATABASE ${name} OWNER app`)
    const url = new URL(server.url)
    url.username = 'app'
    url.pathname = name
    return url
  }
  const poolFor = (url: URL) => {
    const pool = new pg.Pool({ connectionString: url.href, max: 3 })
    pool.on('error', () => {})
    return Object.assign(pool, { [Symbol.asyncDispose]: () => pool.end() })
  }

  test.for(libraries)(
    '$name: an ordinary user is all that it takes, also to wait, to give up and to force',
    async ({ open }) => {
      await using opened = open((await ownDatabase()).href, { max: 10 })
      const [locker, other] = [
        createLocker(await postgresAdvisory({ client: opened.client })),
        createLocker(await postgresAdvisory({ client: opened.client })),
      ]
      const lease = await locker.acquire('x')
      expect(await other.tryAcquire('x')).toBeNull()
      await expect(other.acquire('x', { waitMs: 100 })).rejects.toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
      const waiting = other.acquire('x')
      expect(await other.forceRelease('x', { token: lease.fence.token, reason: 'test' })).toBe(1)
      const next = await waiting
      expect(next.fence.token).toBeGreaterThan(lease.fence.token)
      await next.release()
      await locker.close()
      await other.close()
    },
  )

  test('many who start first at once do not collide', async () => {
    await using client = poolFor(await ownDatabase())
    const backends = await Promise.all(Array.from({ length: 8 }, () => openPostgresAdvisory({ client })))
    expect(new Set(backends.map(({ info }) => info.issuer)).size).toBe(1)
    for (const backend of backends) await backend[Symbol.asyncDispose]()
  })

  test('its tables can be created by another user, from the printed SQL, in a schema of any name', async () => {
    await using client = poolFor(await ownDatabase())
    const schema = `o'clock "x"`
    const refused = openPostgresAdvisory({ client, schema, createSchema: false })
    await expect(refused).rejects.toThrow(
      /createSchema is off. Apply what postgresAdvisorySchema\(\) returns/,
    )
    await client.query(postgresAdvisorySchema({ schema }))
    await client.query(postgresAdvisorySchema({ schema }))
    const backend = await openPostgresAdvisory({ client, schema, createSchema: false })
    const session = await backend
      .openSession({ id: newSessionId(), ttlMs: 5_000, holder: 'test' }, call())
      .then(namingGrants)
    expect((await session.tryAcquire(request('x'), call())).kind).toBe('granted')
    await backend[Symbol.asyncDispose]()
  })

  test('rights that are missing are found at the start, each by its name', async () => {
    const url = await ownDatabase()
    await using owner = poolFor(url)
    await owner.query(postgresAdvisorySchema())
    await admin.query('CREATE ROLE clerk LOGIN')
    const clerks = new URL(url)
    clerks.username = 'clerk'
    await using client = poolFor(clerks)
    const refused = { code: 'UNSUPPORTED', retryable: false }
    const opening = async () => (await openPostgresAdvisory({ client }))[Symbol.asyncDispose]()
    await expect(opening()).rejects.toMatchObject({ ...refused, message: expect.stringMatching(/42501/) })
    await owner.query('GRANT USAGE ON SCHEMA holdfast TO clerk')
    await owner.query('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO clerk')
    await owner.query('REVOKE DELETE ON holdfast.advisory_holders FROM clerk')
    await expect(opening()).rejects.toMatchObject({
      ...refused,
      message: expect.stringMatching(
        /lacks DELETE on advisory_holders, USAGE and SELECT on advisory_tokens .*grant it/,
      ),
    })
    await owner.query('GRANT DELETE ON holdfast.advisory_holders TO clerk')
    await owner.query('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA holdfast TO clerk')
    const locker = createLocker(await postgresAdvisory({ client }))
    const [held, other] = [await locker.acquire('x'), createLocker(await postgresAdvisory({ client }))]
    const next = other.acquire('x')
    await held.release()
    await (await next).release()
    // Taken away later, it is said as well, and the lock is given up.
    await owner.query('REVOKE USAGE ON holdfast.advisory_tokens FROM clerk')
    await expect(locker.acquire('y')).rejects.toMatchObject({
      ...refused,
      message: expect.stringMatching(/42501/),
    })
    await Promise.all([locker.close(), other.close()])
  })

  test('a newer layout is refused', async () => {
    await using client = poolFor(await ownDatabase())
    await (await openPostgresAdvisory({ client }))[Symbol.asyncDispose]()
    await client.query("UPDATE holdfast.parts SET version = 99 WHERE part = 'advisory'")
    await expect(openPostgresAdvisory({ client })).rejects.toThrow(/have layout 99/)
  })

  test('by URL, with its options', async () => {
    const url = (await ownDatabase()).href.replace('postgres:', 'postgres+advisory:')
    const locker = await openLocker(`${url}?namespace=billing&issuer=shop&epoch=3&key=hashtext`, {
      require: ['fenced', 'cluster'],
    })
    expect(locker.info).toMatchObject({
      name: 'postgres-advisory',
      namespace: 'billing',
      issuer: 'shop',
      epoch: 3,
    })
    const lease = await locker.acquire('x')
    expect(await lease.release()).toBe('released')
    await locker.close()
    await expect(openLocker(`${url}?key=md5`)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(openLocker(`${url}?schem=x`)).rejects.toThrow(/schem/)
  })

  test('nonsense is refused before the server is reached', async () => {
    const client = new pg.Pool({ connectionString: 'postgres://nobody@127.0.0.1:1/none' })
    for (const wrong of [
      { client, schem: 'x' },
      { client, schema: '' },
      { client, schema: 'a$$b' },
      { client, key: 'md5' },
      { client, createSchema: 'yes' },
      { client: {} },
      { client, epoch: 5_000 },
      undefined,
    ])
      await expect(openPostgresAdvisory(wrong as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(openPostgresAdvisory(client as never)).rejects.toThrow(/pass \{ client: … \}/)
    await expect(openPostgresAdvisory({ client })).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
    })
    await using other = withPostgresJs.open(server.url)
    await expect(openPostgresAdvisory({ client: other.client as never })).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: /needs a Pool of pg/,
    })
  })

  test.for(libraries)(
    'T21 T89 $name: many waiters of one locker need one connection, and hold up no other name',
    async ({ open }) => {
      await using opened = open((await ownDatabase()).href, { max: 3 })
      const locker = createLocker(await postgresAdvisory({ client: opened.client }))
      const held = await locker.acquire('crowded')
      const giveUp = new AbortController()
      const { signal } = giveUp
      const crowd = Array.from({ length: 60 }, () => locker.acquire('crowded', { signal }).catch(() => {}))
      const calm = await locker.acquire('calm')
      expect(await calm.release()).toBe('released')
      const { rows } = await admin.query(
        `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = $1`,
        [`own${databases}`],
      )
      // The client's own, and the one that listens.
      expect(rows[0].n).toBeLessThanOrEqual(4 + 1)
      giveUp.abort(new Error('had enough'))
      await Promise.all(crowd)
      expect(held.state).toBe('held')
      await locker.close()
    },
  )
})
