/** The statements of jobs. */
import { ON_DISK } from './durable.ts'

/**
 * As text: `statement_timestamp()` where an index is to be used; it is never later than now, and so errs by waiting.
 *
 * A job that was added, a token that is drawn, the time for which a job is hidden, and its completion are told when they
 * are on the disk. What a crash of the server takes back of the rest does no harm: a job that was given back is hidden
 * until its time is over, one that was requeued is set aside again, and one that was removed is removed another time.
 */
export function jobStatements(s: string) {
  const ms = (parameter: string) => `${parameter}::text::double precision * interval '1 millisecond'`
  const own = 'id = $1::text::bigint AND attempt = $2::text'
  /** With an ordering key, the job is its attempt's as long as the key is. `dueAt`: when the key is due again. */
  const withKey = (dueAt: string, isGiven: boolean) => `
      WITH own_key AS (
        UPDATE ${s}.job_ordering_keys k
        SET due_at = ${dueAt}, is_given = ${isGiven}, token = ${isGiven ? 'k.token' : 'NULL'} FROM ${s}.jobs j
        WHERE j.id = $1::text::bigint AND j.attempt = $2::text
          AND k.token = j.token
        RETURNING 1)`
  const hasKey = '(ordering_key IS NULL OR EXISTS (SELECT FROM own_key))'
  return {
    add: `
      SELECT id::text, ${ON_DISK}
      FROM ${s}.add_job($1::text, $2::text, $3::text, $4::text, ${ms('$5')}, $6::text::integer) AS id`,
    claim: `
      SELECT id::text, key, ordering_key, body, starts::text, max_starts::text, token::text, ${ON_DISK}
      FROM ${s}.claim_jobs($1::text, $2::text::integer, $3::text, ${ms('$4')})`,
    extend: `${withKey(`statement_timestamp() + ${ms('$3')}`, true)}
      UPDATE ${s}.jobs SET visible_at = statement_timestamp() + ${ms('$3')}
      WHERE ${own} AND state = 'ready' AND ${hasKey} RETURNING 1, ${ON_DISK}`,
    complete: `${withKey('clock_timestamp()', false)}
      UPDATE ${s}.jobs SET state = 'done', done_at = coalesce(done_at, clock_timestamp()), last_error = NULL
      WHERE ${own} AND (state = 'done' OR ${hasKey}) RETURNING 1, ${ON_DISK}`,
    // The attempt is given up with it: its worker cannot complete the job any more.
    fail: `${withKey(`statement_timestamp() + ${ms('$4')}`, false)}
      UPDATE ${s}.jobs SET attempt = NULL, last_error = $3::text, visible_at = statement_timestamp() + ${ms('$4')}
      WHERE ${own} AND state = 'ready' AND ${hasKey} RETURNING 1`,
    count: `
      SELECT count(*) FILTER (WHERE state = 'ready' AND starts < max_starts AND visible_at <= now())::text,
        count(*) FILTER (WHERE state = 'ready' AND visible_at > now())::text,
        count(*) FILTER (WHERE state = 'ready' AND starts >= max_starts AND visible_at <= now())::text,
        count(*) FILTER (WHERE state = 'done')::text
      FROM ${s}.jobs WHERE queue = $1::text`,
    setAside: `
      SELECT id::text, key, ordering_key, body, starts::text, last_error FROM ${s}.jobs
      WHERE queue = $1::text AND state = 'ready' AND starts >= max_starts AND visible_at <= statement_timestamp()
      ORDER BY id LIMIT $2::text::integer`,
    requeue: `SELECT id::text FROM ${s}.requeue_job($1::text, $2::text::bigint) AS id`,
    prune: `
      WITH old AS (
        SELECT id FROM ${s}.jobs
        WHERE queue = $1::text AND state = 'done' AND done_at <= statement_timestamp() - ${ms('$2')}
        ORDER BY done_at LIMIT 1000 FOR UPDATE SKIP LOCKED),
      gone AS (DELETE FROM ${s}.jobs WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
      SELECT count(*)::text FROM gone`,
  }
}
