/** The table of jobs, and its statements. */
import { BY_INDEX, quoteText, READ_AND_WRITE, type TablePart } from '../../clients/postgres/index.ts'
import { ON_DISK } from './durable.ts'

/**
 * A claim reads the jobs that it claims, whatever else the queue has: dead, done, claimed or added for later. The index
 * `jobs_claimable` has none of the first two, and the others are behind its end. By statistics that are old, the planner
 * might read all jobs instead, so `claim_jobs` leaves it no choice (T83).
 */
export const jobTables: TablePart = {
  part: 'jobs',
  version: 2,
  relations: { jobs: READ_AND_WRITE, job_tokens: ['USAGE'] },
  printedBy: 'postgresLockfreeSchema()',
  sql: (s) => `
CREATE TABLE IF NOT EXISTS ${s}.jobs (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue        text COLLATE "C" NOT NULL,
  key          text COLLATE "C",
  body         text NOT NULL,
  state        text NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'done')),
  visible_at   timestamptz NOT NULL,
  attempts     integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL,
  attempt      text COLLATE "C",
  token        bigint,
  last_error   text,
  done_at      timestamptz,
  UNIQUE (queue, key)
);
CREATE INDEX IF NOT EXISTS jobs_claimable ON ${s}.jobs (queue, visible_at, id)
WHERE state = 'ready' AND attempts < max_attempts;
CREATE INDEX IF NOT EXISTS jobs_dead ON ${s}.jobs (queue, id) WHERE state = 'ready' AND attempts >= max_attempts;
DROP INDEX IF EXISTS ${s}.jobs_ready;
CREATE INDEX IF NOT EXISTS jobs_done ON ${s}.jobs (queue, done_at) WHERE state = 'done';
CREATE SEQUENCE IF NOT EXISTS ${s}.job_tokens CACHE 1;
CREATE OR REPLACE FUNCTION ${s}.claim_jobs(the_queue text, most integer, the_attempt text, hidden interval)
RETURNS SETOF ${s}.jobs LANGUAGE plpgsql
${BY_INDEX} SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  -- The rows are locked, and judged again, before anything is drawn or written.
  RETURN QUERY
  WITH due AS (
    SELECT d.id FROM ${s}.jobs d
    WHERE d.queue = the_queue AND d.state = 'ready' AND d.visible_at <= statement_timestamp() AND d.attempts < d.max_attempts
    ORDER BY d.visible_at, d.id LIMIT most FOR UPDATE SKIP LOCKED)
  UPDATE ${s}.jobs j SET attempts = j.attempts + 1, attempt = the_attempt, token = nextval(${quoteText(`${s}.job_tokens`)}),
    visible_at = clock_timestamp() + hidden
  FROM due WHERE j.id = due.id RETURNING j.*;
END
$$;
`,
}

/**
 * As text: `statement_timestamp()` where an index is to be used; it is never later than now, and so errs by waiting.
 *
 * A job that was added, a token that is drawn, the time for which a job is hidden, and its completion are told when they
 * are on the disk. What a crash of the server takes back of the rest does no harm: a job that was given back is hidden
 * until its time is over, one that was revived is dead again, and one that was removed is removed another time.
 */
export function jobStatements(s: string) {
  const own = 'id = $1::text::bigint AND attempt = $2::text'
  const ms = (parameter: string) => `${parameter}::text::double precision * interval '1 millisecond'`
  return {
    add: `
      INSERT INTO ${s}.jobs (queue, key, body, visible_at, max_attempts)
      VALUES ($1::text, $2::text, $3::text, clock_timestamp() + ${ms('$4')}, $5::text::integer)
      ON CONFLICT (queue, key) DO NOTHING RETURNING id::text, ${ON_DISK}`,
    claim: `
      SELECT id::text, key, body, attempts::text, max_attempts::text, token::text, ${ON_DISK}
      FROM ${s}.claim_jobs($1::text, $2::text::integer, $3::text, ${ms('$4')})`,
    extend: `
      UPDATE ${s}.jobs SET visible_at = clock_timestamp() + ${ms('$3')}
      WHERE ${own} AND state = 'ready' RETURNING 1, ${ON_DISK}`,
    complete: `
      UPDATE ${s}.jobs SET state = 'done', done_at = coalesce(done_at, clock_timestamp()), last_error = NULL
      WHERE ${own} RETURNING 1, ${ON_DISK}`,
    // The attempt is given up with it: its worker cannot complete the job any more.
    fail: `
      UPDATE ${s}.jobs SET attempt = NULL, last_error = $3::text, visible_at = clock_timestamp() + ${ms('$4')}
      WHERE ${own} AND state = 'ready' RETURNING 1`,
    count: `
      SELECT count(*) FILTER (WHERE state = 'ready' AND attempts < max_attempts AND visible_at <= now())::text,
        count(*) FILTER (WHERE state = 'ready' AND visible_at > now())::text,
        count(*) FILTER (WHERE state = 'ready' AND attempts >= max_attempts AND visible_at <= now())::text,
        count(*) FILTER (WHERE state = 'done')::text
      FROM ${s}.jobs WHERE queue = $1::text`,
    dead: `
      SELECT id::text, key, body, attempts::text, last_error FROM ${s}.jobs
      WHERE queue = $1::text AND state = 'ready' AND attempts >= max_attempts AND visible_at <= statement_timestamp()
      ORDER BY id LIMIT $2::text::integer`,
    revive: `
      UPDATE ${s}.jobs SET attempts = 0, attempt = NULL, visible_at = clock_timestamp()
      WHERE queue = $1::text AND id = $2::text::bigint AND state = 'ready' AND attempts >= max_attempts
        AND visible_at <= clock_timestamp() RETURNING 1`,
    prune: `
      WITH old AS (
        SELECT id FROM ${s}.jobs
        WHERE queue = $1::text AND state = 'done' AND done_at <= statement_timestamp() - ${ms('$2')}
        ORDER BY done_at LIMIT 1000 FOR UPDATE SKIP LOCKED),
      gone AS (DELETE FROM ${s}.jobs WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
      SELECT count(*)::text FROM gone`,
  }
}
