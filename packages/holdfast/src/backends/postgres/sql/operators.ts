/**
 * What an operator may do to a name, on what the operator saw, and only until `p_not_after_ms` (T78): `too-late` after
 * that. The first row says how it went; hand-overs to the caller's process
 * follow.
 */

import { ID_LENGTH } from '../../../base/ids.ts'
import { BY_INDEX } from '../../../clients/postgres/index.ts'
import { isWatched } from './events.ts'

export const operators = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.prepare_name(p_namespace text, p_channel text, p_name text, p_marks boolean)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.lock_names(p_namespace, ARRAY[p_name]);
  -- Who leaves marks writes to the sessions of the holders, so they are locked in their order too.
  PERFORM ${s}.lock_sessions(p_namespace, ARRAY[p_name], ARRAY(
    SELECT h.session FROM ${s}.holders h WHERE p_marks AND h.namespace = p_namespace AND h.name = p_name), '{}');
  PERFORM ${s}.clear(p_namespace, ARRAY[p_name]);
  RETURN QUERY SELECT * FROM ${s}.handed(p_namespace, p_channel, p_name);
END $$;

CREATE OR REPLACE FUNCTION ${s}.handed(p_namespace text, p_channel text, p_name text)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE sql AS $$
  SELECT 'handed', p.attempt, p.token::text, p.data, p.session FROM ${s}.promote(p_namespace, p_name, p_channel) p
$$;

CREATE OR REPLACE FUNCTION ${s}.is_too_late(p_not_after_ms double precision) RETURNS boolean LANGUAGE sql AS $$
  SELECT extract(epoch FROM clock_timestamp()) * 1000 >= p_not_after_ms
$$;

-- Who got the name in between is not hit (T74). The mark tells the old holder why, in the operator's words. The expiry is judged once the name is
-- locked: the call may have waited for it.
CREATE OR REPLACE FUNCTION ${s}.force_release(
  p_namespace text, p_channel text, p_name text, p_ids text[], p_reason text, p_not_after_ms double precision)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql ${BY_INDEX} AS $$
#variable_conflict use_column
DECLARE
  v_hit record;
  v_count integer := 0;
BEGIN
  RETURN QUERY SELECT * FROM ${s}.prepare_name(p_namespace, p_channel, p_name, true);
  IF ${s}.is_too_late(p_not_after_ms) THEN
    RETURN QUERY SELECT 'too-late', NULL, NULL, NULL, NULL::bigint;
    RETURN;
  END IF;
  FOR v_hit IN
    DELETE FROM ${s}.holders h
    WHERE h.namespace = p_namespace AND h.name = p_name AND left(h.attempt, ${ID_LENGTH}) = ANY (p_ids)
    RETURNING h.session, h.attempt, h.owner, h.token, ${isWatched(s)} AS is_watched
  LOOP
    v_count := v_count + 1;
    IF v_hit.is_watched THEN
      PERFORM ${s}.log_event(p_namespace, 'force-released', p_name, v_hit.attempt, v_hit.session, v_hit.owner, v_hit.token);
    END IF;
    UPDATE ${s}.sessions z SET has_marks = true WHERE z.no = v_hit.session AND NOT z.has_marks;
    INSERT INTO ${s}.marks AS m VALUES (v_hit.session, v_hit.attempt, 'force-released', p_reason)
    ON CONFLICT (session, attempt) DO UPDATE SET kind = excluded.kind, detail = excluded.detail;
  END LOOP;
  RETURN QUERY SELECT 'released', NULL, v_count::text, NULL, NULL::bigint;
  IF v_count > 0 THEN
    RETURN QUERY SELECT * FROM ${s}.handed(p_namespace, p_channel, p_name);
  END IF;
END $$;

-- resized | in-use | changed | too-late
CREATE OR REPLACE FUNCTION ${s}.resize(
  p_namespace text, p_channel text, p_name text, p_from integer, p_to integer, p_not_after_ms double precision)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql ${BY_INDEX} AS $$
#variable_conflict use_column
DECLARE
  v_use record;
BEGIN
  RETURN QUERY SELECT * FROM ${s}.prepare_name(p_namespace, p_channel, p_name, false);
  SELECT coalesce(sum(u.held), 0) AS held, coalesce(max(u.weight), 0) AS heaviest, min(u.capacity) AS capacity INTO v_use FROM (
    SELECT h.weight AS held, 0 AS weight, h.capacity FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name
    UNION ALL
    SELECT 0, w.weight, w.capacity FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name) u;
  kind := CASE
    WHEN ${s}.is_too_late(p_not_after_ms) THEN 'too-late'
    WHEN v_use.capacity IS DISTINCT FROM p_from THEN 'changed'
    WHEN greatest(v_use.held, v_use.heaviest) > p_to THEN 'in-use'
    ELSE 'resized' END;
  RETURN NEXT;
  IF kind = 'resized' THEN
    UPDATE ${s}.holders h SET capacity = p_to WHERE h.namespace = p_namespace AND h.name = p_name;
    UPDATE ${s}.waiters w SET capacity = p_to WHERE w.namespace = p_namespace AND w.name = p_name;
    RETURN QUERY SELECT * FROM ${s}.handed(p_namespace, p_channel, p_name);
  END IF;
END $$;

-- forgotten | in-use | changed | too-late. A name that is still closed stays so; its data goes all the same.
CREATE OR REPLACE FUNCTION ${s}.forget(
  p_namespace text, p_channel text, p_name text, p_data text, p_not_after_ms double precision)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql ${BY_INDEX} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT * FROM ${s}.prepare_name(p_namespace, p_channel, p_name, false);
  IF ${s}.is_too_late(p_not_after_ms) THEN
    kind := 'too-late';
  ELSIF EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name)
    OR EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name) THEN
    kind := 'in-use';
  ELSE
    UPDATE ${s}.names n SET data = NULL WHERE n.namespace = p_namespace AND n.name = p_name AND n.data = p_data;
    kind := CASE WHEN FOUND THEN 'forgotten' ELSE 'changed' END;
    DELETE FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_name AND n.data IS NULL
      AND (n.closed_until IS NULL OR n.closed_until <= clock_timestamp());
  END IF;
  RETURN NEXT;
END $$;
`
