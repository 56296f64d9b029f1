/**
 * The tables of jobs, and the functions that add and claim jobs.
 *
 * A claim reads the jobs that it claims, whatever else the queue has: set aside, done, claimed, added for later, or waiting behind
 * another job of their ordering key. `jobs_claimable` has only jobs without an ordering key, and neither done nor set-aside ones.
 * A statement by old statistics might read all jobs instead, so `claim_jobs` leaves the planner no choice (T83, plans for small tables).
 *
 * Order. `job_ordering_keys` has one row for each ordering key that has jobs: when the next one is due, and the token of the
 * claim that the key is given to. The row is the key's lease: jobs of one key are claimed, prolonged and completed under it.
 * `job_ordering_key_names` has the name of each such key, so that there is one row.
 *
 *   no row ──add_job──▶ free ──claim_jobs: a token, due again after visibilityMs──▶ given
 *   given ──complete, fail, by the token──▶ free
 *   given ──due_at has come──▶ free, still with its token ──▶ claimed again: its job if it has starts left, else the next one
 *   free ──claim_jobs finds no job──▶ no row
 *
 *   Two transactions add to one key: the second waits at the advisory lock until the first has ended, and draws its id after
 *     that. So ids of one key are in the order of commits. The lock is released after the commit is visible: a claim that sees a
 *     job sees all earlier ones of its key.
 *   A transaction that adds is open, and the key has no other job: a claim finds none, and must not delete the row, which the
 *     other transaction has seen. It deletes only if it gets the advisory lock at once, and then looks for jobs again.
 *     In REPEATABLE READ a second look shows nothing new, so it does not delete, and an adder does not trust its look.
 *   A worker dies: the row is due when its time is over, and its job is still the oldest.
 *   A worker is slow, and the key was given to another: the row has another token, so the slow one cannot prolong, complete or
 *     give back its job, even if that was its last start and another job runs by now.
 *   Locks are taken in the order advisory lock, name, row of the key, job. A claim waits for none of the first three.
 *
 * Cost under an old snapshot (T106, a pg_dump): each claim and each completion leave a version of the key's row, which the
 * server keeps until the snapshot is gone. So nothing looks for that row by what all of its versions have: a unique index on it
 * would visit each of them at each change. The name is in a table of its own, which a job does not change. A claim finds the
 * row by its time and changes it in place (ctid), a worker finds it by its token. Keys that are free and keys that are given
 * have an index each, in which dead versions lie as they lie in the table, and are passed page by page. The first job of
 * a key is looked for after `done_to`: up to there none is pending.
 */
import { quoteText } from '../client/index.ts'
import { BY_INDEX, READ_AND_WRITE, type TablePart } from '../tables/tables.ts'

/** Pending jobs can be claimed, now or later. The planner uses a partial index only for conditions that are written alike. */
const PENDING = "state = 'ready' AND starts < max_starts"
const KEY_LOCK = "hashtextextended(the_key, hashtextextended('holdfast jobs ' || the_queue, 0))"
const SEES_COMMITS = "current_setting('transaction_isolation') = 'read committed'"

export const jobTables: TablePart = {
  part: 'jobs',
  version: 1,
  relations: {
    jobs: READ_AND_WRITE,
    job_ordering_keys: READ_AND_WRITE,
    job_ordering_key_names: READ_AND_WRITE,
    job_tokens: ['USAGE'],
  },
  printedBy: 'postgresLockfreeSchema()',
  sql: (s) => `
CREATE TABLE IF NOT EXISTS ${s}.jobs (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue        text COLLATE "C" NOT NULL,
  key          text COLLATE "C",
  ordering_key text COLLATE "C",
  body         text NOT NULL,
  state        text NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'done')),
  visible_at   timestamptz NOT NULL,
  starts       integer NOT NULL DEFAULT 0,
  max_starts   integer NOT NULL,
  attempt      text COLLATE "C",
  token        bigint,
  last_error   text,
  done_at      timestamptz,
  UNIQUE (queue, key)
);
CREATE INDEX IF NOT EXISTS jobs_claimable ON ${s}.jobs (queue, visible_at, id) WHERE ordering_key IS NULL AND ${PENDING};
CREATE INDEX IF NOT EXISTS jobs_in_order ON ${s}.jobs (queue, ordering_key, id) WHERE ordering_key IS NOT NULL AND ${PENDING};
CREATE INDEX IF NOT EXISTS jobs_set_aside ON ${s}.jobs (queue, id) WHERE state = 'ready' AND starts >= max_starts;
CREATE INDEX IF NOT EXISTS jobs_done ON ${s}.jobs (queue, done_at) WHERE state = 'done';
CREATE TABLE IF NOT EXISTS ${s}.job_ordering_keys (
  queue        text COLLATE "C" NOT NULL,
  ordering_key text COLLATE "C" NOT NULL,
  due_at       timestamptz NOT NULL,
  is_given     boolean NOT NULL DEFAULT false,
  token        bigint,
  done_to      bigint NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS job_ordering_keys_due ON ${s}.job_ordering_keys (queue, due_at, ordering_key) WHERE NOT is_given;
CREATE INDEX IF NOT EXISTS job_ordering_keys_given ON ${s}.job_ordering_keys (queue, due_at) WHERE is_given;
CREATE INDEX IF NOT EXISTS job_ordering_keys_token ON ${s}.job_ordering_keys (token) WHERE token IS NOT NULL;
CREATE INDEX IF NOT EXISTS job_ordering_keys_key ON ${s}.job_ordering_keys (queue, ordering_key);
CREATE TABLE IF NOT EXISTS ${s}.job_ordering_key_names (
  queue        text COLLATE "C" NOT NULL,
  ordering_key text COLLATE "C" NOT NULL,
  PRIMARY KEY (queue, ordering_key)
);
CREATE SEQUENCE IF NOT EXISTS ${s}.job_tokens CACHE 1;

-- No row: the queue has a job with this unique key already.
CREATE OR REPLACE FUNCTION ${s}.add_job(
  the_queue text, unique_key text, the_key text, the_body text, delay interval, most_attempts integer)
RETURNS SETOF bigint LANGUAGE plpgsql ${BY_INDEX} AS $$
BEGIN
  IF the_key IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(${KEY_LOCK});
  END IF;
  RETURN QUERY INSERT INTO ${s}.jobs AS j (queue, key, ordering_key, body, visible_at, max_starts)
    VALUES (the_queue, unique_key, the_key, the_body, clock_timestamp() + delay, most_attempts)
    ON CONFLICT (queue, key) DO NOTHING RETURNING j.id;
  IF FOUND AND the_key IS NOT NULL THEN
    INSERT INTO ${s}.job_ordering_key_names (queue, ordering_key) VALUES (the_queue, the_key) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      INSERT INTO ${s}.job_ordering_keys (queue, ordering_key, due_at)
      VALUES (the_queue, the_key, clock_timestamp() + delay);
    END IF;
  END IF;
END
$$;

-- At most one job of each key. Each statement sees what was committed before it, so the row of a key is locked before its
-- jobs are looked at.
CREATE OR REPLACE FUNCTION ${s}.claim_jobs_in_order(the_queue text, most integer, the_attempt text, hidden interval)
RETURNS SETOF ${s}.jobs LANGUAGE plpgsql AS $$
DECLARE
  the_due timestamptz := '-infinity';
  the_key text := '';
  hidden_until timestamptz := clock_timestamp() + hidden;
  the_row tid;
  begin_after bigint;
  head ${s}.jobs;
BEGIN
  WHILE most > 0 LOOP
    SELECT k.due_at, k.ordering_key, k.done_to, k.ctid INTO the_due, the_key, begin_after, the_row FROM ${s}.job_ordering_keys k
    WHERE k.queue = the_queue AND NOT k.is_given AND k.due_at <= statement_timestamp()
      AND (k.due_at, k.ordering_key) > (the_due, the_key)
    ORDER BY k.due_at, k.ordering_key LIMIT 1 FOR UPDATE SKIP LOCKED;
    EXIT WHEN NOT FOUND;
    SELECT j.* INTO head FROM ${s}.jobs j
    WHERE j.queue = the_queue AND j.ordering_key = the_key AND j.id > begin_after AND ${PENDING} ORDER BY j.id LIMIT 1;
    IF NOT FOUND THEN
      IF ${SEES_COMMITS} AND pg_try_advisory_xact_lock(${KEY_LOCK}) THEN
        PERFORM FROM ${s}.job_ordering_key_names n WHERE n.queue = the_queue AND n.ordering_key = the_key
        FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
          DELETE FROM ${s}.job_ordering_keys k WHERE k.ctid = the_row AND NOT EXISTS (SELECT FROM ${s}.jobs j
            WHERE j.queue = the_queue AND j.ordering_key = the_key AND j.id > begin_after AND ${PENDING});
          IF FOUND THEN
            DELETE FROM ${s}.job_ordering_key_names n WHERE n.queue = the_queue AND n.ordering_key = the_key;
          END IF;
        END IF;
      END IF;
    ELSIF head.visible_at > statement_timestamp() THEN
      UPDATE ${s}.job_ordering_keys k SET due_at = head.visible_at, token = NULL, done_to = head.id - 1
      WHERE k.ctid = the_row;
    ELSE
      UPDATE ${s}.jobs j SET starts = j.starts + 1, attempt = the_attempt, token = nextval(${quoteText(`${s}.job_tokens`)}),
        visible_at = hidden_until
      WHERE j.id = head.id RETURNING j.* INTO head;
      UPDATE ${s}.job_ordering_keys k SET is_given = true, due_at = hidden_until, token = head.token, done_to = head.id - 1
      WHERE k.ctid = the_row;
      RETURN NEXT head;
      most := most - 1;
    END IF;
  END LOOP;
END
$$;

-- Under the lock of its name, no claim forgets the key.
CREATE OR REPLACE FUNCTION ${s}.requeue_job(the_queue text, the_id bigint) RETURNS SETOF bigint LANGUAGE plpgsql
${BY_INDEX} AS $$
DECLARE
  the_key text;
BEGIN
  UPDATE ${s}.jobs j SET starts = 0, attempt = NULL, visible_at = clock_timestamp()
  WHERE j.queue = the_queue AND j.id = the_id AND j.state = 'ready' AND j.starts >= j.max_starts
    AND j.visible_at <= clock_timestamp() RETURNING j.ordering_key INTO the_key;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF the_key IS NOT NULL THEN
    INSERT INTO ${s}.job_ordering_key_names (queue, ordering_key) VALUES (the_queue, the_key)
    ON CONFLICT (queue, ordering_key) DO UPDATE SET queue = excluded.queue;
    UPDATE ${s}.job_ordering_keys k SET done_to = least(k.done_to, the_id - 1),
      due_at = CASE WHEN k.token IS NULL THEN clock_timestamp() ELSE k.due_at END
    WHERE k.queue = the_queue AND k.ordering_key = the_key;
    IF NOT FOUND THEN
      INSERT INTO ${s}.job_ordering_keys (queue, ordering_key, due_at) VALUES (the_queue, the_key, clock_timestamp());
    END IF;
  END IF;
  RETURN NEXT the_id;
END
$$;

-- Jobs without an ordering key and the keys take turns: what has been due for longest comes first.
CREATE OR REPLACE FUNCTION ${s}.claim_jobs(the_queue text, most integer, the_attempt text, hidden interval)
RETURNS SETOF ${s}.jobs LANGUAGE plpgsql
${BY_INDEX} SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  keys_due timestamptz;
  job_due timestamptz;
  given integer := 0;
  more integer := 0;
BEGIN
  UPDATE ${s}.job_ordering_keys SET is_given = false WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM ${s}.job_ordering_keys k
    WHERE k.queue = the_queue AND k.is_given AND k.due_at <= statement_timestamp()
    ORDER BY k.due_at LIMIT most FOR UPDATE SKIP LOCKED));
  SELECT k.due_at INTO keys_due FROM ${s}.job_ordering_keys k
  WHERE k.queue = the_queue AND NOT k.is_given AND k.due_at <= statement_timestamp() ORDER BY k.due_at LIMIT 1;
  IF keys_due IS NOT NULL THEN
    SELECT d.visible_at INTO job_due FROM ${s}.jobs d
    WHERE d.queue = the_queue AND d.ordering_key IS NULL AND d.visible_at <= statement_timestamp() AND ${PENDING}
    ORDER BY d.visible_at LIMIT 1;
  END IF;
  IF keys_due < job_due THEN
    RETURN QUERY SELECT * FROM ${s}.claim_jobs_in_order(the_queue, most, the_attempt, hidden);
    GET DIAGNOSTICS given = ROW_COUNT;
  END IF;
  -- The rows are locked, and judged again, before anything is drawn or written.
  RETURN QUERY
  WITH due AS (
    SELECT d.id FROM ${s}.jobs d
    WHERE d.queue = the_queue AND d.ordering_key IS NULL AND d.visible_at <= statement_timestamp() AND ${PENDING}
    ORDER BY d.visible_at, d.id LIMIT most - given FOR UPDATE SKIP LOCKED)
  UPDATE ${s}.jobs j SET starts = j.starts + 1, attempt = the_attempt, token = nextval(${quoteText(`${s}.job_tokens`)}),
    visible_at = clock_timestamp() + hidden
  FROM due WHERE j.id = due.id RETURNING j.*;
  GET DIAGNOSTICS more = ROW_COUNT;
  IF keys_due IS NOT NULL AND given = 0 THEN
    RETURN QUERY SELECT * FROM ${s}.claim_jobs_in_order(the_queue, most - more, the_attempt, hidden);
  END IF;
END
$$;
`,
}
