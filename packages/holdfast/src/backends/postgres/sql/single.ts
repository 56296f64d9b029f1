/**
 * One acquire or one release that is alone in its call, on a name that nobody else wants: what most calls are. The same
 * as `apply` does for a batch, with as little as possible around the one row that is written. The answer is text:
 *
 *   +<token>          granted
 *   +<token> <data>   granted, and the last holder left something
 *   -                 released, and nobody waits
 *   [[…], …]          anything else: the rows of \`settle\`
 */
import { BY_INDEX, quoteText } from '../../../clients/postgres/index.ts'
import { isWatched } from './events.ts'
import { LOCK_SEED } from './turns.ts'

export const single = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.take(
  p_namespace text, p_channel text, p_op text, p_name text, p_attempt text, p_session bigint, p_mode text,
  p_weight integer, p_capacity integer, p_lock_delay_ms double precision, p_note text,
  p_owner text, p_max_waiters integer, p_wait_ms double precision)
RETURNS text LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_token bigint;
  v_data text;
  v_is_watched boolean;
  v_answer text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') <> 'on' THEN
    PERFORM ${s}.begin_work();
  END IF;
  IF NOT pg_try_advisory_xact_lock(hashtextextended(p_namespace || chr(31) || p_name, ${LOCK_SEED})) THEN
    PERFORM ${s}.wait_for_name(hashtextextended(p_namespace || chr(31) || p_name, ${LOCK_SEED}));
    IF statement_timestamp() + p_wait_ms * interval '1 millisecond' <= clock_timestamp() THEN
      -- Its caller has gone, and abandons the attempt: what it has is not looked up.
      RETURN json_build_array(json_build_array('g', p_attempt, 'late', NULL, NULL, NULL, NULL))::text;
    END IF;
  END IF;
  INSERT INTO ${s}.holders
  SELECT p_namespace, p_name, p_attempt, p_session, nextval(${quoteText(`${s}.tokens`)}), p_mode, p_weight, p_capacity,
    p_lock_delay_ms, clock_timestamp(), p_note, n.data, p_owner
  FROM ${s}.sessions z LEFT JOIN ${s}.names n ON n.namespace = p_namespace AND n.name = p_name
  WHERE z.no = p_session AND z.namespace = p_namespace AND z.ended IS NULL AND z.expires_at > clock_timestamp()
    AND (NOT z.has_marks OR NOT EXISTS (SELECT FROM ${s}.marks m WHERE m.session = p_session AND m.attempt = p_attempt))
    AND (n.closed_until IS NULL OR n.closed_until <= clock_timestamp())
    AND NOT EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name)
    AND NOT EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name)
  RETURNING token, previous_data, ${isWatched(s)} INTO v_token, v_data, v_is_watched;
  IF v_token IS NOT NULL THEN
    IF v_is_watched THEN
      PERFORM ${s}.log_event(p_namespace, 'acquired', p_name, p_attempt, p_session, p_owner, v_token);
    END IF;
    RETURN CASE WHEN v_data IS NULL THEN '+' || v_token ELSE '+' || v_token || ' ' || v_data END;
  END IF;
  SELECT json_agg(json_build_array(a.op, a.attempt, a.kind, a.token, a.data, a.ms, a.session))::text INTO v_answer
  FROM ${s}.settle(p_namespace, p_channel, ARRAY[p_op], ARRAY[p_name], ARRAY[p_attempt], ARRAY[p_session],
    ARRAY[p_mode], ARRAY[p_weight], ARRAY[p_capacity], ARRAY[p_lock_delay_ms], ARRAY[p_note],
    ARRAY[p_owner], ARRAY[p_max_waiters], ARRAY[p_wait_ms], '{}', '{}') a;
  PERFORM ${s}.commit_lazily_if_it_may();
  RETURN v_answer;
END $$;

CREATE OR REPLACE FUNCTION ${s}.give_back(
  p_namespace text, p_channel text, p_name text, p_attempt text, p_session bigint, p_keep_ms double precision,
  p_token text)
RETURNS text LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_capacity integer;
  v_waited_for boolean;
  v_owner text;
  v_is_watched boolean;
  v_lazily boolean;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') <> 'on' THEN
    PERFORM ${s}.begin_work();
  END IF;
  IF NOT pg_try_advisory_xact_lock(hashtextextended(p_namespace || chr(31) || p_name, ${LOCK_SEED})) THEN
    PERFORM ${s}.wait_for_name(hashtextextended(p_namespace || chr(31) || p_name, ${LOCK_SEED}));
  END IF;
  DELETE FROM ${s}.holders h
  WHERE h.namespace = p_namespace AND h.name = p_name AND h.attempt = p_attempt AND h.session + 0 = p_session
    AND h.token::text = p_token
    AND EXISTS (SELECT FROM ${s}.sessions z
      WHERE z.no = p_session AND z.ended IS NULL AND z.expires_at > clock_timestamp())
  RETURNING h.capacity, EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name), h.owner,
    ${isWatched(s)}
  INTO v_capacity, v_waited_for, v_owner, v_is_watched;
  IF v_is_watched THEN
    PERFORM ${s}.log_event(p_namespace, 'released', p_name, p_attempt, p_session, v_owner, p_token::bigint);
  END IF;
  IF v_capacity IS NOT NULL AND p_keep_ms > 0 THEN
    PERFORM ${s}.close_name(p_namespace, p_name, v_capacity,
      clock_timestamp() + p_keep_ms * interval '1 millisecond');
  END IF;
  IF v_waited_for IS FALSE THEN
    IF p_keep_ms <= 0 THEN
      v_lazily := ${s}.commit_lazily();
    END IF;
    RETURN '-';
  END IF;
  RETURN (SELECT json_agg(json_build_array(a.op, a.attempt, a.kind, a.token, a.data, a.ms, a.session))::text FROM (
    SELECT 'r' AS op, p_attempt AS attempt, 'released' AS kind, NULL AS token, NULL AS data, NULL::double precision AS ms,
      NULL::bigint AS session WHERE v_waited_for
    UNION ALL
    SELECT * FROM ${s}.settle(p_namespace, p_channel, ARRAY['r'], ARRAY[p_name], ARRAY[p_attempt], ARRAY[p_session],
      ARRAY[p_token], ARRAY[NULL::integer], ARRAY[NULL::integer], ARRAY[p_keep_ms], ARRAY[NULL::text],
      NULL, NULL, NULL, CASE WHEN v_waited_for THEN ARRAY['r' || p_attempt] ELSE '{}' END,
      CASE WHEN v_waited_for THEN ARRAY[p_name] ELSE '{}' END)) a);
END $$;
`
