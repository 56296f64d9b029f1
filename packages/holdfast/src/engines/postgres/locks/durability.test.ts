// Durability over crashes, restarts, the end of every connection, and a standby that does not answer.
import { plantedSchema } from 'holdfast-lab/bugs'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import type { NamingSession } from '../../../../test/naming-grants.ts'
import { libraries } from '../../../../test/postgres/clients.ts'
import { call, exclusive, openSession, Stage, take, until } from '../../../../test/postgres/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { Claim } from '../../../spi.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { openPostgres } from './assemble.ts'
import { standbyNotices } from './index.ts'

/** Commits of such a client reach the disk only when the server feels like it, which here is never. */
const careless = { settings: { synchronous_commit: 'off' }, max: 2 }
const lazyServer = { settings: { wal_writer_delay: '10s', bgwriter_delay: '10s', checkpoint_timeout: '1h' } }

interface Written {
  readonly session: NamingSession<'fenced'>
  readonly other: NamingSession<'fenced'>
  readonly held: readonly Claim[]
}

async function crashAndRestart(server: Server): Promise<void> {
  await server.kill()
  // PostgreSQL refuses to start while a process of the old server is still dying.
  await until('it has started again', () =>
    server.restart().then(
      () => true,
      () => false,
    ),
  )
}

/**
 * How many tokens were issued before a crash and again after it. A crash spares what fills a whole page of the log, and a
 * sequence writes to the log once in 33 draws: so it takes 35 draws, and a few crashes.
 */
async function tokensIssuedTwice(server: Server, crashes: number, surroundings = {}): Promise<number> {
  const issued: bigint[] = []
  for (let crash = 0; crash <= crashes; crash++) {
    await using stage = new Stage(server.url)
    const session = await openSession(await stage.backend({ clients: careless }, surroundings))
    await (await stage.operator()).query('CHECKPOINT')
    for (let i = 0; i < 35; i++) issued.push(await take(session, exclusive(`${crash}/${i}`)))
    await crashAndRestart(server)
  }
  return issued.length - new Set(issued).size
}

describe.runIf(wanted('postgres'))('postgres', () => {
  test('T68 a token is on the disk before it is told, whatever the client has set: none is issued twice', async () => {
    await using server = await startPostgres(lazyServer)
    expect(await tokensIssuedTwice(server, 4)).toBe(0)
  })

  test('T68 planted: with synchronous_commit off and a crash, a token is issued twice', async () => {
    await using server = await startPostgres(lazyServer)
    const { schemaSql } = plantedSchema('T68-client-decides')
    expect(await tokensIssuedTwice(server, 4, { schemaSql })).toBeGreaterThan(0)
  })

  test('G6 T68 releases that a crash undoes come to the same: no other client had the names, and they are given up again', async () => {
    await using server = await startPostgres(lazyServer)
    await using stage = new Stage(server.url)
    const options = { ttlMs: 9_000, callTimeoutMs: 1_000 }
    const mine = createLocker(await stage.backend(), options)
    const names = ['alone', 'in a batch/1', 'in a batch/2', 'in a batch/3']
    const [alone, ...batch] = await Promise.all(names.map((name) => mine.acquire(name)))
    const leases = [alone, ...batch].filter((lease) => lease !== undefined)
    await (await stage.operator()).query('CHECKPOINT')
    await alone?.release()
    await Promise.all(batch.map((lease) => lease.release()))
    await crashAndRestart(server)

    // The control: without it this would not be a test of anything.
    const { rows } = await (await stage.operator()).query('SELECT 1 FROM holdfast.holders')
    expect(rows).toHaveLength(names.length)
    const other = createLocker(await stage.backend(), options)
    const taken = await Promise.all(names.map((name) => other.acquire(name, { waitMs: 60_000 })))
    for (const { fence } of taken)
      for (const before of leases) expect(fence.token).toBeGreaterThan(before.fence.token)
    await Promise.all([mine.close(), other.close()])
  })

  // One crash after each: what comes later would take along to the disk what is under test.
  test.each<[string, (stage: Written) => Promise<void>, string, number]>([
    [
      'a release that keeps its name closed',
      async ({ session, held }) => {
        await session.release(held[0] as Claim, { keepForMs: 600_000 }, call())
      },
      'SELECT 1 FROM holdfast.names WHERE closed_until > now()',
      1,
    ],
    [
      'a batch of releases that keep their names closed',
      async ({ session, held }) => {
        await Promise.all(held.map((each) => session.release(each, { keepForMs: 600_000 }, call())))
      },
      'SELECT 1 FROM holdfast.names WHERE closed_until > now()',
      4,
    ],
    [
      'a release that hands over',
      async ({ session, other, held: [first] }) => {
        const { promise: queued, resolve: onQueued } = Promise.withResolvers<void>()
        const next = enqueued(other, { ...exclusive('a') }, callWith(undefined, { queued: onQueued }))
        await queued
        await session.release(first as Claim, { keepForMs: 0 }, call())
        await next
      },
      'SELECT 1 FROM holdfast.holders WHERE token > 4',
      1,
    ],
    [
      'a batch of grants',
      async ({ session }) => {
        await Promise.all([1, 2, 3, 4, 5, 6].map((index) => take(session, exclusive(`granted/${index}`))))
      },
      "SELECT 1 FROM holdfast.holders WHERE name LIKE 'granted/%'",
      6,
    ],
  ])('T68 %s is on the disk before it is told', async (_, write, query, count) => {
    await using server = await startPostgres(lazyServer)
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ clients: { max: 4 } })
    const [session, other] = [await openSession(backend, 60_000), await openSession(backend, 60_000)]
    const held = ['a', 'b', 'c', 'd'].map((name) => exclusive(name))
    for (const each of held) await take(session, each)
    await (await stage.operator()).query('CHECKPOINT')
    await write({ session, other, held })
    await crashAndRestart(server)
    const { rows } = await (await stage.operator()).query(query)
    expect(rows).toHaveLength(count)
  })

  for (const library of libraries) {
    test(`G3 T51 a restart of the server with ${library.name}: leases survive it if their time does, and none is believed too long`, async () => {
      await using server = await startPostgres()
      await using stage = new Stage(server.url)
      const [mine, other] = [
        await stage.backend({ library, clients: { fetchTypes: false } }),
        await stage.backend({ library, clients: { fetchTypes: false } }),
      ]
      const locker = createLocker(mine, { ttlMs: 20_000, callTimeoutMs: 1_000 })
      const rival = createLocker(other, { ttlMs: 20_000, callTimeoutMs: 1_000 })
      const lease = await locker.acquire('x')
      const waiting = rival.acquire('x', { waitMs: 60_000 })
      waiting.catch(() => {})
      await until('there is a waiter', async () => ((await locker.inspect('x'))?.waiters.length ?? 0) > 0)

      await server.restart()
      await until('it answers again', () =>
        lease.renew().then(
          () => true,
          () => false,
        ),
      )
      expect(lease.state).toBe('held')
      expect(await locker.check(lease.fence)).toBe(true)
      await lease.release()
      const next = await waiting
      expect(next.fence.token).toBeGreaterThan(lease.fence.token)
      await next.release()
      await Promise.all([locker.close(), rival.close()])
    })

    test(`T51 pg_terminate_backend of every connection with ${library.name}, again and again: nothing is lost, and no process dies of an error event`, async () => {
      await using server = await startPostgres()
      await using stage = new Stage(server.url)
      const [mine, other] = [
        await stage.backend({ library, clients: { fetchTypes: false } }),
        await stage.backend({ library, clients: { fetchTypes: false } }),
      ]
      const locker = createLocker(mine, { ttlMs: 20_000, callTimeoutMs: 1_000 })
      const rival = createLocker(other, { ttlMs: 20_000, callTimeoutMs: 1_000 })
      const operator = await stage.operator()
      const terminateAll = () =>
        operator.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
      let lease = await locker.acquire('x')
      const lost: unknown[] = []
      for (let round = 0; round < 4; round++) {
        lease.signal.addEventListener('abort', () => lost.push(lease.signal.reason))
        const next = rival.acquire('x', { waitMs: 60_000 })
        next.catch(() => {})
        await until('there is a waiter', async () => {
          const state = await locker.inspect('x').catch(() => null)
          return (state?.waiters.length ?? 0) > 0
        })
        await terminateAll()
        await until('it is released', async () => {
          const released = await lease.release().catch(() => 'unknown')
          return released !== 'unknown'
        })
        const taken = await next
        await until(
          'it is released again',
          async () => (await taken.release().catch(() => 'unknown')) !== 'unknown',
        )
        await terminateAll()
        // A call that the end of its connection overtakes is told so, and may be made again.
        await until('it is acquired again', async () => {
          const acquired = await locker.acquire('x', { waitMs: 20_000 }).catch((error: unknown) => error)
          if (acquired instanceof BackendUnavailableError) return false
          if (acquired instanceof Error) throw acquired
          lease = acquired as typeof lease
          return true
        })
      }
      expect(lost).toEqual([])
      await lease.release()
      await Promise.all([locker.close(), rival.close()])
    })
  }

  test('T11 a wait for the standby that was cancelled after the commit is an unknown outcome, with both clients', async () => {
    await using server = await startPostgres()
    await using stage = new Stage(server.url)
    const sql = postgres(server.url, { max: 2, onnotice: standbyNotices() })
    const backends = [await stage.backend(), await openPostgres({ client: sql })]
    const sessions = await Promise.all(backends.map((backend) => openSession(backend)))
    const operator = await stage.operator()
    await operator.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await operator.query('SELECT pg_reload_conf()')
    await operator.query("SET synchronous_commit = 'local'")
    await until('it has been read', async () => {
      const { rows } = await operator.query("SELECT current_setting('synchronous_standby_names') AS names")
      return rows[0].names === 'nobody'
    })
    // Another process of the server decides whether commits wait, and it may read the setting later.
    const prober = await stage.operator()
    await operator.query('CREATE TABLE probe (n integer)')
    await until('commits wait for the standby', async () => {
      let isWritten = false
      const writing = prober.query('INSERT INTO probe VALUES (1)').then(() => (isWritten = true))
      for (;;) {
        if (isWritten) return false
        const { rows } = await operator.query(
          "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%probe%'",
        )
        if (rows.length === 0) continue
        await writing
        return true
      }
    })
    for (const [index, session] of sessions.entries()) {
      const request = exclusive(`standby/${index}`)
      const taking = session.tryAcquire(request, call())
      taking.catch(() => {})
      await until('it waits for the standby', async () => {
        const { rows } = await operator.query(
          "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%apply%'",
        )
        return rows.length > 0
      })
      await expect(taking).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
      // It has landed here all the same.
      const { rows } = await operator.query('SELECT 1 FROM holdfast.holders WHERE name = $1', [request.name])
      expect(rows).toHaveLength(1)
    }
    const blind = postgres(server.url, { max: 1, onnotice: () => {} })
    await expect(openPostgres({ client: blind })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await operator.query('ALTER SYSTEM RESET synchronous_standby_names')
    await operator.query('SELECT pg_reload_conf()')
    await Promise.all([blind.end({ timeout: 1 }), sql.end({ timeout: 1 })])
  })
})
