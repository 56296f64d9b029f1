/**
 * What sessions do with their claims: one call for a batch, each item with its own answer, none of which raises.
 *
 *   t  tryAcquire   granted | busy | session-gone | mismatch
 *   q  enqueue      granted | queued | queue-full | late | abandoned | session-gone | mismatch
 *   r  release      released | not-held                  the mode is the token of the grant
 *   a  abandon      abandoned
 *   d  setData      stored | not-held                    the same
 *
 * Without a token the attempt decides. Of \`p_owners\`, \`p_max_waiters\` and \`p_wait_ms\`, NULL stands for an array of NULLs.
 *
 * What may go wrong between the steps of a call: send · lock · judge · write · commit · answer.
 *   Crash or error before the commit: nothing happened. Crash or lost answer after it: a claim is the session's and ends
 *   with it; asked again, the attempt finds its own row and the same token. A cancelled wait for a standby counts as a
 *   lost answer. A pause anywhere: the locks are held meanwhile, time is read after they are won, and belief counts
 *   from the session's last prolongation, which is older.
 *   A session that ends between the look at it and the commit: the claim is over as soon as it is there (see turns).
 *   Released and handed over are one transaction: there is no moment in which the name is free for others.
 *   Abandon leaves its mark under the lock of the name, which a late request for the same attempt takes first (T73).
 *
 * Rows come and go thousands of times a second, and leave entries in the indexes. A plain index scan marks those that
 * it found dead, so that the next one passes over them; a bitmap scan does not, and would become slower with every call.
 *
 * Nearly all calls need one statement besides the lock: the name is free, or the holder releases and nobody waits. The
 * others go on to \`settle\`.
 */
import { BY_INDEX, quoteText } from '../../../clients/postgres/index.ts'
import { isWatched } from './events.ts'
import { LOCK_SEED } from './turns.ts'

export const claims = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.apply(
  p_namespace text, p_channel text, p_ops text[], p_names text[], p_attempts text[], p_sessions bigint[],
  p_modes text[], p_weights integer[], p_capacities integer[], p_ms double precision[], p_texts text[],
  p_owners text[], p_max_waiters integer[], p_wait_ms double precision[])
RETURNS TABLE (op text, attempt text, kind text, token text, data text, ms double precision, session bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan ${BY_INDEX} SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_row record;
  v_done text[] := '{}';
  v_line text[] := '{}';
  v_lazily boolean;
  v_lasts boolean := false;
BEGIN
  -- As begin_work and lock_names do it, without the cost of a statement for each.
  IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') <> 'on' THEN
    PERFORM ${s}.begin_work();
  END IF;
  IF cardinality(p_names) = 1 THEN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(p_namespace || chr(31) || p_names[1], ${LOCK_SEED})) THEN
      PERFORM ${s}.wait_for_name(hashtextextended(p_namespace || chr(31) || p_names[1], ${LOCK_SEED}));
    END IF;
  ELSE
    PERFORM ${s}.lock_names(p_namespace, p_names);
  END IF;

  IF 'r' = ANY (p_ops) THEN
    FOR v_row IN
      DELETE FROM ${s}.holders h
      USING unnest(p_ops, p_names, p_attempts, p_sessions, p_modes, p_ms) AS i (op, name, attempt, session, token, ms),
        LATERAL (
          SELECT f.ctid FROM ${s}.holders f
          WHERE f.namespace = p_namespace AND f.name = i.name AND f.attempt = i.attempt AND f.session + 0 = i.session
            AND (i.token IS NULL OR f.token::text = i.token) OFFSET 0) held
      WHERE i.op = 'r' AND h.ctid = held.ctid AND EXISTS (
        SELECT FROM ${s}.sessions z
        WHERE z.no = i.session AND z.ended IS NULL AND z.expires_at > clock_timestamp() OFFSET 0)
      RETURNING h.name, h.attempt, h.session, h.owner, h.token, h.capacity, i.ms, ${isWatched(s)} AS is_watched,
        EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = h.name OFFSET 0) AS waited_for
    LOOP
      IF v_row.is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'released', v_row.name, v_row.attempt, v_row.session, v_row.owner, v_row.token);
      END IF;
      IF v_row.ms > 0 THEN
        v_lasts := true;
        PERFORM ${s}.close_name(p_namespace, v_row.name, v_row.capacity,
          clock_timestamp() + v_row.ms * interval '1 millisecond');
      END IF;
      IF v_row.waited_for THEN v_line := v_line || v_row.name; END IF;
      v_done := v_done || ('r' || v_row.attempt);
      op := 'r'; attempt := v_row.attempt; kind := 'released';
      RETURN NEXT;
    END LOOP;
  END IF;

  IF 't' = ANY (p_ops) OR 'q' = ANY (p_ops) THEN
    FOR v_row IN
      INSERT INTO ${s}.holders
      SELECT p_namespace, i.name, i.attempt, i.session, nextval(${quoteText(`${s}.tokens`)}), i.mode, i.weight, i.capacity, i.ms,
        clock_timestamp(), i.note, n.data, i.owner
      FROM (
        -- Of several who want the same name, one at most finds it free.
        SELECT DISTINCT ON (name) *
        FROM unnest(p_ops, p_names, p_attempts, p_sessions, p_modes, p_weights, p_capacities, p_ms, p_texts, p_owners)
          WITH ORDINALITY AS u (op, name, attempt, session, mode, weight, capacity, ms, note, owner, nth)
        WHERE u.op IN ('t', 'q') ORDER BY name, nth) i
      LEFT JOIN LATERAL (
        SELECT n.data, n.closed_until FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = i.name OFFSET 0) n ON true
      WHERE EXISTS (
          SELECT FROM ${s}.sessions z
          WHERE z.no = i.session AND z.namespace = p_namespace AND z.ended IS NULL AND z.expires_at > clock_timestamp()
            AND (NOT z.has_marks OR NOT EXISTS (
              SELECT FROM ${s}.marks m WHERE m.session = i.session AND m.attempt = i.attempt OFFSET 0)) OFFSET 0)
        AND (n.closed_until IS NULL OR n.closed_until <= clock_timestamp())
        AND NOT EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = i.name OFFSET 0)
        AND NOT EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = i.name OFFSET 0)
      RETURNING name, attempt, session, owner, token, previous_data, ${isWatched(s)} AS is_watched
    LOOP
      IF v_row.is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'acquired', v_row.name, v_row.attempt, v_row.session, v_row.owner, v_row.token);
      END IF;
      v_lasts := true;
      v_done := v_done || ('g' || v_row.attempt);
      op := 'g'; attempt := v_row.attempt; kind := 'granted'; token := v_row.token; data := v_row.previous_data;
      RETURN NEXT;
    END LOOP;
  END IF;

  IF cardinality(v_done) < cardinality(p_ops) OR cardinality(v_line) > 0 THEN
    RETURN QUERY SELECT * FROM ${s}.settle(p_namespace, p_channel, p_ops, p_names, p_attempts, p_sessions, p_modes,
      p_weights, p_capacities, p_ms, p_texts, p_owners, p_max_waiters, p_wait_ms, v_done, v_line);
    IF NOT v_lasts THEN
      PERFORM ${s}.commit_lazily_if_it_may();
    END IF;
  ELSIF NOT v_lasts THEN
    v_lazily := ${s}.commit_lazily();
  END IF;
END $$;

-- What is left of a batch, item by item, with the names locked. h: something for a waiter of the caller's process.
CREATE OR REPLACE FUNCTION ${s}.settle(
  p_namespace text, p_channel text, p_ops text[], p_names text[], p_attempts text[], p_sessions bigint[],
  p_modes text[], p_weights integer[], p_capacities integer[], p_ms double precision[], p_texts text[],
  p_owners text[], p_max_waiters integer[], p_wait_ms double precision[], p_done text[], p_line text[])
RETURNS TABLE (op text, attempt text, kind text, token text, data text, ms double precision, session bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_names text[];
  v_abandoning bigint[];
  v_perhaps bigint[];
  v_name text;
  v_is_watched boolean;
  v_gone record;
  v_is_gone boolean;
  i integer;
BEGIN
  SELECT coalesce(array_agg(DISTINCT u.name), '{}') || p_line, coalesce(array_agg(u.session) FILTER (WHERE u.op = 'a'), '{}'),
    coalesce(array_agg(u.session), '{}')
  INTO v_names, v_abandoning, v_perhaps
  FROM unnest(p_ops, p_names, p_attempts, p_sessions) AS u (op, name, attempt, session)
  WHERE CASE WHEN u.op IN ('t', 'q') THEN 'g' ELSE u.op END || u.attempt <> ALL (p_done);
  PERFORM ${s}.lock_sessions(p_namespace, v_names, v_abandoning, v_perhaps);
  PERFORM ${s}.clear(p_namespace, v_names);
  v_is_watched := ${isWatched(s)};
  FOREACH v_name IN ARRAY v_names LOOP
    RETURN QUERY SELECT 'h', p.attempt, 'handed', p.token::text, p.data, NULL::double precision, p.session
    FROM ${s}.promote(p_namespace, v_name, p_channel) p;
  END LOOP;
  -- Whoever released a name that is waited for may have closed it as well.
  FOREACH v_name IN ARRAY p_line LOOP
    RETURN QUERY SELECT 'h', p.attempt, 'postponed', NULL, NULL, NULL::double precision, p.session
    FROM ${s}.names n, ${s}.postpone(p_namespace, v_name, p_channel) p
    WHERE n.namespace = p_namespace AND n.name = v_name AND n.closed_until > clock_timestamp();
  END LOOP;

  FOR i IN 1 .. cardinality(p_ops) LOOP
    CONTINUE WHEN CASE WHEN p_ops[i] IN ('t', 'q') THEN 'g' ELSE p_ops[i] END || p_attempts[i] = ANY (p_done);
    v_name := p_names[i];
    op := CASE WHEN p_ops[i] IN ('t', 'q') THEN 'g' ELSE p_ops[i] END;
    attempt := p_attempts[i];
    token := NULL; data := NULL; ms := NULL; session := NULL;
    IF p_ops[i] IN ('t', 'q') THEN
      SELECT a.kind, a.token, a.data, a.ms INTO kind, token, data, ms
      FROM ${s}.claim(p_namespace, p_channel, p_ops[i] = 'q', v_name, p_attempts[i], p_sessions[i], p_modes[i],
        p_weights[i], p_capacities[i], p_ms[i], p_texts[i], p_owners[i], p_max_waiters[i],
        statement_timestamp() + p_wait_ms[i] * interval '1 millisecond') a;
      RETURN NEXT;
      CONTINUE;
    END IF;

    IF p_ops[i] = 'd' THEN
      INSERT INTO ${s}.names AS n (namespace, name, capacity, data)
      SELECT p_namespace, v_name, h.capacity, p_texts[i]
      FROM ${s}.holders h JOIN ${s}.sessions z ON z.no = h.session AND z.ended IS NULL
      WHERE h.namespace = p_namespace AND h.name = v_name AND h.attempt = p_attempts[i] AND h.session + 0 = p_sessions[i]
        AND (p_modes[i] IS NULL OR h.token::text = p_modes[i])
      ON CONFLICT (namespace, name) DO UPDATE SET data = excluded.data;
      kind := CASE WHEN FOUND THEN 'stored' ELSE 'not-held' END;
      IF FOUND AND v_is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'data', v_name, h.attempt, h.session, h.owner, h.token) FROM ${s}.holders h
        WHERE h.namespace = p_namespace AND h.name = v_name AND h.attempt = p_attempts[i] AND h.session + 0 = p_sessions[i];
      END IF;
      PERFORM ${s}.must_last();
      RETURN NEXT;
      CONTINUE;
    END IF;

    IF p_ops[i] = 'a' THEN
      kind := 'abandoned';
      INSERT INTO ${s}.marks SELECT z.no, p_attempts[i], 'abandoned' FROM ${s}.sessions z
      WHERE z.no = p_sessions[i] AND z.namespace = p_namespace AND z.ended IS NULL
      ON CONFLICT DO NOTHING;
      UPDATE ${s}.sessions z SET has_marks = true WHERE z.no = p_sessions[i] AND NOT z.has_marks;
      DELETE FROM ${s}.waiters w
      WHERE w.session = p_sessions[i] AND w.attempt = p_attempts[i]
        AND w.namespace || '' = p_namespace AND w.name || '' = v_name
      RETURNING w.owner INTO v_gone;
      IF FOUND AND v_is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'gave-up', v_name, p_attempts[i], p_sessions[i], v_gone.owner, NULL);
      END IF;
    END IF;
    -- Everything that was over has been cleared, so what is found is alive.
    DELETE FROM ${s}.holders h
    WHERE h.namespace = p_namespace AND h.name = v_name AND h.attempt = p_attempts[i] AND h.session + 0 = p_sessions[i]
      AND (p_ops[i] = 'a' OR p_modes[i] IS NULL OR h.token::text = p_modes[i])
    RETURNING h.capacity, h.owner, h.token INTO v_gone;
    v_is_gone := FOUND;
    IF v_is_gone AND v_is_watched THEN
      PERFORM ${s}.log_event(p_namespace, 'released', v_name, p_attempts[i], p_sessions[i], v_gone.owner, v_gone.token);
    END IF;
    IF p_ops[i] = 'r' THEN
      kind := CASE WHEN v_is_gone THEN 'released' ELSE 'not-held' END;
      IF v_is_gone AND p_ms[i] > 0 THEN
        PERFORM ${s}.close_name(p_namespace, v_name, v_gone.capacity,
          clock_timestamp() + p_ms[i] * interval '1 millisecond');
        RETURN QUERY SELECT 'h', p.attempt, 'postponed', NULL, NULL, NULL::double precision, p.session
        FROM ${s}.postpone(p_namespace, v_name, p_channel) p;
      END IF;
    END IF;
    RETURN NEXT;
    RETURN QUERY SELECT 'h', p.attempt, 'handed', p.token::text, p.data, NULL::double precision, p.session
    FROM ${s}.promote(p_namespace, v_name, p_channel) p;
  END LOOP;
END $$;

-- One acquire on a name that is locked, cleared and promoted: whoever is there counts.
CREATE OR REPLACE FUNCTION ${s}.claim(
  p_namespace text, p_channel text, p_waits boolean, p_name text, p_attempt text, p_session bigint, p_mode text,
  p_weight integer, p_capacity integer, p_lock_delay_ms double precision, p_note text, p_owner text,
  p_max_waiters integer, p_until timestamptz)
RETURNS TABLE (kind text, token text, data text, ms double precision) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_found record;
  v_token bigint;
BEGIN
  SELECT
    (SELECT z.ended IS NULL FROM ${s}.sessions z WHERE z.no = p_session AND z.namespace = p_namespace) AS is_alive,
    EXISTS (SELECT FROM ${s}.marks m WHERE m.session = p_session AND m.attempt = p_attempt) AS has_mark,
    EXISTS (SELECT FROM ${s}.waiters w
      WHERE w.session = p_session AND w.attempt = p_attempt
        AND w.namespace || '' = p_namespace AND w.name || '' = p_name) AS waits,
    EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name) AS waited_for,
    (SELECT coalesce(sum(h.weight), 0) FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name) AS held,
    coalesce(
      (SELECT h.capacity FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name LIMIT 1),
      (SELECT w.capacity FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name ORDER BY w.place LIMIT 1)
    ) AS capacity,
    (SELECT n.data FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_name) AS data,
    (SELECT n.closed_until FROM ${s}.names n
      WHERE n.namespace = p_namespace AND n.name = p_name AND n.closed_until > clock_timestamp()) AS closed_until,
    ${isWatched(s)} AS is_watched
  INTO v_found;
  IF v_found.is_alive IS NOT TRUE THEN
    RETURN QUERY SELECT 'session-gone', NULL::text, NULL::text, NULL::double precision;
    RETURN;
  END IF;
  IF v_found.has_mark THEN
    RETURN QUERY SELECT CASE WHEN p_waits THEN 'abandoned' ELSE 'busy' END, NULL::text, NULL::text, NULL::double precision;
    RETURN;
  END IF;
  RETURN QUERY SELECT 'granted', h.token::text, h.previous_data, NULL::double precision FROM ${s}.holders h
  WHERE h.namespace = p_namespace AND h.name = p_name AND h.attempt = p_attempt AND h.session + 0 = p_session;
  IF FOUND THEN RETURN; END IF;
  -- The caller has gone meanwhile, and abandons the attempt.
  IF p_until <= clock_timestamp() THEN
    RETURN QUERY SELECT 'late', NULL::text, NULL::text, NULL::double precision;
    RETURN;
  END IF;
  -- Who waits keeps its place, whatever has become of the capacity; when its turn came, it would hold by now.
  IF NOT v_found.waits THEN
    IF v_found.capacity <> p_capacity THEN
      RETURN QUERY SELECT 'mismatch', NULL::text, v_found.capacity::text, NULL::double precision;
      RETURN;
    END IF;
    IF v_found.closed_until IS NULL AND NOT v_found.waited_for AND v_found.held + p_weight <= p_capacity THEN
      PERFORM ${s}.must_last();
      v_token := nextval(${quoteText(`${s}.tokens`)});
      INSERT INTO ${s}.holders VALUES (p_namespace, p_name, p_attempt, p_session, v_token, p_mode, p_weight, p_capacity,
        p_lock_delay_ms, clock_timestamp(), p_note, v_found.data, p_owner);
      IF v_found.is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'acquired', p_name, p_attempt, p_session, p_owner, v_token);
      END IF;
      RETURN QUERY SELECT 'granted', v_token::text, v_found.data, NULL::double precision;
      RETURN;
    END IF;
    -- Sessions that were over have been marked as ended. A waiter whose own time is over counts until it is first.
    IF p_waits AND p_max_waiters IS NOT NULL AND (
      SELECT count(*) FROM (
        SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name
          AND EXISTS (SELECT FROM ${s}.sessions z WHERE z.no = w.session AND z.ended IS NULL OFFSET 0)
        LIMIT p_max_waiters) AS queued) >= p_max_waiters
    THEN
      RETURN QUERY SELECT 'queue-full', NULL::text, NULL::text, NULL::double precision;
      RETURN;
    END IF;
    IF p_waits THEN
      INSERT INTO ${s}.waiters VALUES (p_namespace, p_name, nextval(${quoteText(`${s}.places`)}), p_attempt, p_session, p_mode,
        p_weight, p_capacity, p_lock_delay_ms, clock_timestamp(), p_note, p_channel, p_owner, p_until);
      IF v_found.is_watched THEN
        PERFORM ${s}.log_event(p_namespace, 'waiting', p_name, p_attempt, p_session, p_owner, NULL);
      END IF;
    END IF;
  END IF;
  IF p_waits THEN
    RETURN QUERY SELECT 'queued', NULL::text, NULL::text, ${s}.due_in(p_namespace, p_name);
  ELSE
    RETURN QUERY SELECT 'busy', NULL::text, NULL::text,
      extract(epoch FROM v_found.closed_until - clock_timestamp())::double precision * 1000;
  END IF;
END $$;

-- In how many milliseconds time alone may change something: the session of a holder or waiter is over, or the name opens.
-- Null: nothing can. Waiters count because they may hold the name before it is looked at again. Only the first of them do, so
-- that joining a long queue costs no more than a short one; the end of a later one is noticed one look later.
-- In PL/pgSQL, which keeps the plan: to make it takes ten times as long as to run it.
CREATE OR REPLACE FUNCTION ${s}.due_in(p_namespace text, p_name text) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT greatest(0, extract(epoch FROM min(at) - clock_timestamp()) * 1000)::double precision FROM (
    -- The end of a waiter's session changes nothing before it is first, and then it is removed.
    SELECT CASE WHEN z.ended IS NULL AND z.no IS NOT NULL THEN z.expires_at WHEN c.holds THEN clock_timestamp() END AS at
    FROM (
      SELECT h.session, true AS holds FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name
      UNION (SELECT w.session, false FROM ${s}.waiters w
        WHERE w.namespace = p_namespace AND w.name = p_name ORDER BY w.place LIMIT 50)
    ) AS c LEFT JOIN LATERAL (SELECT * FROM ${s}.sessions z WHERE z.no = c.session OFFSET 0) z ON true
    UNION ALL
    SELECT n.closed_until FROM ${s}.names n
    WHERE n.namespace = p_namespace AND n.name = p_name AND n.closed_until > clock_timestamp()
    UNION ALL
    -- Somebody has removed the holder behind everybody's back.
    SELECT clock_timestamp()
    WHERE EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name)
      AND NOT EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name)
      AND NOT EXISTS (SELECT FROM ${s}.names n
        WHERE n.namespace = p_namespace AND n.name = p_name AND n.closed_until > clock_timestamp())
  ) AS soon);
END $$;
`
