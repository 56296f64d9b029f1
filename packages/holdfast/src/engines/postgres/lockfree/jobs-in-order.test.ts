/** Jobs with an ordering key. Each promise is also tried on tables with a planted bug, on which it must fail. */
import assert from 'node:assert/strict'
import { plantedSchema } from 'holdfast-lab/bugs'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { inTransaction } from '../../../../test/postgres/guard-world.ts'
import { startProgram } from '../../../../test/postgres/program.ts'
import { until } from '../../../../test/postgres/stage.ts'
import { memoryGuard } from '../../../guards/memory.ts'
import { type ClaimedJob, type Jobs, postgresJobs, postgresLockfreeSchema } from './index.ts'
import { jobStatements } from './jobs-sql.ts'

const KEY = 'account/7'

describe.runIf(wanted('postgres'))('jobs in order', () => {
  let server: Server
  let pool: pg.Pool
  let jobs: Jobs<string>
  let queues = 0
  beforeAll(async () => {
    server = await startPostgres()
    pool = new pg.Pool({ connectionString: server.url, max: 10 })
    await pool.query('CREATE TABLE effects (queue text, job text)')
  })
  afterAll(async () => {
    await pool.end()
    await server.stop()
  })
  beforeEach(() => {
    jobs = newQueue()
  })

  const newQueue = (schema = 'holdfast') =>
    postgresJobs<string>({ client: pool, queue: `queue-${++queues}`, schema })
  const onTables = async ({ schema, schemaSql }: ReturnType<typeof plantedSchema>) => {
    await pool.query(schemaSql)
    return { schema, jobs: newQueue(schema) }
  }
  const addAll = async (payloads: readonly string[], orderingKey = KEY, rest = {}) => {
    for (const payload of payloads) await jobs.add(payload, { orderingKey, ...rest })
  }
  const claimOne = async (from = jobs): Promise<ClaimedJob<string>> => {
    const [job] = await from.claimJobs()
    assert.ok(job !== undefined, 'a job is due')
    return job
  }
  const claimNone = async () => assert.deepEqual(await jobs.claimJobs({ limit: 10 }), [])
  /** Claims and completes until nothing is due. */
  const drain = async (from = jobs): Promise<string[]> => {
    const done: string[] = []
    for (;;) {
      const [job] = await from.claimJobs()
      if (job === undefined) return done
      done.push(job.payload)
      await job.complete()
    }
  }
  /** As if the time of its claim had run out. */
  const expire = async ({ id }: { id: string }, schema = 'holdfast') => {
    const { rows } = await pool.query(
      `UPDATE ${schema}.jobs SET visible_at = now() - interval '1 s' WHERE id = $1 RETURNING queue, ordering_key`,
      [id],
    )
    await pool.query(
      `UPDATE ${schema}.job_ordering_keys SET due_at = now() - interval '1 s' WHERE queue = $1 AND ordering_key = $2`,
      [rows[0].queue, rows[0].ordering_key],
    )
  }
  const keys = async () =>
    (
      await pool.query('SELECT ordering_key FROM holdfast.job_ordering_keys WHERE queue = $1', [jobs.queue])
    ).rows.map((row) => row.ordering_key)
  const isWaiting = async () =>
    (await pool.query("SELECT FROM pg_stat_activity WHERE wait_event = 'advisory'")).rows.length > 0

  /**
   * Two transactions add to one key, and the one that has added first wants to commit last. Returns the order in which they
   * have committed, and the order of the jobs.
   */
  const commitInReverse = async (queue: Jobs<string>, level: string) => {
    await queue.add('before', { orderingKey: KEY })
    const [early, late] = [await pool.connect(), await pool.connect()]
    let isLateCommitted = false
    for (const tx of [early, late]) await tx.query(`BEGIN ISOLATION LEVEL ${level}`)
    // From here on each has its snapshot.
    for (const tx of [early, late]) await tx.query('SELECT count(*) FROM effects')
    await queue.add('early', { orderingKey: KEY, tx: early })
    const adding = queue.add('late', { orderingKey: KEY, tx: late }).then(async () => {
      await late.query('COMMIT')
      isLateCommitted = true
    })
    await until('the second has committed, or waits', async () => isLateCommitted || isWaiting())
    const committed = isLateCommitted ? ['late', 'early'] : ['early', 'late']
    await queue.add('other', { orderingKey: 'another key' })
    await early.query('COMMIT')
    await adding
    for (const tx of [early, late]) tx.release()
    return { committed, ran: (await drain(queue)).filter((payload) => ['early', 'late'].includes(payload)) }
  }

  test.each(['READ COMMITTED', 'REPEATABLE READ'])(
    'they run in the order in which their transactions commit, at %s',
    async (level) => {
      const { committed, ran } = await commitInReverse(jobs, level)
      assert.deepEqual(ran, committed)
    },
  )

  test('planted: without the lock on the key, ids do not follow commits', async () => {
    const { committed, ran } = await commitInReverse(
      (await onTables(plantedSchema('jobs-unlocked'))).jobs,
      'READ COMMITTED',
    )
    assert.deepEqual(committed, ['late', 'early'])
    assert.deepEqual(ran, ['early', 'late'])
  })

  test('what a transaction has added and rolled back was never there, and holds up nothing', async () => {
    await jobs.ready()
    const planted = new Error('planted')
    const undone = inTransaction(pool, async (tx) => {
      await jobs.add('undone', { orderingKey: KEY, tx })
      throw planted
    })
    await assert.rejects(undone, planted)
    assert.deepEqual(await keys(), [])
    await addAll(['first'])
    const tx = await pool.connect()
    await tx.query('BEGIN; SAVEPOINT before')
    await jobs.add('undone', { orderingKey: KEY, tx })
    await tx.query('ROLLBACK TO before')
    // The savepoint's end has released the key.
    await addAll(['second'])
    await tx.query('COMMIT')
    tx.release()
    assert.deepEqual(await drain(), ['first', 'second'])
  })

  /** A worker finds a key without jobs while a transaction that adds one is open. */
  const addBesideAClaim = async (queue: Jobs<string>, level: string) => {
    await queue.add('first', { orderingKey: KEY })
    const tx = await pool.connect()
    await (await claimOne(queue)).complete()
    await tx.query(`BEGIN ISOLATION LEVEL ${level}`)
    await queue.add('second', { orderingKey: KEY, tx })
    assert.deepEqual(await queue.claimJobs(), [])
    await tx.query('COMMIT')
    tx.release()
    return drain(queue)
  }

  test.each(['READ COMMITTED', 'SERIALIZABLE'])(
    'a job that is added at %s while a worker finds none is not forgotten',
    async (level) => {
      assert.deepEqual(await addBesideAClaim(jobs, level), ['second'])
    },
  )

  test('planted: a claim that deletes the row of a key without its lock forgets a job', async () => {
    const { jobs: broken } = await onTables(plantedSchema('jobs-forgotten'))
    assert.deepEqual(await addBesideAClaim(broken, 'READ COMMITTED'), [])
    assert.equal((await broken.count()).ready, 1)
  })

  test('a job that is committed between the two looks of a worker is not forgotten', async () => {
    const pause = 914
    const found = 'AND pg_try_advisory_xact_lock('
    const schemaSql = postgresLockfreeSchema({ schema: 'paused' })
    assert.equal(schemaSql.split(found).length, 2)
    await pool.query(schemaSql.replace(found, `AND pg_advisory_xact_lock(${pause}) IS NOT NULL ${found}`))
    const paused = newQueue('paused')
    await paused.add('first', { orderingKey: KEY })
    await (await claimOne(paused)).complete()
    const operator = await pool.connect()
    await operator.query('SELECT pg_advisory_lock($1)', [pause])
    const claiming = paused.claimJobs()
    await until('the worker has found no job', isWaiting)
    await paused.add('second', { orderingKey: KEY })
    await operator.query('SELECT pg_advisory_unlock($1)', [pause])
    operator.release()
    assert.deepEqual(await claiming, [])
    assert.deepEqual(await drain(paused), ['second'])
  })

  test('an old snapshot that still shows the row of a key does not keep a job from being found', async () => {
    await addAll(['first'])
    const tx = await pool.connect()
    await tx.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await tx.query('SELECT count(*) FROM effects')
    assert.deepEqual(await drain(), ['first'])
    assert.deepEqual(await keys(), [])
    await jobs.add('second', { orderingKey: KEY, tx })
    await tx.query('COMMIT')
    tx.release()
    assert.deepEqual(await drain(), ['second'])
  })

  test('a server whose default is SERIALIZABLE forgets no job', async () => {
    const url = new URL(server.url)
    url.searchParams.set('options', '-c default_transaction_isolation=serializable')
    const client = new pg.Pool({ connectionString: url.href, max: 2 })
    const mine = postgresJobs<string>({ client, queue: jobs.queue })
    assert.deepEqual(await addBesideAClaim(mine, 'SERIALIZABLE'), ['second'])
    await client.end()
  })

  test('a claim with an old snapshot does not delete the row of a key that has a job by now', async () => {
    await addAll(['first'])
    await (await claimOne()).complete()
    const tx = await pool.connect()
    await tx.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await tx.query('SELECT count(*) FROM effects')
    await addAll(['second'])
    const claim = jobStatements('"holdfast"').claim
    assert.deepEqual((await tx.query(claim, [jobs.queue, '1', 'attempt', '30000'])).rows, [])
    await tx.query('COMMIT')
    tx.release()
    assert.deepEqual(await drain(), ['second'])
  })

  test('one at a time: the next job of a key is given out when the one before is done, and other keys at once', async () => {
    await addAll(['a1', 'a2'], 'a')
    await addAll(['b1', 'b2'], 'b')
    await jobs.add('free')
    const claimed = await jobs.claimJobs({ limit: 10 })
    assert.deepEqual(claimed.map(({ payload }) => payload).sort(), ['a1', 'b1', 'free'])
    assert.deepEqual(claimed.map(({ orderingKey }) => orderingKey).sort(), ['a', 'b', null].sort())
    await claimNone()
    await claimed.find(({ payload }) => payload === 'a1')?.complete()
    assert.deepEqual(
      (await jobs.claimJobs({ limit: 10 })).map(({ payload }) => payload),
      ['a2'],
    )
    assert.deepEqual(await jobs.count(), { ready: 1, hidden: 3, setAside: 0, done: 1 })
  })

  test('many keys really run at the same time: each job waits until one of every key has begun', async () => {
    const names = Array.from({ length: 20 }, (_, at) => `key ${at}`)
    await Promise.all(names.map((name) => addAll(['1', '2', '3'], name)))
    const begun = new Set<string>()
    const all = Promise.withResolvers<void>()
    const done: string[] = []
    const work = async () => {
      while (done.length < 60) {
        const [job] = await jobs.claimJobs()
        if (job === undefined) {
          await new Promise((resolve) => setTimeout(resolve, 5))
          continue
        }
        begun.add(String(job.orderingKey))
        if (begun.size === names.length) all.resolve()
        await all.promise
        done.push(`${job.orderingKey}: ${job.payload}`)
        await job.complete()
      }
    }
    await Promise.all(names.map(work))
    for (const name of names)
      assert.deepEqual(
        done.filter((line) => line.startsWith(`${name}:`)),
        ['1', '2', '3'].map((payload) => `${name}: ${payload}`),
      )
  })

  test('workers, adders and rollbacks at random: every key’s jobs run in order, and none is left', async () => {
    const added: Record<string, string[]> = { a: [], b: [], c: [] }
    const ran: Record<string, string[]> = { a: [], b: [], c: [] }
    let isAdding = true
    const add = async (adder: number) => {
      for (let round = 0; round < 40; round++) {
        const key = 'abc'[(adder + round) % 3] as string
        const payload = `${adder}.${round}`
        await inTransaction(pool, async (tx) => {
          await jobs.add(payload, { orderingKey: key, tx })
          if (round % 5 === 4) throw new Error('planted')
          // Under the key's lock, so this is the order of commits.
          added[key]?.push(payload)
        }).catch((error: Error) => assert.equal(error.message, 'planted'))
      }
    }
    const work = async () => {
      for (;;) {
        const wasAdding = isAdding
        const claimed = await jobs.claimJobs({ limit: 2 })
        if (claimed.length === 0 && !wasAdding && (await jobs.count()).ready === 0) return
        for (const job of claimed) {
          if (job.starts === 1 && job.payload.endsWith('3')) await job.fail('planted')
          else {
            ran[String(job.orderingKey)]?.push(job.payload)
            await job.complete()
          }
        }
      }
    }
    await jobs.ready()
    const working = [work(), work(), work()]
    await Promise.all([0, 1, 2, 3].map(add))
    isAdding = false
    await Promise.all(working)
    assert.deepEqual(ran, added)
    await jobs.claimJobs()
    assert.deepEqual(await keys(), [])
  })

  /** A worker dies with the first of two jobs. */
  const crash = async (queue: Jobs<string>, schema?: string) => {
    for (const payload of ['first', 'second']) await queue.add(payload, { orderingKey: KEY })
    const dead = await claimOne(queue)
    assert.equal(dead.payload, 'first')
    await pool.query(
      `UPDATE ${schema ?? 'holdfast'}.job_ordering_keys SET due_at = now() - interval '1 s' WHERE queue = $1`,
      [queue.queue],
    )
    return queue.claimJobs()
  }

  test('a key that is due before its first job is waits for it', async () => {
    assert.deepEqual(await crash(jobs), [])
  })

  test('planted: a claim that looks for a job that is due overtakes the first one', async () => {
    const { jobs: broken, schema } = await onTables(plantedSchema('jobs-overtaken'))
    const [overtaking] = await crash(broken, schema)
    assert.equal(overtaking?.payload, 'second')
  })

  test('a worker that is killed loses nothing: its job comes again, before the later ones', async () => {
    await addAll(['first', 'second', 'third'])
    const program = await startProgram(`
      import pg from 'pg'
      const { postgresJobs } = await load('src/engines/postgres/lockfree/index.ts')
      const jobs = postgresJobs({ client: new pg.Pool({ connectionString: ${JSON.stringify(server.url)} }), queue: '${jobs.queue}' })
      const [first] = await jobs.claimJobs()
      await first.complete()
      const [second] = await jobs.claimJobs({ visibilityMs: 500 })
      say('has ' + second.payload)
      await new Promise(() => setInterval(() => {}, 1_000))`)
    await program.said('has second')
    await program.kill()
    const ran: string[] = []
    await until('all are done', async () => {
      for (const job of await jobs.claimJobs()) {
        ran.push(`${job.payload} ${job.starts}`)
        await job.complete()
      }
      return ran.length === 2
    })
    assert.deepEqual(ran, ['second 2', 'third 1'])
  })

  test.each([
    [
      'gives it back',
      async (job: ClaimedJob<string>) => void (await job.fail('poison', { retryAfterMs: 60_000 })),
    ],
    ['dies', expire],
  ] as const)(
    'a poison job is set aside when its worker %s for the last time, and the key goes on',
    async (_, end) => {
      await addAll(['poison'], KEY, { maxStarts: 2 })
      await addAll(['next'])
      const first = await claimOne()
      await first.fail('poison')
      const second = await claimOne()
      assert.deepEqual([second.payload, second.starts], ['poison', 2])
      await claimNone()
      await end(second)
      assert.deepEqual(await drain(), ['next'])
      const [aside] = await jobs.listSetAside()
      assert.deepEqual([aside?.payload, aside?.orderingKey], ['poison', KEY])
    },
  )

  test('a requeued job is the next of its key, and not beside another', async () => {
    await addAll(['poison'], KEY, { maxStarts: 1 })
    await addAll(['second', 'third'])
    const poison = await claimOne()
    await poison.fail('poison')
    const second = await claimOne()
    assert.equal(await jobs.requeue(poison.id), true)
    await claimNone()
    await second.complete()
    assert.deepEqual(await drain(), ['poison', 'third'])
    // The key has no row by now, or one that waits for a job that was added for later.
    await addAll(['poison'], 'other', { maxStarts: 1 })
    const again = await claimOne()
    await again.fail('poison')
    await addAll(['later'], 'other', { delayMs: 60_000 })
    await claimNone()
    assert.equal(await jobs.requeue(again.id), true)
    assert.deepEqual(await drain(), ['poison'])
  })

  test('one claim gets the jobs of all keys that a dead worker had, as many as it asks for', async () => {
    for (const key of ['a', 'b', 'c']) await addAll([key], key)
    const claimed = await jobs.claimJobs({ limit: 3 })
    for (const job of claimed) await expire(job)
    const again = async (limit: number) => (await jobs.claimJobs({ limit })).map(({ payload }) => payload)
    assert.equal((await again(2)).length, 2)
    assert.equal((await again(2)).length, 1)
  })

  test('a job that was set aside with its worker is requeued while its key waits for a later one: it runs before that', async () => {
    await addAll(['poison'], KEY, { maxStarts: 1 })
    await addAll(['later'], KEY, { delayMs: 60_000 })
    const poison = await claimOne()
    await expire(poison)
    await claimNone()
    assert.equal(await jobs.requeue(poison.id), true)
    assert.deepEqual(await drain(), ['poison'])
  })

  test('G7 a slow worker whose key was given on cannot complete, prolong or give back, and guards refuse its fence', async () => {
    await addAll(['slow'], KEY, { maxStarts: 1 })
    await addAll(['next'])
    const guard = memoryGuard<string>()
    const slow = await claimOne()
    await guard.run(slow.fence, () => {})
    await expire(slow)
    const next = await claimOne()
    assert.equal(next.payload, 'next')
    assert.equal(next.fence.name, slow.fence.name)
    await guard.run(next.fence, () => {})
    const stale = { code: 'FENCE_STALE' }
    await assert.rejects(
      guard.run(slow.fence, () => {}),
      stale,
    )
    const lost = { code: 'LEASE_LOST', reason: 'taken-over' }
    await assert.rejects(slow.extend(), lost)
    await assert.rejects(
      inTransaction(pool, async (tx) => {
        await (tx as pg.PoolClient).query("INSERT INTO effects VALUES ($1, 'slow')", [jobs.queue])
        await slow.complete({ tx })
      }),
      lost,
    )
    assert.equal(await slow.fail('late'), 'not-held')
    await claimNone()
    await next.extend()
    await next.complete()
    await assert.rejects(slow.complete(), lost)
    const { rows } = await pool.query('SELECT FROM effects WHERE queue = $1', [jobs.queue])
    assert.deepEqual(rows, [])
  })

  test('done too late, but the key was not given on: it counts; and T13 a completion can be repeated', async () => {
    await addAll(['late', 'next'])
    const late = await claimOne()
    await expire(late)
    await late.complete()
    const next = await claimOne()
    await late.complete()
    assert.equal(next.payload, 'next')
    await next.complete()
    assert.equal((await jobs.count()).done, 2)
  })

  test('the key is given on when the transaction that completes its job commits, and not if it rolls back', async () => {
    await addAll(['first', 'second'])
    const first = await claimOne()
    const tx = await pool.connect()
    await tx.query('BEGIN')
    await first.complete({ tx })
    await first.complete({ tx })
    await claimNone()
    // An adder does not wait for it.
    await addAll(['third'])
    await tx.query('ROLLBACK')
    await claimNone()
    await tx.query('BEGIN')
    await first.complete({ tx })
    await jobs.add('fourth', { orderingKey: KEY, tx })
    await tx.query('COMMIT')
    tx.release()
    assert.deepEqual(await drain(), ['second', 'third', 'fourth'])
  })

  test('extend keeps the key, a job for later holds up the ones behind it, and a doubled one is not added', async () => {
    await addAll(['first'])
    const first = await claimOne()
    await expire(first)
    await first.extend(60_000)
    await claimNone()
    assert.ok(await jobs.add('later', { orderingKey: KEY, key: 'once', delayMs: 60_000 }))
    assert.equal(await jobs.add('later', { orderingKey: KEY, key: 'once' }), null)
    await addAll(['behind'])
    await first.complete()
    await claimNone()
    await claimNone()
    await pool.query('UPDATE holdfast.jobs SET visible_at = now() WHERE queue = $1', [jobs.queue])
    await pool.query('UPDATE holdfast.job_ordering_keys SET due_at = now() WHERE queue = $1', [jobs.queue])
    assert.deepEqual(await drain(), ['later', 'behind'])
  })

  test('neither jobs with nor jobs without an ordering key hold up the others', async () => {
    const claimed = async () => (await claimOne()).payload
    await jobs.add('free 1')
    await addAll(['a'], 'a')
    await jobs.add('free 2')
    await addAll(['b'], 'b')
    assert.deepEqual(
      [await claimed(), await claimed(), await claimed(), await claimed()],
      ['free 1', 'a', 'free 2', 'b'],
    )
  })

  test('two transactions that add to the same keys in opposite orders: one is told of a conflict', async () => {
    await jobs.ready()
    const [one, two] = [await pool.connect(), await pool.connect()]
    for (const tx of [one, two]) await tx.query('BEGIN')
    await jobs.add('1a', { orderingKey: 'a', tx: one })
    await jobs.add('2b', { orderingKey: 'b', tx: two })
    const outcomes = await Promise.allSettled([
      jobs.add('1b', { orderingKey: 'b', tx: one }).finally(() => one.query('COMMIT')),
      jobs.add('2a', { orderingKey: 'a', tx: two }).finally(() => two.query('COMMIT')),
    ])
    for (const tx of [one, two]) tx.release()
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
    assert.deepEqual(
      refused.map(({ reason }) => reason.code),
      ['CONFLICT'],
    )
    assert.equal((await jobs.claimJobs({ limit: 10 })).length, 2)
  })

  test('an ordering key may be any text, and keys that look alike have fences of their own', async () => {
    const odd = ['a/b', 'a%2Fb', 'schlüssel', 'x'.repeat(255), '__proto__']
    for (const key of odd) await addAll([key], key)
    const claimed = await jobs.claimJobs({ limit: 10 })
    assert.deepEqual(claimed.map(({ orderingKey }) => orderingKey).sort(), odd.toSorted())
    assert.equal(new Set(claimed.map(({ fence }) => fence.name)).size, odd.length)
    await assert.rejects(jobs.add('x', { orderingKey: '' }), { argument: 'orderingKey' })
  })
})
