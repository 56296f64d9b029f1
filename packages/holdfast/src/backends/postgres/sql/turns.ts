/**
 * Whose turn it is: the functions that all others stand on. Locks are taken in one order, so that no two calls can
 * wait for each other:
 *
 *   1. names    `lock_names`, all that the call will touch, in the order of their keys. An advisory lock that ends with
 *               the transaction: it writes nothing, and there need not be a row for a name that nobody uses.
 *   2. sessions `lock_sessions`, in the order of their numbers.
 *
 * The snapshot of each statement is taken after the locks, so it shows all that was committed under them (hence READ
 * COMMITTED, which `begin_work` insists on).
 *
 * Expiry is judged while holding the session's row (T66). A keep-alive holds it until its commit is durable, so who
 * has it sees whether the time was prolonged. A session that was found to be over is marked as `ended` in the same
 * transaction, and nothing brings it back, not even a clock that is set back. Only this way of being over takes
 * something away; to see without the lock that a session is alive is enough to add to what it has, because what is
 * added ends with the session.
 *
 * Every connection caches its plans, and would go on with one that was made while a table was small when it is large (T83).
 * So the planner has no choice. Functions that clients call have BY_INDEX. A lookup compares the columns with which an index
 * begins, and no column of another index: what must not be looked up by is an expression (`h.session + 0`,
 * `w.name || ''`). OFFSET 0 keeps a lookup from becoming a join, which might read all rows once instead of a few rows often.
 */

import { ID_LENGTH } from '../../../base/ids.ts'
import { quoteText } from '../../../clients/postgres/index.ts'
import { isWatched } from './events.ts'

/** Keeps our keys apart from those that others make of the same text. */
export const LOCK_SEED = '7305804402384072037'

/** No call waits for as long in a server that works, and core has cancelled its calls by then, unless told otherwise. */
export const LONGEST_LOCK_WAIT_MS = 5_000

export const turns = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.begin_work() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'holdfast needs the isolation level READ COMMITTED, and this transaction has %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF001';
  END IF;
  -- What was granted must not be undone by a crash of the server (T68).
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- For a call that grants nothing, closes nothing and stores nothing: its commit need not wait for the disk. Whoever is
-- granted the name next waits for the disk, and the log up to there includes this call. After a crash that lost it, what was
-- released or abandoned is there again, and ends with its session, or at the next keep-alive, which does not list it; a
-- waiter has lost its place, and asks anew.
CREATE OR REPLACE FUNCTION ${s}.commit_lazily() RETURNS boolean LANGUAGE sql AS $$
  SELECT set_config('synchronous_commit', 'off', true) IS NULL
$$;

-- What this transaction does must not be undone by a crash.
CREATE OR REPLACE FUNCTION ${s}.must_last() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('holdfast.must_last', 'yes', true);
END $$;

CREATE OR REPLACE FUNCTION ${s}.commit_lazily_if_it_may() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('holdfast.must_last', true) IS DISTINCT FROM 'yes' THEN
    PERFORM ${s}.commit_lazily();
  END IF;
END $$;

-- A lock that is stuck must not gather processes of the server that wait for it, for callers who have long gone. What is
-- given up is undone (55P03). For locks that are free, which is nearly all of them, this costs nothing.
CREATE OR REPLACE FUNCTION ${s}.limit_waits() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '${LONGEST_LOCK_WAIT_MS}', true);
END $$;

CREATE OR REPLACE FUNCTION ${s}.wait_for_name(p_key bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ${s}.limit_waits();
  PERFORM pg_advisory_xact_lock(p_key);
END $$;

CREATE OR REPLACE FUNCTION ${s}.lock_names(p_namespace text, p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_key bigint;
BEGIN
  FOR v_key IN
    SELECT DISTINCT hashtextextended(p_namespace || chr(31) || name, ${LOCK_SEED}) FROM unnest(p_names) AS name ORDER BY 1
  LOOP
    IF NOT pg_try_advisory_xact_lock(v_key) THEN
      PERFORM ${s}.wait_for_name(v_key);
    END IF;
  END LOOP;
END $$;

-- Locks p_always, and those that seem to be over: of p_perhaps, and of all that have a claim on the names. Ends those
-- that really are.
CREATE OR REPLACE FUNCTION ${s}.lock_sessions(p_namespace text, p_names text[], p_always bigint[], p_perhaps bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  -- This reads the whole, small table: no index knows the expiry.
  v_over bigint[] := ARRAY(SELECT z.no FROM ${s}.sessions z WHERE z.ended IS NULL AND z.expires_at <= clock_timestamp());
  v_locked bigint[];
BEGIN
  IF cardinality(p_always) + cardinality(v_over) = 0 THEN
    RETURN;
  END IF;
  PERFORM ${s}.limit_waits();
  v_locked := ARRAY(
    SELECT z.no FROM ${s}.sessions z
    WHERE z.no = ANY (p_always || v_over) AND z.ended IS NULL
      AND (z.no = ANY (p_always) OR (z.expires_at <= clock_timestamp() AND (
      z.no = ANY (p_perhaps)
      OR EXISTS (SELECT FROM unnest(p_names) AS u (name) WHERE EXISTS (
        SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = u.name AND h.session + 0 = z.no OFFSET 0) OFFSET 0)
      OR EXISTS (SELECT FROM ${s}.waiters w
        WHERE w.session = z.no AND w.namespace || '' = p_namespace AND w.name || '' = ANY (p_names) OFFSET 0))))
    ORDER BY z.no
    FOR UPDATE);
  IF cardinality(v_locked) > 0 THEN
    UPDATE ${s}.sessions SET ended = 'expired', ended_at = clock_timestamp()
    WHERE no = ANY (v_locked) AND ended IS NULL AND expires_at <= clock_timestamp();
  END IF;
END $$;

CREATE OR REPLACE FUNCTION ${s}.close_name(p_namespace text, p_name text, p_capacity integer, p_until timestamptz)
RETURNS void LANGUAGE sql AS $$
  SELECT ${s}.must_last();
  INSERT INTO ${s}.names AS n (namespace, name, capacity, closed_until) VALUES (p_namespace, p_name, p_capacity, p_until)
  ON CONFLICT (namespace, name) DO UPDATE SET closed_until = greatest(n.closed_until, excluded.closed_until)
$$;

-- Removes the holders whose session is over; a lock-delay counts from the end of the session's time.
CREATE OR REPLACE FUNCTION ${s}.clear(p_namespace text, p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_dead record;
BEGIN
  FOR v_dead IN
    DELETE FROM ${s}.holders h USING unnest(p_names) AS u (name), LATERAL (
      SELECT d.ctid FROM ${s}.holders d WHERE d.namespace = p_namespace AND d.name = u.name
        AND NOT EXISTS (SELECT FROM ${s}.sessions z WHERE z.no = d.session AND z.ended IS NULL OFFSET 0) OFFSET 0) dead
    WHERE h.ctid = dead.ctid
    RETURNING h.name, h.capacity, h.lock_delay_ms, h.session, h.attempt, h.owner, h.token, ${isWatched(s)} AS is_watched
  LOOP
    IF v_dead.is_watched THEN
      PERFORM ${s}.log_event(p_namespace,
        coalesce((SELECT CASE z.ended WHEN 'expired' THEN 'expired' ELSE 'released' END
          FROM ${s}.sessions z WHERE z.no = v_dead.session), 'ended'),
        v_dead.name, v_dead.attempt, v_dead.session, v_dead.owner, v_dead.token);
    END IF;
    IF v_dead.lock_delay_ms > 0 THEN
      PERFORM ${s}.close_name(p_namespace, v_dead.name, v_dead.capacity,
        z.expires_at + v_dead.lock_delay_ms * interval '1 millisecond')
      FROM ${s}.sessions z
      WHERE z.no = v_dead.session AND z.ended = 'expired'
        AND z.expires_at + v_dead.lock_delay_ms * interval '1 millisecond' > clock_timestamp();
    END IF;
  END LOOP;
END $$;

-- Grants to the first in the queue for as long as they fit. Waiters whose session or whose own time is over are removed: under
-- load most grants would go to callers that have gone. A waiter of the caller's process is told by the answer, every other
-- one by a notification, once the transaction has committed.
CREATE OR REPLACE FUNCTION ${s}.promote(p_namespace text, p_name text, p_channel text)
RETURNS TABLE (session bigint, attempt text, token bigint, data text) LANGUAGE plpgsql AS $$
DECLARE
  v_first record;
  v_name ${s}.names;
  v_held bigint;
BEGIN
  LOOP
    SELECT w.*, z.no IS NULL OR z.ended IS NOT NULL OR coalesce(w.until <= clock_timestamp(), false) AS is_over, ${isWatched(s)} AS is_watched INTO v_first
    FROM (
      SELECT * FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name ORDER BY w.place LIMIT 1) w
    LEFT JOIN LATERAL (SELECT * FROM ${s}.sessions z WHERE z.no = w.session OFFSET 0) z ON true;
    EXIT WHEN NOT FOUND;
    IF v_first.is_over THEN
      DELETE FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name AND w.place = v_first.place;
      IF v_first.is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'gave-up', p_name, v_first.attempt, v_first.session, v_first.owner, NULL);
      END IF;
      CONTINUE;
    END IF;
    IF v_held IS NULL THEN
      SELECT * INTO v_name FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_name;
      EXIT WHEN v_name.closed_until > clock_timestamp();
      SELECT coalesce(sum(h.weight), 0) INTO v_held
      FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name;
    END IF;
    EXIT WHEN v_held + v_first.weight > v_first.capacity;
    PERFORM ${s}.must_last();
    token := nextval(${quoteText(`${s}.tokens`)});
    INSERT INTO ${s}.holders VALUES (p_namespace, p_name, v_first.attempt, v_first.session, token, v_first.mode,
      v_first.weight, v_first.capacity, v_first.lock_delay_ms, clock_timestamp(), v_first.note, v_name.data, v_first.owner);
    DELETE FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name AND w.place = v_first.place;
    v_held := v_held + v_first.weight;
    session := v_first.session;
    attempt := v_first.attempt;
    data := v_name.data;
    IF v_first.is_watched THEN
      PERFORM ${s}.log_event(p_namespace, 'acquired', p_name, attempt, session, v_first.owner, token);
    END IF;
    IF v_first.channel = p_channel THEN
      RETURN NEXT;
    ELSIF v_first.channel IS NOT NULL THEN
      PERFORM ${s}.tell(v_first.channel, session, attempt, token, data);
    END IF;
  END LOOP;
END $$;

-- A release that keeps the name closed serves nobody, but the first in line must know when to ask again.
CREATE OR REPLACE FUNCTION ${s}.postpone(p_namespace text, p_name text, p_channel text)
RETURNS TABLE (session bigint, attempt text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_first record;
BEGIN
  SELECT w.session, w.attempt, w.channel INTO v_first FROM ${s}.waiters w
  WHERE w.namespace = p_namespace AND w.name = p_name ORDER BY w.place LIMIT 1;
  IF v_first.channel = p_channel THEN
    RETURN QUERY SELECT v_first.session, v_first.attempt;
  ELSIF v_first.channel IS NOT NULL THEN
    PERFORM pg_notify(v_first.channel, json_build_array(v_first.session, left(v_first.attempt, ${ID_LENGTH}))::text);
  END IF;
END $$;

-- The secret half of the attempt stays here. What does not fit into a notification is looked up by whoever gets it.
CREATE OR REPLACE FUNCTION ${s}.tell(p_channel text, p_session bigint, p_attempt text, p_token bigint, p_data text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_message text := json_build_array(p_session, left(p_attempt, ${ID_LENGTH}), p_token::text, p_data)::text;
BEGIN
  IF octet_length(v_message) > 7900 THEN
    v_message := json_build_array(p_session, left(p_attempt, ${ID_LENGTH}))::text;
  END IF;
  PERFORM pg_notify(p_channel, v_message);
END $$;
`
