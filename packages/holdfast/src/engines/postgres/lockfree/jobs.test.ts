import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { type PooledPostgres, startPooledPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { inTransaction } from '../../../../test/postgres/guard-world.ts'
import { startProgram } from '../../../../test/postgres/program.ts'
import { eventsDuring } from '../../../../test/rig.ts'
import { memoryGuard } from '../../../guards/memory.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import {
  type ClaimedJob,
  type Jobs,
  postgresIdempotent,
  postgresJobs,
  postgresLockfreeSchema,
} from './index.ts'

describe.runIf(wanted('postgres') && wanted('pgbouncer'))('jobs', () => {
  let server: PooledPostgres
  let pool: pg.Pool
  let jobs: Jobs<string>
  let queues = 0
  beforeAll(async () => {
    server = await startPooledPostgres()
    pool = new pg.Pool({ connectionString: server.postgres.url, max: 4 })
    await pool.query('CREATE TABLE sent (job text)')
  })
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })
  beforeEach(() => {
    jobs = postgresJobs({ client: pool, queue: `queue-${++queues}` })
  })

  const claimOne = async (from = jobs): Promise<ClaimedJob<string>> => {
    const [job] = await from.claimJobs()
    assert.ok(job !== undefined, 'a job is due')
    return job
  }
  /** As if the time for which the job is hidden had run out. */
  const expire = (job: { id: string }) =>
    pool.query("UPDATE holdfast.jobs SET visible_at = now() - interval '1 s' WHERE id = $1", [job.id])

  for (const library of libraries)
    test(`ten workers with ${library.name}, half of them through a pooler: 200 jobs, each once`, async () => {
      const opened = Array.from({ length: 4 }, (_, at) =>
        library.open(at % 2 === 0 ? server.postgres.url : server.url, { max: 3, prepare: at % 2 === 0 }),
      )
      for (let at = 0; at < 200; at += 50)
        await Promise.all(Array.from({ length: 50 }, (_, each) => jobs.add(`job ${at + each}`)))
      const done: string[] = []
      const tokens: bigint[] = []
      const work = async (at: number) => {
        const client = opened[at % opened.length]?.client
        assert.ok(client !== undefined)
        const mine = postgresJobs<string>({ client, queue: jobs.queue })
        for (;;) {
          const claimed = await mine.claimJobs({ limit: 7 })
          if (claimed.length === 0) return
          for (const job of claimed) {
            done.push(job.payload)
            tokens.push(job.fence.token)
            await job.complete()
          }
        }
      }
      await Promise.all(Array.from({ length: 10 }, (_, at) => work(at)))
      assert.equal(done.length, 200)
      assert.equal(new Set(done).size, 200)
      assert.equal(new Set(tokens).size, 200)
      assert.deepEqual(await jobs.count(), { ready: 0, hidden: 0, setAside: 0, done: 200 })
      for (const each of opened) await each[Symbol.asyncDispose]()
    })

  test('the oldest come first, one that is added for later does not come, and payloads come as they were', async () => {
    const values = [{ to: 'Ada', n: [1, null] }, 'text \0', 5, null] as never[]
    for (const value of values) await jobs.add(value)
    await jobs.add('later', { delayMs: 60_000 })
    const claimed = await jobs.claimJobs({ limit: 10 })
    assert.deepEqual(
      claimed.map(({ payload }) => payload),
      values,
    )
    assert.deepEqual(await jobs.count(), { ready: 0, hidden: 5, setAside: 0, done: 0 })
    assert.deepEqual(await jobs.claimJobs({ limit: 10 }), [])
  })

  test('a job with a key is added once, by twenty replicas at once, and not again when it is done', async () => {
    const ids = await Promise.all(Array.from({ length: 20 }, () => jobs.add('invoices', { key: '2026-11' })))
    assert.equal(ids.filter((id) => id !== null).length, 1)
    await (await claimOne()).complete()
    assert.equal(await jobs.add('invoices', { key: '2026-11' }), null)
    assert.ok(await jobs.add('invoices', { key: '2026-12' }))
  })

  test.each(libraries)(
    'G12 with $name, what is in no transaction is refused as one, and nothing is done',
    async (library) => {
      await using opened = library.open(server.postgres.url, { max: 2 })
      const connection = await pool.connect()
      const isRefused = { code: 'INVALID_ARGUMENT', message: /must be inside a transaction/ }
      try {
        await jobs.add('undone')
        const job = await claimOne()
        const idempotent = postgresIdempotent({ client: pool })
        for (const tx of [opened.client as never, pool, connection]) {
          await assert.rejects(jobs.add('never', { tx }), isRefused)
          await assert.rejects(job.complete({ tx }), isRefused)
          const work = idempotent({ scope: 'tx', key: `${library.name} ${queues}` }, ({ store }) =>
            store(tx, 'never'),
          )
          await assert.rejects(work, isRefused)
        }
        assert.deepEqual(await jobs.count(), { ready: 0, hidden: 1, setAside: 0, done: 0 })
        await connection.query('BEGIN')
        await job.complete({ tx: connection })
        await connection.query('COMMIT')
        assert.deepEqual(await jobs.count(), { ready: 0, hidden: 0, setAside: 0, done: 1 })
      } finally {
        connection.release()
      }
    },
  )

  test('G7 a slow worker cannot complete, fail or prolong a job that was given to another', async () => {
    const guard = memoryGuard<string>()
    await jobs.add('job')
    const slow = await claimOne()
    await guard.run(slow.fence, () => {})
    await expire(slow)
    const other = await claimOne()
    assert.deepEqual([slow.starts, other.starts], [1, 2])
    assert.ok(other.fence.token > slow.fence.token)
    assert.equal(other.fence.name, slow.fence.name)
    await guard.run(other.fence, () => {})
    await assert.rejects(
      guard.run(slow.fence, () => {}),
      { code: 'FENCE_STALE' },
    )
    for (const act of [() => slow.complete(), () => slow.extend()])
      await assert.rejects(act, {
        code: 'LEASE_LOST',
        reason: 'taken-over',
        message: /visibilityMs.*extend\(\)/,
      })
    assert.equal(await slow.fail(new Error('late')), 'not-held')
    assert.equal(slow.signal.aborted, true)
    assert.equal(slow.remainingMs, 0)
    assert.deepEqual(await jobs.count(), { ready: 0, hidden: 1, setAside: 0, done: 0 })
    await other.complete()
    await assert.rejects(slow.complete(), { code: 'LEASE_LOST' })
    assert.deepEqual(await jobs.count(), { ready: 0, hidden: 0, setAside: 0, done: 1 })
  })

  test('a slow worker’s transaction is refused its completion, and undone with it', async () => {
    await jobs.add('job')
    const slow = await claimOne()
    await expire(slow)
    const other = await claimOne()
    const late = inTransaction(pool, async (tx) => {
      await (tx as pg.PoolClient).query("INSERT INTO sent VALUES ('slow')")
      await slow.complete({ tx })
    })
    await assert.rejects(late, { code: 'LEASE_LOST' })
    await inTransaction(pool, async (tx) => {
      await (tx as pg.PoolClient).query("INSERT INTO sent VALUES ('other')")
      await other.complete({ tx })
    })
    assert.deepEqual((await pool.query('SELECT job FROM sent')).rows, [{ job: 'other' }])
  })

  test('done too late, but no other worker has it: it counts', async () => {
    await jobs.add('job')
    const late = await claimOne()
    await expire(late)
    await late.complete()
    assert.equal((await jobs.count()).done, 1)
  })

  test('T13 a completion can be repeated after a lost answer, and says the truth', async () => {
    await jobs.add('job')
    const job = await claimOne()
    await job.complete()
    await job.complete()
    assert.equal((await jobs.count()).done, 1)
  })

  test('the end of each start is told once: retried, set aside, done', async () => {
    const told = await eventsDuring('job', async () => {
      await jobs.add('poison', { maxStarts: 2 })
      await (await claimOne()).fail(new Error('planted'))
      await (await claimOne()).fail(new Error('planted'))
      await jobs.add('job')
      const job = await claimOne()
      await job.complete()
      await job.complete()
      await jobs.add('job')
      const slow = await claimOne()
      await expire(slow)
      await (await claimOne()).complete()
      assert.equal(await slow.fail(), 'not-held')
    })
    const name = jobs.queue
    assert.deepEqual(told, [
      { name, outcome: 'retried', starts: 1 },
      { name, outcome: 'set-aside', starts: 2 },
      { name, outcome: 'done', starts: 1 },
      { name, outcome: 'done', starts: 2 },
    ])
  })

  test('adding and completing in a transaction that is rolled back have not happened', async () => {
    await jobs.add('job')
    const job = await claimOne()
    const planted = new Error('planted')
    const undone = inTransaction(pool, async (tx) => {
      await jobs.add('another', { tx })
      await job.complete({ tx })
      throw planted
    })
    await assert.rejects(undone, planted)
    assert.deepEqual(await jobs.count(), { ready: 0, hidden: 1, setAside: 0, done: 0 })
    await job.complete()
  })

  test('a job that failed comes again, later if so wished; after maxStarts it is set aside until it is requeued', async () => {
    await jobs.add('job', { maxStarts: 2 })
    const first = await claimOne()
    await first.fail(new Error('no luck\0'), { retryAfterMs: 60_000 })
    assert.deepEqual(await jobs.claimJobs(), [])
    await expire(first)
    const second = await claimOne()
    await second.fail('none again')
    await assert.rejects(second.complete(), { code: 'LEASE_LOST' })
    assert.deepEqual(await jobs.claimJobs(), [])
    const [aside] = await jobs.listSetAside()
    assert.deepEqual(aside, {
      id: first.id,
      key: null,
      orderingKey: null,
      payload: 'job',
      starts: 2,
      lastError: 'none again',
    })
    assert.equal((await jobs.count()).setAside, 1)
    assert.equal(await jobs.requeue(first.id), true)
    assert.equal(await jobs.requeue(first.id), false)
    assert.equal((await claimOne()).starts, 1)
  })

  test('a job at its last start is not requeued while a worker has it', async () => {
    await jobs.add('job', { maxStarts: 1 })
    const job = await claimOne()
    assert.equal(await jobs.requeue(job.id), false)
    assert.deepEqual(await jobs.claimJobs(), [])
    await job.complete()
  })

  test('a worker that dies on its last start leaves a job set aside, not lost', async () => {
    await jobs.add('job', { maxStarts: 1 })
    const job = await claimOne()
    assert.deepEqual(await jobs.listSetAside(), [])
    await expire(job)
    assert.deepEqual(await jobs.claimJobs(), [])
    assert.deepEqual(
      (await jobs.listSetAside()).map(({ id }) => id),
      [job.id],
    )
  })

  test('G3 the signal aborts before others can get the job, and extend postpones that', async () => {
    const clock = createFakeClock()
    const timed = postgresJobs<string>({ client: pool, queue: jobs.queue, clock })
    await timed.add('job')
    const [job] = await timed.claimJobs({ visibilityMs: 10_000 })
    assert.ok(job !== undefined)
    await clock.advance(9_000)
    assert.equal(job.signal.aborted, false)
    await job.extend(20_000)
    await clock.advance(19_000)
    assert.equal(job.signal.aborted, false)
    assert.ok(job.remainingMs > 0)
    await clock.advance(1_000)
    assert.equal(job.signal.aborted, true)
    assert.equal(job.signal.reason.code, 'LEASE_LOST')
    const message = /visibilityMs.*extend\(\)/
    await assert.rejects(job.extend(), { code: 'LEASE_LOST', reason: 'expired', message })
  })

  test('a claim does not wait for rows that another transaction has locked', async () => {
    await jobs.add('locked')
    await jobs.add('free')
    const client = await pool.connect()
    await client.query('BEGIN')
    await client.query('SELECT 1 FROM holdfast.jobs WHERE queue = $1 AND body LIKE $2 FOR UPDATE', [
      jobs.queue,
      '%locked%',
    ])
    assert.deepEqual(
      (await jobs.claimJobs({ limit: 10 })).map(({ payload }) => payload),
      ['free'],
    )
    await client.query('ROLLBACK')
    client.release()
    assert.equal((await claimOne()).payload, 'locked')
  })

  test('a worker that is killed gives its job back when its time is over', async () => {
    await jobs.add('job')
    const program = await startProgram(`
      import pg from 'pg'
      const { postgresJobs } = await load('src/engines/postgres/lockfree/index.ts')
      const jobs = postgresJobs({ client: new pg.Pool({ connectionString: ${JSON.stringify(server.postgres.url)} }), queue: '${jobs.queue}' })
      const [job] = await jobs.claimJobs({ visibilityMs: 300 })
      say('claimed ' + job.id)
      await new Promise(() => setInterval(() => {}, 1_000))`)
    const [id] = await program.matched(/claimed (\d+)/)
    await program.kill()
    let again: ClaimedJob<string> | undefined
    while (again === undefined) {
      ;[again] = await jobs.claimJobs()
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    assert.equal(again.id, id)
    assert.equal(again.starts, 2)
  })

  test('completed jobs are removed after keepMs', async () => {
    const brief = postgresJobs<string>({ client: pool, queue: jobs.queue, keepMs: 0 })
    await brief.add('job')
    await (await claimOne(brief)).complete()
    await brief.add('kept')
    assert.ok((await brief.prune()) >= 1)
    assert.deepEqual(await brief.count(), { ready: 1, hidden: 0, setAside: 0, done: 0 })
  })

  test('a queue removes its own jobs only: what another keeps for longer, with its keys, stays', async () => {
    const kept = postgresJobs<string>({ client: pool, queue: `${jobs.queue}/kept` })
    const brief = postgresJobs<string>({ client: pool, queue: `${jobs.queue}/brief`, keepMs: 0 })
    for (const each of [kept, brief]) {
      await each.add('job', { key: 'once' })
      await (await claimOne(each)).complete()
    }
    assert.equal(await brief.prune(), 1)
    // The first claim of a worker removes what is old, too.
    await postgresJobs({ client: pool, queue: brief.queue, keepMs: 0 }).claimJobs()
    assert.deepEqual(await kept.count(), { ready: 0, hidden: 0, setAside: 0, done: 1 })
    assert.equal(await kept.add('job', { key: 'once' }), null)
    assert.ok(await brief.add('job', { key: 'once' }))
  })

  test('the loop of a worker goes on after a job that another got meanwhile, and after a lost answer', async () => {
    for (const payload of ['slow', 'next']) await jobs.add(payload)
    const done: string[] = []
    const answers: string[] = []
    for (const job of await jobs.claimJobs({ limit: 10 }))
      try {
        if (job.payload === 'slow') {
          await expire(job)
          await claimOne()
        }
        await job.complete()
        done.push(job.payload)
        throw new Error('the answer got lost')
      } catch (error) {
        answers.push(await job.fail(error))
      }
    assert.deepEqual(done, ['next'])
    assert.deepEqual(answers, ['not-held', 'not-held'])
    assert.deepEqual(await jobs.count(), { ready: 0, hidden: 1, setAside: 0, done: 1 })
  })

  test('whatever the work threw, its job is given back', async () => {
    await jobs.add('any')
    const told: unknown[] = []
    for (const thrown of [Object.create(null), Object.assign(new Error(), { message: Symbol('none') }), {}]) {
      assert.equal(await (await claimOne()).fail(thrown), 'given-back')
      const { rows } = await pool.query('SELECT last_error FROM holdfast.jobs WHERE queue = $1', [jobs.queue])
      told.push(rows[0].last_error)
    }
    assert.deepEqual(told, ['something that has no text was thrown', 'Symbol(none)', '[object Object]'])
  })

  test('the grants on the page are enough, and one that is missing is said as such', async () => {
    const page = readFileSync(new URL('../../../../../../docs/lockfree.md', import.meta.url), 'utf8')
    const grants = page.match(/^GRANT .*;$/gm) ?? []
    assert.equal(grants.length, 3)
    await pool.query('CREATE ROLE app LOGIN')
    await pool.query('CREATE DATABASE granted')
    const url = new URL(server.postgres.url)
    url.pathname = 'granted'
    const owner = new pg.Pool({ connectionString: url.href, max: 1 })
    await owner.query(postgresLockfreeSchema())
    url.username = 'app'
    const client = new pg.Pool({ connectionString: url.href, max: 2 })
    const mine = postgresJobs<string>({ client, queue: 'q', createSchema: false, keepMs: 0 })
    const once = postgresIdempotent({ client, createSchema: false })
    for (const grant of grants) {
      const refused = { code: 'UNSUPPORTED', retryable: false, message: /42501.*grant it USAGE/s }
      await assert.rejects(async () => {
        await mine.add('job')
        await mine.claimJobs()
      }, refused)
      await owner.query(grant)
    }
    await mine.add('job')
    const [job] = await mine.claimJobs({ limit: 2 })
    await job?.extend()
    await job?.complete()
    assert.equal(await mine.prune(), 1)
    assert.equal(await once({ scope: 's', key: 'k' }, () => 1), 1)
    assert.equal(await once({ scope: 's', key: 'k' }, () => 2), 1)
    await once.prune()
    await Promise.all([client.end(), owner.end()])
  })

  test('the printed SQL makes the tables, and options that make no sense are refused', async () => {
    await pool.query(postgresLockfreeSchema({ schema: 'printed' }))
    const printed = postgresJobs({ client: pool, queue: 'q', schema: 'printed', createSchema: false })
    assert.ok(await printed.add(1))
    const unmade = postgresJobs({ client: pool, queue: 'q', schema: 'unmade' })
    const tooEarly = inTransaction(pool, (tx) => unmade.add(1, { tx }))
    await assert.rejects(tooEarly, {
      code: 'UNSUPPORTED',
      message: /"unmade" has no tables for jobs.*ready\(\)/,
    })
    await unmade.ready()
    assert.ok(await inTransaction(pool, (tx) => unmade.add(1, { tx })))
    const odd = postgresJobs({ client: pool, queue: 'q', schema: `o'clock "x"` })
    assert.ok(await odd.add(1))
    assert.equal((await odd.claimJobs()).length, 1)
    const once = postgresIdempotent({ client: pool, schema: `o'clock "x"` })
    assert.equal(await once({ scope: 's', key: 'k' }, () => 5), 5)
    for (const schema of ['a$$b', 'pg_x', 'a\\b'])
      for (const use of [
        () => postgresJobs({ client: pool, queue: 'q', schema }),
        () => postgresIdempotent({ client: pool, schema }),
        () => postgresLockfreeSchema({ schema }),
      ])
        assert.throws(use, { code: 'INVALID_ARGUMENT', argument: 'schema' })
    for (const options of [
      undefined,
      {},
      { client: pool },
      { client: pool, queue: '' },
      { client: pool, queue: 'q', keepMs: -1 },
    ])
      assert.throws(() => postgresJobs(options as never), { code: 'INVALID_ARGUMENT' })
    for (const call of [
      () => jobs.add(1n as never),
      () => jobs.add('x', { delayMs: -1 }),
      () => jobs.add('x', { maxStarts: 0 }),
      () => jobs.claimJobs({ limit: 0 }),
      () => jobs.claimJobs({ visibilityMs: 1 }),
      () => jobs.requeue('x'),
    ])
      await assert.rejects(call, { code: 'INVALID_ARGUMENT' })
  })
})
