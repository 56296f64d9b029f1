// Servers that take a connection and never say a word.
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type Server as NetServer, type Socket } from 'node:net'
import { startProxy } from 'holdfast-lab/faults'
import { startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../../../../test/postgres/stage.ts'
import type { Clock } from '../../../base/clock.ts'
import { openLocker } from '../../../open.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { openPostgresAdvisory } from '../advisory/assemble.ts'
import { openPostgres } from '../locks/assemble.ts'
import { postgresDatabase } from './database.ts'
import { postgresClientFromUrl } from './from-url.ts'

const notInstalled = () =>
  Promise.reject(Object.assign(new Error('not there'), { code: 'ERR_MODULE_NOT_FOUND' }))
const libraries = [
  { name: 'pg', load: { pg: () => import('pg'), postgres: notInstalled } },
  { name: 'postgres.js', load: { pg: notInstalled, postgres: () => import('postgres') } },
]

describe.each(libraries)('a client of $name from a URL', ({ name, load }) => {
  let silent: NetServer
  let location: string
  const sockets = new Set<Socket>()
  beforeAll(async () => {
    silent = createServer((socket) => {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
      socket.resume()
    })
    await new Promise<void>((resolve) => silent.listen({ host: '127.0.0.1', port: 0 }, resolve))
    location = `//somebody@127.0.0.1:${(silent.address() as { port: number }).port}/anything`
  })
  afterAll(() => {
    for (const socket of sockets) socket.destroy()
    silent.close()
  })

  test('G11 is closed while a connection waits to be welcomed, and leaves none behind', async () => {
    const { client, end } = await postgresClientFromUrl(location, new Map(), load)
    const database = postgresDatabase(client)
    const asked = database.query('SELECT $1::text', ['x']).catch((error: unknown) => error)
    const listening = name === 'pg' ? database.listen('news', ignored).catch((error: unknown) => error) : null
    await until('it knocks', () => sockets.size === (name === 'pg' ? 2 : 1))
    await database.close()
    await end()
    expect(await asked).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    if (listening !== null) expect(await listening).toMatchObject({ outcome: 'not-applied' })
    await until('nothing is left', () => sockets.size === 0)
  })

  test('G11 a client of the user’s own that has no limit does not keep first contact waiting, and it says what to do', async () => {
    const port = Number(/:(\d+)/.exec(location)?.[1])
    const pool = new pg.Pool({ host: '127.0.0.1', port, user: 'somebody' })
    const sql = postgres({ host: '127.0.0.1', port, user: 'somebody', connect_timeout: 3_600 })
    const opens: readonly ((clock: Clock) => Promise<unknown>)[] =
      name === 'pg'
        ? [
            (clock) => openPostgres({ client: pool, clock }),
            (clock) => openPostgresAdvisory({ client: pool, clock }),
          ]
        : [(clock) => openPostgres({ client: sql, clock })]
    for (const open of opens) {
      const clock = createFakeClock()
      const before = sockets.size
      let isSettled = false
      const failed = open(clock)
        .catch((error: unknown) => error)
        .finally(() => {
          isSettled = true
        })
      await until('it knocks', () => sockets.size > before)
      await clock.advance(9_999)
      expect(isSettled).toBe(false)
      await clock.advance(1)
      expect(await failed).toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        outcome: 'not-applied',
        message: expect.stringMatching(
          /no answer within 10000 ms\. Check that PostgreSQL runs, and the host and port/,
        ),
      })
    }
    for (const socket of sockets) socket.destroy()
    await Promise.all([pool.end(), sql.end({ timeout: 0 })])
    await until('nothing is left', () => sockets.size === 0)
  })

  test('G11 says that the server is unreachable when it does not answer the start-up', async () => {
    const parameters = new Map([['connect_timeout', '1']])
    const { client, end } = await postgresClientFromUrl(location, parameters, load)
    await expect(postgresDatabase(client).query('SELECT $1::text', ['x'])).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
      message: expect.stringMatching(
        /Check that PostgreSQL runs.*what listens there may be another kind of server/,
      ),
    })
    await end()
  })
})

test('a client of postgres.js tries again within a second, however often it was refused', async () => {
  const loaded = await import('postgres')
  let backoff: unknown
  const { end } = await postgresClientFromUrl('//127.0.0.1/x', new Map(), {
    pg: notInstalled,
    postgres: async () => ({
      default: (url: string, options: object) => {
        const client = loaded.default(url, options)
        backoff = client.options.backoff
        return client
      },
    }),
  })
  if (typeof backoff !== 'function') throw new Error('postgres.js does not take the option')
  const pauses = Array.from({ length: 40 }, (_, retries) =>
    Number((backoff as (n: number) => number)(retries)),
  )
  for (const seconds of pauses) expect(seconds).toBeLessThanOrEqual(1)
  // A server that is down is not asked all the time.
  for (const seconds of pauses.slice(5)) expect(seconds).toBeGreaterThanOrEqual(0.5)
  expect(new Set(pauses).size).toBe(pauses.length)
  await end()
})

test.each(['', '0', '-1', '1.5', 'soon', '601'])('G12 connect_timeout=%s is refused', async (seconds) => {
  const parameters = new Map([['connect_timeout', seconds]])
  const opening = postgresClientFromUrl('//127.0.0.1/x', parameters, {
    pg: () => import('pg'),
    postgres: notInstalled,
  })
  await expect(opening).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
})

test.runIf(wanted('postgres'))(
  'a password that is missing is told with what to do, and no connection is left',
  async () => {
    await using server = await startPostgres()
    const operator = new pg.Client(server.url)
    await operator.connect()
    await operator.query("CREATE ROLE careful LOGIN PASSWORD 'not told'")
    const [file] = (await operator.query('SHOW hba_file')).rows
    const rules = readFileSync(file.hba_file, 'utf8')
    writeFileSync(file.hba_file, `host all careful all scram-sha-256\n${rules}`)
    await operator.query('SELECT pg_reload_conf()')
    const address = new URL(server.url)
    address.username = 'careful'
    const openSockets = () =>
      process.getActiveResourcesInfo().filter((kind) => /^TCPSocket/.test(kind)).length
    const before = openSockets()
    for (const { load } of libraries) {
      const { client, end } = await postgresClientFromUrl(
        address.href.replace('postgres:', ''),
        new Map(),
        load,
      )
      await expect(postgresDatabase(client).query('SELECT $1::text', ['x'])).rejects.toMatchObject({
        code: 'UNSUPPORTED',
        message: /Correct the user or the password/,
      })
      await end()
      await until('nothing is left', () => openSockets() === before)
    }
    await operator.end()
  },
)

test.each(libraries)('with $name, a server that does not run is told with what to do', async ({ load }) => {
  const listening = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => listening.once('listening', resolve))
  const { port } = listening.address() as { port: number }
  await new Promise((resolve) => listening.close(resolve))
  const { client, end } = await postgresClientFromUrl(`//127.0.0.1:${port}/x`, new Map(), load)
  await expect(postgresDatabase(client).query('SELECT $1::text', ['x'])).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
    outcome: 'not-applied',
    message: expect.stringMatching(/ECONNREFUSED.*Check that PostgreSQL runs, and the host and port/),
  })
  await end()
})

const ignored = { onNotification: () => {}, onListening: () => {}, onEnd: () => {} }

describe.runIf(wanted('postgres'))('a locker from a URL', () => {
  test.each(['postgres:', ...(wanted('postgres-advisory') ? ['postgres+advisory:'] : [])])(
    'G11 %s closes while new connections are not welcomed',
    async (scheme) => {
      await using server = await startPostgres()
      await using proxy = await startProxy(server)
      const address = new URL(server.url)
      address.port = String(proxy.port)
      const locker = await openLocker(address.href.replace(/^postgres(ql)?:/, scheme), { callTimeoutMs: 500 })
      // Open connections end, and those that are opened from now on hear nothing.
      proxy.drop('down')
      proxy.reset()
      await expect(locker.acquire('x', { waitMs: 0 })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
      await locker.close()
    },
  )
})
