/** Reads of a claim: only the rows that it claims, whatever else the table has, and whatever the statistics say (T83, plans for small tables). */
import assert from 'node:assert/strict'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { postgresIdempotent, postgresJobs } from './index.ts'
import { jobStatements } from './jobs-sql.ts'
import { keyStatements } from './keys-sql.ts'

const OTHERS = 50_000
const DUE = 12

const others: Record<string, string> = {
  setAside: "'ready', now() - interval '1 hour', 5, 5, NULL",
  done: "'done', now() - interval '1 hour', 1, 5, now()",
  claimed: "'ready', now() + interval '1 hour', 1, 5, NULL",
  'claimed for the last time': "'ready', now() + interval '1 hour', 5, 5, NULL",
  later: "'ready', now() + interval '1 hour', 0, 5, NULL",
  due: "'ready', now(), 0, 5, NULL",
}

describe.runIf(wanted('postgres'))('the cost of a claim', () => {
  let server: Server
  let pool: pg.Pool
  let client: pg.PoolClient
  const sql = jobStatements('"holdfast"')
  beforeAll(async () => {
    // Nothing but the test makes statistics.
    server = await startPostgres({ settings: { autovacuum: 'off' } })
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
  })
  afterAll(async () => {
    await pool?.end()
    await server?.stop()
  })
  beforeEach(async () => {
    await pool.query('DROP SCHEMA IF EXISTS holdfast CASCADE')
    await postgresJobs({ client: pool, queue: 'q' }).ready()
    client = await pool.connect()
    return () => client.release(true)
  })

  const fill = (what: string, count: number) =>
    client.query(`
      INSERT INTO holdfast.jobs (queue, body, state, visible_at, starts, max_starts, done_at)
      SELECT 'q', '1', ${others[what]} FROM generate_series(1, ${count})`)
  const read = async () => {
    const { rows } = await client.query(`
      SELECT sum(pg_stat_get_xact_tuples_returned(oid))::int AS entries FROM pg_class
      WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')`)
    return rows[0].entries as number
  }
  /** The entries of indexes and the rows that a claim reads, and what it gets. It is undone. */
  const undone = async (text: string, values: readonly (string | null)[]) => {
    await client.query('BEGIN')
    const before = await read()
    const { rows } = await client.query(text, [...values])
    const entries = (await read()) - before
    await client.query('ROLLBACK')
    return { entries, rows }
  }
  const claim = async (limit: number) => {
    const { entries, rows } = await undone(sql.claim, ['q', String(limit), 'attempt', '30000'])
    return { entries, jobs: rows.length }
  }

  for (const [statistics, prepare] of [
    ['no statistics', async () => {}],
    ['statistics of a small table', () => client.query('VACUUM ANALYZE holdfast.jobs')],
  ] as const)
    test.each(Object.keys(others))(
      `T83 with ${statistics}, a claim reads only what it claims, with ${OTHERS} jobs that are %s`,
      async (what) => {
        await fill('due', DUE)
        await prepare()
        // PostgreSQL makes a plan for every call at first, and one for all calls later.
        for (let made = 0; made < 8; made++) await claim(1)
        await fill(what, OTHERS)
        for (const limit of [1, 10, 1000]) {
          const { entries, jobs } = await claim(limit)
          assert.equal(jobs, Math.min(limit, what === 'due' ? limit : DUE))
          assert.ok(entries <= 3 * jobs + 10, `${jobs} of at most ${limit} jobs: ${entries} entries`)
        }
      },
    )

  test('T83 with statistics of a small table, a claim of a key reads its own row', async () => {
    const idempotent = postgresIdempotent({ client: pool })
    await idempotent({ scope: 's', key: 'first' }, () => 1)
    await client.query('VACUUM ANALYZE holdfast.idempotency')
    const claimKey = async (key: string) => {
      const { entries, rows } = await undone(keyStatements('"holdfast"').claim, [
        ...['s', key, 'payload', 'attempt', '30000', '30000'],
      ])
      assert.equal(rows[0]?.kind, 'claimed')
      return entries
    }
    for (let made = 0; made < 8; made++) await claimKey('third')
    await client.query(`
      INSERT INTO holdfast.idempotency (scope, key, state, attempt, expires_at)
      SELECT 's', i, 'done', 'other', now() + interval '1 hour' FROM generate_series(1, ${OTHERS}) AS i`)
    const entries = await claimKey('third')
    assert.ok(entries < 20, `${entries} entries`)
  })

  /** Pending jobs of one ordering key, or of as many keys as there are jobs. */
  const fillKeys = async (count: number, key: string, dueAt: string, given = 'NULL') => {
    await client.query(`
      INSERT INTO holdfast.jobs (queue, ordering_key, body, visible_at, max_starts)
      SELECT 'q', ${key}, '1', ${dueAt}, 5 FROM generate_series(1, ${count}) AS i`)
    await client.query(`
      WITH names AS (
        INSERT INTO holdfast.job_ordering_key_names (queue, ordering_key)
        SELECT DISTINCT 'q', ordering_key FROM holdfast.jobs WHERE ordering_key IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING ordering_key)
      INSERT INTO holdfast.job_ordering_keys (queue, ordering_key, due_at, is_given, token)
      SELECT 'q', ordering_key, ${dueAt}, ${given} IS NOT NULL, ${given}::bigint FROM names`)
  }
  const ordered: Record<string, () => Promise<unknown>> = {
    'of one key that is due': () => fillKeys(OTHERS, "'hot'", 'now()'),
    'of one key that is given to a worker': () => fillKeys(OTHERS, "'hot'", "now() + interval '1 hour'", '1'),
    'of as many keys, all given to workers': () => fillKeys(OTHERS, 'i', "now() + interval '1 hour'", '1'),
    'of as many keys, all due': () => fillKeys(OTHERS, "'z' || i", "now() - interval '1 s'"),
  }

  test.each(Object.keys(ordered))(
    `T83 with statistics of a small table, a claim reads only what it claims, with ${OTHERS} jobs %s`,
    async (what) => {
      await fillKeys(DUE, "'due ' || i", "now() - interval '1 minute'")
      await client.query('VACUUM ANALYZE holdfast.jobs, holdfast.job_ordering_keys')
      for (let made = 0; made < 8; made++) await claim(1)
      await ordered[what]?.()
      for (const limit of [1, 10, 1000]) {
        const { entries, jobs } = await claim(limit)
        if (!what.endsWith('all due'))
          assert.equal(jobs, Math.min(limit, DUE + (what.endsWith('due') ? 1 : 0)))
        else assert.equal(jobs, limit)
        // For each: the key by index and row, the job by index and row, both again to write them.
        assert.ok(entries <= 8 * jobs + 20, `${jobs} of at most ${limit} jobs: ${entries} entries`)
      }
    },
  )

  test('T83 an add and a completion read their own rows, with 50,000 jobs of the key', async () => {
    await fillKeys(1, "'hot'", 'now()')
    await client.query('VACUUM ANALYZE holdfast.jobs, holdfast.job_ordering_keys')
    await fillKeys(OTHERS, "'hot'", 'now()')
    const added = await undone(sql.add, ['q', null, 'hot', '1', '0', '5'])
    assert.ok(added.entries < 20, `${added.entries} entries to add`)
    const { rows } = await client.query(sql.claim, ['q', '1', 'attempt', '30000'])
    const completed = await undone(sql.complete, [rows[0].id, 'attempt'])
    assert.equal(completed.rows.length, 1)
    assert.ok(completed.entries < 20, `${completed.entries} entries to complete`)
  })

  test('T106 under an open snapshot, what a job of a key costs hardly grows with the jobs before it', async () => {
    const old = await pool.connect()
    await old.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1')
    const blocks = async () =>
      (
        await client.query(`
          SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::int AS blocks FROM pg_class
          WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')`)
      ).rows[0].blocks as number
    await client.query("SELECT holdfast.add_job('q', NULL, 'hot', '1', '0', 5) FROM generate_series(1, 700)")
    /** The mean of so many jobs. */
    const run = async (jobs: number): Promise<number> => {
      let sum = 0
      for (let done = 0; done < jobs; done++) {
        await client.query('BEGIN')
        const before = await blocks()
        // A time that is over soon: the key's earlier times are found by the claims that look for dead workers.
        const { rows } = await client.query(sql.claim, ['q', '1', 'attempt', '50'])
        assert.equal((await client.query(sql.complete, [rows[0].id, 'attempt'])).rows.length, 1)
        sum += (await blocks()) - before
        await client.query('COMMIT')
      }
      return sum / jobs
    }
    await run(50)
    const early = await run(50)
    await run(500)
    const late = await run(50)
    old.release(true)
    assert.ok(late < 4 * early, `${early} blocks for one of the first jobs, ${late} for one of the last`)
  })

  test('tables of another layout are refused, with what to do', async () => {
    for (const part of ['jobs', 'idempotency']) {
      await client.query(
        `INSERT INTO holdfast.parts VALUES ('${part}', 2, 'o') ON CONFLICT (part) DO UPDATE SET version = 2`,
      )
      const use =
        part === 'jobs'
          ? postgresJobs({ client: pool, queue: 'q' }).claimJobs()
          : postgresIdempotent({ client: pool })({ scope: 's', key: 'k' }, () => 1)
      await assert.rejects(use, { code: 'UNSUPPORTED', message: /layout 2.*knows 1.*another schema/ })
    }
  })
})
