// Answers survive a crash of the server, whatever the settings of the client are.
import assert from 'node:assert/strict'
import { reach, type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'

import { until } from '../../../../test/postgres/stage.ts'
import { systemClock } from '../../../base/clock.ts'
import { postgresDatabase } from '../client/index.ts'
import { postgresJobs } from './index.ts'
import { jobStatements } from './jobs-sql.ts'
import { PostgresKeys } from './keys.ts'
import { keyStatements } from './keys-sql.ts'

/** Commits of its clients reach the disk when the server feels like it, which is not before the crash. */
const lazyServer = { settings: { wal_writer_delay: '10s', bgwriter_delay: '10s', checkpoint_timeout: '1h' } }

function careless(server: Server) {
  const options = '-c synchronous_commit=off'
  const pool = new pg.Pool({ connectionString: server.url, max: 2, options })
  pool.on('error', () => {})
  return Object.assign(pool, { [Symbol.asyncDispose]: () => pool.end() })
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

const where = { schema: 'holdfast', create: true, clock: systemClock }

describe.runIf(wanted('postgres'))('with synchronous_commit off, after a crash', () => {
  test('T68 no token of a job is drawn twice', async () => {
    await using server = await startPostgres(lazyServer)
    const tokens: bigint[] = []
    // A sequence writes to the log once in 33 draws, and a crash spares what fills a page of it: so it takes a few.
    for (let crash = 0; crash <= 4; crash++) {
      await using pool = careless(server)
      const jobs = postgresJobs({ client: pool, queue: 'q' })
      for (let at = 0; at < 35; at++) await jobs.add(at)
      await pool.query('CHECKPOINT')
      for (let at = 0; at < 35; at++)
        for (const { fence } of await jobs.claimJobs({ visibilityMs: 3_600_000 })) tokens.push(fence.token)
      await crashAndRestart(server)
    }
    assert.equal(tokens.length, 5 * 35)
    assert.equal(new Set(tokens).size, tokens.length)
  })

  test('the completion of a job and the time for which it is hidden are what was told', async () => {
    await using server = await startPostgres(lazyServer)
    await using pool = careless(server)
    const jobs = postgresJobs({ client: pool, queue: 'q' })
    for (const name of ['completed', 'extended']) await jobs.add(name)
    const [completed, extended] = await jobs.claimJobs({ limit: 2 })
    await pool.query('CHECKPOINT')
    await extended?.extend(3_600_000)
    await completed?.complete()
    await crashAndRestart(server)
    assert.deepEqual(await jobs.count(), { ready: 0, hidden: 1, setAside: 0, done: 1 })
    const sql = "SELECT 1 FROM holdfast.jobs WHERE visible_at > now() + interval '10 min' AND state = 'ready'"
    assert.equal((await pool.query(sql)).rowCount, 1)
  })

  test('a job that was added is there', async () => {
    await using server = await startPostgres(lazyServer)
    await using pool = careless(server)
    const jobs = postgresJobs({ client: pool, queue: 'q' })
    await jobs.ready()
    await pool.query('CHECKPOINT')
    await jobs.add('told')
    await crashAndRestart(server)
    assert.deepEqual(await jobs.count(), { ready: 1, hidden: 0, setAside: 0, done: 0 })
  })

  test('the outcome under an idempotency key is what was told, also in a transaction of the user', async () => {
    await using server = await startPostgres(lazyServer)
    await using pool = careless(server)
    const keys = new PostgresKeys({ database: postgresDatabase(pool), ...where })
    const request = (key: string) => ({
      scope: 's',
      key,
      payload: null,
      attempt: 'a',
      ttlMs: 3_600_000,
      keepMs: 3_600_000,
    })
    const outcome = { kind: 'done', body: '1', keepMs: 3_600_000 } as const
    for (const settle of [
      () => keys.settle(request('alone'), outcome),
      async () => {
        const tx = await pool.connect()
        await tx.query('BEGIN')
        await keys.settle(request('in a transaction'), outcome, tx)
        await tx.query('COMMIT')
        tx.release()
      },
    ]) {
      for (const key of ['alone', 'in a transaction']) await keys.claim(request(key))
      await pool.query('CHECKPOINT')
      await settle()
      await crashAndRestart(server)
    }
    for (const key of ['alone', 'in a transaction'])
      assert.deepEqual(await keys.claim({ ...request(key), attempt: 'b' }), { kind: 'done', body: '1' })
  })
})

describe.runIf(wanted('postgres'))('whatever synchronous_commit the client has', () => {
  let server: Awaited<ReturnType<typeof reach>>
  let pool: pg.Pool
  beforeAll(async () => {
    server = await reach('postgres')
    pool = new pg.Pool({ connectionString: server.url, max: 2 })
  })
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })

  /** The setting at the end of the transaction decides how its commit waits. */
  test.each([
    ['off', 'on'],
    ['local', 'on'],
    ['remote_write', 'on'],
    ['on', 'on'],
    ['remote_apply', 'remote_apply'],
  ])('T68 with %s, what is told in a transaction is committed with %s', async (setting, committed) => {
    const queue = `synchronous commit ${setting}`
    const jobs = postgresJobs({ client: pool, queue })
    const keys = new PostgresKeys({ database: postgresDatabase(pool), ...where })
    const request = { scope: queue, key: 'k', payload: null, attempt: 'a', ttlMs: 60_000, keepMs: 1 }
    await keys.claim(request)
    for (const payload of [1, 2]) await jobs.add(payload)
    const [job] = await jobs.claimJobs()
    assert.ok(job)
    const [onJobs, onKeys] = [jobStatements('holdfast'), keyStatements('holdfast')]
    const found = await pool.query('SELECT attempt FROM holdfast.jobs WHERE id = $1', [job.id])
    const { attempt } = found.rows[0]
    const steps: Record<string, (tx: pg.PoolClient) => Promise<unknown>> = {
      'adding a job': (tx) => jobs.add(3, { tx }),
      'completing it': (tx) => job.complete({ tx }),
      'storing an outcome': (tx) => keys.settle(request, { kind: 'done', body: '1', keepMs: 1 }, tx),
      // These have no form for a transaction of the user's: it is the statement that counts.
      'claiming jobs': (tx) => tx.query(onJobs.claim, [queue, '9', 'b', '60000']),
      'extending one': (tx) => tx.query(onJobs.extend, [job.id, attempt, '60000']),
      'claiming a key': (tx) => tx.query(onKeys.claim, [queue, 'new', null, 'a', '60000', '1']),
      'extending it': (tx) => tx.query(onKeys.extend, [queue, 'k', 'a', '60000', '1']),
    }
    for (const [name, step] of Object.entries(steps)) {
      const tx = await pool.connect()
      await tx.query('BEGIN')
      await tx.query("SELECT set_config('synchronous_commit', $1, true)", [setting])
      await step(tx)
      const { rows } = await tx.query('SHOW synchronous_commit')
      await tx.query('ROLLBACK')
      tx.release()
      assert.equal(rows[0].synchronous_commit, committed, name)
    }
    for (const each of [job, ...(await jobs.claimJobs({ limit: 9 }))]) await each.complete()
  })
})
