/** What a claim reads: what it claims, whatever else the table has, and whatever the statistics say (T83). */
import assert from 'node:assert/strict'
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { postgresIdempotent, postgresJobs } from '../postgres.ts'
import { jobStatements } from './jobs-sql.ts'
import { keyStatements } from './keys-sql.ts'

const OTHERS = 50_000
const DUE = 12

const others: Record<string, string> = {
  dead: "'ready', now() - interval '1 hour', 5, 5, NULL",
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
  }, 60_000)
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
      INSERT INTO holdfast.jobs (queue, body, state, visible_at, attempts, max_attempts, done_at)
      SELECT 'q', '1', ${others[what]} FROM generate_series(1, ${count})`)
  const read = async () => {
    const { rows } = await client.query(`
      SELECT sum(pg_stat_get_xact_tuples_returned(oid))::int AS entries FROM pg_class
      WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')`)
    return rows[0].entries as number
  }
  /** The entries of indexes and the rows that a claim reads, and what it gets. It is undone. */
  const undone = async (text: string, values: readonly string[]) => {
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

  test('T83 with statistics of a small table, a claim of a key reads its own row, in tables of layout 1 that are brought up to date', async () => {
    const idempotent = postgresIdempotent({ client: pool })
    await idempotent({ scope: 's', key: 'first' }, () => 1)
    await client.query(`
      ALTER FUNCTION holdfast.idempotency_claim RESET ALL;
      UPDATE holdfast.parts SET version = 1 WHERE part = 'idempotency'`)
    await postgresIdempotent({ client: pool })({ scope: 's', key: 'second' }, () => 1)
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

  test('tables of layout 1 are brought up to date, and a worker of that release that runs excludes the new ones', async () => {
    await client.query(`
      DROP FUNCTION holdfast.claim_jobs;
      DROP INDEX holdfast.jobs_claimable, holdfast.jobs_dead;
      CREATE INDEX jobs_ready ON holdfast.jobs (queue, visible_at) WHERE state = 'ready';
      UPDATE holdfast.parts SET version = 1 WHERE part = 'jobs'`)
    await fill('due', 20)
    const old = async () => {
      const { rows } = await pool.query<{ id: string }>(`
        WITH due AS (
          SELECT id FROM holdfast.jobs
          WHERE queue = 'q' AND state = 'ready' AND visible_at <= statement_timestamp() AND attempts < max_attempts
          ORDER BY visible_at, id LIMIT 2 FOR UPDATE SKIP LOCKED)
        UPDATE holdfast.jobs j SET attempts = j.attempts + 1, attempt = 'old', token = nextval('holdfast.job_tokens'),
          visible_at = clock_timestamp() + interval '30 s'
        FROM due WHERE j.id = due.id RETURNING j.id::text`)
      return rows
    }
    const claimed = await old()
    await assert.rejects(postgresJobs({ client: pool, queue: 'q', createSchema: false }).claimJobs(), {
      code: 'UNSUPPORTED',
      message: /older release.*postgresLockfreeSchema\(\)/,
    })
    const jobs = postgresJobs({ client: pool, queue: 'q' })
    for (let time = 0; time < 5; time++) {
      const both = await Promise.all([old(), jobs.claimJobs({ limit: 2 })])
      claimed.push(...both.flat())
    }
    assert.equal(new Set(claimed.map(({ id }) => id)).size, claimed.length)
    claimed.push(...(await jobs.claimJobs({ limit: 20 })))
    assert.equal(new Set(claimed.map(({ id }) => id)).size, 20)
    const { rows } = await client.query(`
      SELECT version, to_regclass('holdfast.jobs_ready') AS old FROM holdfast.parts WHERE part = 'jobs'`)
    assert.deepEqual(rows, [{ version: 2, old: null }])
  })
})
