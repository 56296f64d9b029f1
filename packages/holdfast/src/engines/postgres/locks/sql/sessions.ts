/**
 * A session's life: opened, kept alive, closed, swept.
 *
 *   keep_alive  send · lock the row · judge · prolong · commit · answer
 *               the new end counts from inside the transaction, belief from before it was sent. While the commit is
 *               in flight, also while it waits for a standby, the row is locked and no call judges it.
 *   close       the session is over for all clients at its first commit; claims beyond CLOSE_AT_ONCE are given up in
 *               further calls, or by a call that touches their names, or by a sweep.
 */
import { quoteText } from '../../client/index.ts'
import { BY_INDEX } from '../../tables/tables.ts'
import { keyOf } from './locks.ts'

export const CLOSE_AT_ONCE = 64

/** Longer than any call that began while the session was alive may still be on its way to its commit. */
const REMEMBER_ENDED = "interval '5 minutes'"

export const sessions = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.open_session(p_namespace text, p_id text, p_holder text, p_ttl_ms double precision)
RETURNS TABLE (no bigint, ttl_ms double precision) LANGUAGE plpgsql ${BY_INDEX} AS $$
#variable_conflict use_column
DECLARE
  v_found ${s}.sessions;
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.limit_waits();
  LOOP
    SELECT * INTO v_found FROM ${s}.sessions z WHERE z.id = p_id FOR UPDATE;
    IF FOUND AND v_found.namespace <> p_namespace THEN
      RETURN;
    END IF;
    IF FOUND AND v_found.ended IS NULL AND v_found.expires_at > clock_timestamp() THEN
      UPDATE ${s}.sessions z SET expires_at = clock_timestamp() + z.ttl_ms * interval '1 millisecond'
      WHERE z.no = v_found.no;
      RETURN QUERY SELECT v_found.no, v_found.ttl_ms;
      RETURN;
    END IF;
    -- A late repetition does not bring back what the expired session held (T31, revived locks).
    IF FOUND THEN
      UPDATE ${s}.sessions z SET id = NULL, ended = coalesce(z.ended, 'expired'),
        ended_at = coalesce(z.ended_at, clock_timestamp()) WHERE z.no = v_found.no;
    END IF;
    RETURN QUERY INSERT INTO ${s}.sessions AS z (id, namespace, holder, ttl_ms, expires_at)
    VALUES (p_id, p_namespace, p_holder, p_ttl_ms, clock_timestamp() + p_ttl_ms * interval '1 millisecond')
    ON CONFLICT (id) DO NOTHING
    RETURNING z.no, z.ttl_ms;
    IF FOUND THEN RETURN; END IF;
    -- Another call opened it in between, and has committed by now.
  END LOOP;
END $$;

-- gone | alive | lost (why, in data; the operator's words, in token) | granted | unlisted | stale (there is something to sweep)
CREATE OR REPLACE FUNCTION ${s}.keep_alive(
  p_namespace text, p_session bigint, p_attempts text[], p_names text[], p_tokens text[], p_waiting text[])
RETURNS TABLE (kind text, name text, attempt text, token text, data text) LANGUAGE plpgsql
${BY_INDEX} AS $$
#variable_conflict use_column
DECLARE
  v_found ${s}.sessions;
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.limit_waits();
  SELECT * INTO v_found FROM ${s}.sessions z WHERE z.no = p_session AND z.namespace = p_namespace FOR NO KEY UPDATE;
  IF NOT FOUND OR v_found.ended IS NOT NULL THEN
    RETURN QUERY SELECT 'gone', NULL, NULL, NULL, NULL;
    RETURN;
  END IF;
  IF v_found.expires_at <= clock_timestamp() THEN
    UPDATE ${s}.sessions z SET ended = 'expired', ended_at = clock_timestamp() WHERE z.no = p_session;
    RETURN QUERY SELECT 'gone', NULL, NULL, NULL, NULL;
    RETURN;
  END IF;
  UPDATE ${s}.sessions z SET expires_at = clock_timestamp() + z.ttl_ms * interval '1 millisecond' WHERE z.no = p_session;
  RETURN QUERY SELECT 'alive', NULL, NULL, NULL, NULL;

  -- One statement, so that a waiter that becomes a holder is seen in one of the two. A waiter is listed without a token,
  -- and may hold by now. A claim that is held under another token is lost, and unlisted as well (T84, late duplicates).
  RETURN QUERY
  WITH wrong AS (
    SELECT coalesce(l.name, c.name) AS name, coalesce(l.attempt, c.attempt) AS attempt,
      l.attempt IS NOT NULL AS is_lost, c.attempt IS NOT NULL AS is_unlisted
    FROM unnest(p_attempts, p_names, p_tokens) AS l (attempt, name, token)
    FULL JOIN (
      SELECT h.name, h.attempt, h.token::text FROM ${s}.holders h WHERE h.session = p_session
      UNION ALL SELECT w.name, w.attempt, NULL FROM ${s}.waiters w WHERE w.session = p_session
    ) c ON c.attempt = l.attempt AND c.name = l.name
    WHERE l.attempt IS NULL OR c.attempt IS NULL OR l.token <> coalesce(c.token, ''))
  SELECT 'lost', d.name, d.attempt, m.detail, CASE
    WHEN m.attempt IS NOT NULL THEN 'force-released'
    WHEN d.is_unlisted THEN 'deleted'
    -- Its weight went with the claim; no claim weighs less than 1.
    WHEN (SELECT sum(h.weight) + 1 > min(h.capacity) FROM ${s}.holders h
      WHERE h.namespace = p_namespace AND h.name = d.name) THEN 'taken-over'
    ELSE 'deleted' END
  FROM wrong d LEFT JOIN LATERAL (
    SELECT * FROM ${s}.marks m
    WHERE m.session = p_session AND m.attempt = d.attempt AND m.kind = 'force-released' OFFSET 0) m ON true
  WHERE d.is_lost
  UNION ALL SELECT 'unlisted', d.name, d.attempt, NULL, NULL FROM wrong d WHERE d.is_unlisted;

  IF cardinality(p_waiting) > 0 THEN
    RETURN QUERY SELECT 'granted', h.name, h.attempt, h.token::text, h.previous_data FROM ${s}.holders h
    WHERE h.session = p_session AND h.attempt || '' = ANY (p_waiting);
  END IF;
  RETURN QUERY SELECT 'stale', NULL, NULL, NULL, NULL FROM ${s}.sessions z
  WHERE CASE WHEN z.ended IS NULL THEN z.expires_at <= clock_timestamp()
    ELSE z.ended_at < clock_timestamp() - ${REMEMBER_ENDED} END LIMIT 1;
END $$;

-- The claims of a session on some of its names, with everything that follows from their end. The names are locked.
CREATE OR REPLACE FUNCTION ${s}.end_claims(p_namespace text, p_channel text, p_session bigint, p_names text[])
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_name text;
  v_gone ${s}.waiters;
  v_rows text := '';
BEGIN
  PERFORM ${s}.clear(p_namespace, p_names);
  FOR v_gone IN
    DELETE FROM ${s}.waiters w WHERE w.session = p_session AND w.name || '' = ANY (p_names) RETURNING w.*
  LOOP
    PERFORM ${s}.log_event(p_namespace, 'gave-up', v_gone.name, v_gone.attempt, p_session, v_gone.owner, NULL);
  END LOOP;
  FOREACH v_name IN ARRAY p_names LOOP
    v_rows := v_rows || ${s}.grant_next(p_namespace, v_name, p_channel);
  END LOOP;
  RETURN v_rows;
END $$;

CREATE OR REPLACE FUNCTION ${s}.names_of(p_session bigint, p_most integer) RETURNS text[] LANGUAGE sql AS $$
  SELECT coalesce(array_agg(DISTINCT name), '{}') FROM (
    (SELECT name FROM ${s}.holders WHERE session = p_session LIMIT p_most)
    UNION ALL (SELECT name FROM ${s}.waiters WHERE session = p_session LIMIT p_most)
  ) AS claimed
$$;

-- Rows as in claims, and "more" if there is more to give up.
CREATE OR REPLACE FUNCTION ${s}.end_session(p_namespace text, p_channel text, p_session bigint) RETURNS text LANGUAGE plpgsql
${BY_INDEX} AS $$
DECLARE
  v_names text[] := ${s}.names_of(p_session, ${CLOSE_AT_ONCE});
  v_rows text;
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.lock_names(p_namespace, v_names);
  PERFORM ${s}.lock_sessions(p_namespace, v_names, ARRAY[p_session], '{}');
  UPDATE ${s}.sessions z SET ended = 'closed', ended_at = clock_timestamp()
  WHERE z.no = p_session AND z.namespace = p_namespace AND z.ended IS NULL;
  v_rows := ${s}.end_claims(p_namespace, p_channel, p_session, v_names);
  IF cardinality(${s}.names_of(p_session, 1)) > 0
    AND EXISTS (SELECT FROM ${s}.sessions z WHERE z.no = p_session AND z.namespace = p_namespace)
  THEN
    v_rows := v_rows || ',["more"]';
  END IF;
  RETURN v_rows;
END $$;

-- Cleans up after one session that is over. No caller waits for this: what is over does not count, swept or not. One
-- sweeper at a time is enough. True: there may be more to do.
CREATE OR REPLACE FUNCTION ${s}.sweep() RETURNS boolean LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_found ${s}.sessions;
  v_names text[];
BEGIN
  PERFORM ${s}.begin_work();
  IF NOT pg_try_advisory_xact_lock(hashtextextended('sweep', ${quoteText(s)}::regnamespace::oid::bigint)) THEN
    RETURN false;
  END IF;
  SELECT * INTO v_found FROM ${s}.sessions z
  WHERE CASE WHEN z.ended IS NULL THEN z.expires_at <= clock_timestamp()
    ELSE z.ended_at < clock_timestamp() - ${REMEMBER_ENDED} OR cardinality(${s}.names_of(z.no, 1)) > 0 END
  LIMIT 1;
  IF NOT FOUND THEN
    -- A few at a time: each needs an entry in the server's lock table, which has some thousands for all connections.
    -- Materialized, because the planner would otherwise try the locks of all rows before it looks for these.
    WITH over AS MATERIALIZED (
      SELECT o.namespace, o.name FROM ${s}.names o
      WHERE o.data IS NULL AND o.closed_until < clock_timestamp() - interval '1 minute' LIMIT ${CLOSE_AT_ONCE}),
    mine AS MATERIALIZED (
      SELECT * FROM over WHERE pg_try_advisory_xact_lock(${keyOf('name', 'namespace')}))
    DELETE FROM ${s}.names n USING mine WHERE n.namespace = mine.namespace AND n.name = mine.name
      AND n.data IS NULL AND n.closed_until < clock_timestamp() - interval '1 minute';
    RETURN FOUND;
  END IF;
  v_names := ${s}.names_of(v_found.no, ${CLOSE_AT_ONCE});
  PERFORM ${s}.lock_names(v_found.namespace, v_names);
  PERFORM ${s}.lock_sessions(v_found.namespace, v_names, ARRAY[v_found.no], '{}');
  SELECT * INTO v_found FROM ${s}.sessions z WHERE z.no = v_found.no;
  IF v_found.ended IS NULL THEN
    RETURN true;
  END IF;
  PERFORM ${s}.end_claims(v_found.namespace, NULL, v_found.no, v_names);
  IF v_found.ended_at < clock_timestamp() - ${REMEMBER_ENDED} AND cardinality(${s}.names_of(v_found.no, 1)) = 0 THEN
    DELETE FROM ${s}.marks m WHERE m.session = v_found.no;
    DELETE FROM ${s}.sessions z WHERE z.no = v_found.no;
  END IF;
  RETURN true;
END $$;
`
