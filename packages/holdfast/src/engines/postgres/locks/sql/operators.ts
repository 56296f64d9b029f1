/**
 * Operators' changes to a name, on what the operator saw, and only until `p_not_after_ms` (T78, late operators): `too-late` after that.
 * Rows as in claims: how it went is the kind of a row `operated`. The expiry is judged once the name is locked, because the
 * call may have waited for it.
 */
import { ID_LENGTH } from '../../../../base/ids.ts'
import { BY_INDEX } from '../../tables/tables.ts'

const operated = (kind: string, count = 'NULL') =>
  `',' || json_build_array('operated', NULL, ${kind}, ${count}::text)`

export const operators = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.prepare(p_namespace text, p_channel text, p_name text, p_marks boolean) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.lock_names(p_namespace, ARRAY[p_name]);
  -- Marks are written to the sessions of the holders, so these are locked in their order too.
  PERFORM ${s}.lock_sessions(p_namespace, ARRAY[p_name], ARRAY(
    SELECT h.session FROM ${s}.holders h WHERE p_marks AND h.namespace = p_namespace AND h.name = p_name), '{}');
  PERFORM ${s}.clear(p_namespace, ARRAY[p_name]);
  RETURN ${s}.grant_next(p_namespace, p_name, p_channel);
END $$;

CREATE OR REPLACE FUNCTION ${s}.is_too_late(p_not_after_ms double precision) RETURNS boolean LANGUAGE sql AS $$
  SELECT extract(epoch FROM clock_timestamp()) * 1000 >= p_not_after_ms
$$;

-- A holder that got the name in between is not hit (T74, misaimed force releases). The mark tells the old holder why, in the operator's words.
CREATE OR REPLACE FUNCTION ${s}.release_by_force(
  p_namespace text, p_channel text, p_name text, p_ids text[], p_reason text, p_not_after_ms double precision)
RETURNS text LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_rows text := ${s}.prepare(p_namespace, p_channel, p_name, true);
  v_hit ${s}.holders;
  v_count integer := 0;
BEGIN
  IF ${s}.is_too_late(p_not_after_ms) THEN
    RETURN v_rows || ${operated("'too-late'")};
  END IF;
  FOR v_hit IN
    DELETE FROM ${s}.holders h
    WHERE h.namespace = p_namespace AND h.name = p_name AND left(h.attempt, ${ID_LENGTH}) = ANY (p_ids)
    RETURNING h.*
  LOOP
    v_count := v_count + 1;
    PERFORM ${s}.log_event(p_namespace, 'force-released', p_name, v_hit.attempt, v_hit.session, v_hit.owner, v_hit.token);
    UPDATE ${s}.sessions z SET has_marks = true WHERE z.no = v_hit.session AND NOT z.has_marks;
    INSERT INTO ${s}.marks AS m VALUES (v_hit.session, v_hit.attempt, 'force-released', p_reason)
    ON CONFLICT (session, attempt) DO UPDATE SET kind = excluded.kind, detail = excluded.detail;
  END LOOP;
  RETURN v_rows || ${operated("'released'", 'v_count')} || ${s}.grant_next(p_namespace, p_name, p_channel);
END $$;

-- resized | in-use | changed | too-late
CREATE OR REPLACE FUNCTION ${s}.change_capacity(
  p_namespace text, p_channel text, p_name text, p_from integer, p_to integer, p_not_after_ms double precision)
RETURNS text LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_rows text := ${s}.prepare(p_namespace, p_channel, p_name, false);
  v_use record;
  v_kind text;
BEGIN
  SELECT coalesce(sum(u.held), 0) AS held, coalesce(max(u.weight), 0) AS heaviest, min(u.capacity) AS capacity INTO v_use FROM (
    SELECT h.weight AS held, 0 AS weight, h.capacity FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name
    UNION ALL
    SELECT 0, w.weight, w.capacity FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name) u;
  v_kind := CASE
    WHEN ${s}.is_too_late(p_not_after_ms) THEN 'too-late'
    WHEN v_use.capacity IS DISTINCT FROM p_from THEN 'changed'
    WHEN greatest(v_use.held, v_use.heaviest) > p_to THEN 'in-use'
    ELSE 'resized' END;
  IF v_kind = 'resized' THEN
    UPDATE ${s}.holders h SET capacity = p_to WHERE h.namespace = p_namespace AND h.name = p_name;
    UPDATE ${s}.waiters w SET capacity = p_to WHERE w.namespace = p_namespace AND w.name = p_name;
    v_rows := v_rows || ${s}.grant_next(p_namespace, p_name, p_channel);
  END IF;
  RETURN v_rows || ${operated('v_kind')};
END $$;

-- forgotten | in-use | changed | too-late. A name that is still closed stays so; its data goes all the same.
CREATE OR REPLACE FUNCTION ${s}.forget_data(
  p_namespace text, p_channel text, p_name text, p_data text, p_not_after_ms double precision)
RETURNS text LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_rows text := ${s}.prepare(p_namespace, p_channel, p_name, false);
  v_kind text;
BEGIN
  IF ${s}.is_too_late(p_not_after_ms) THEN
    v_kind := 'too-late';
  ELSIF EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name)
    OR EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name) THEN
    v_kind := 'in-use';
  ELSE
    UPDATE ${s}.names n SET data = NULL WHERE n.namespace = p_namespace AND n.name = p_name AND n.data = p_data;
    v_kind := CASE WHEN FOUND THEN 'forgotten' ELSE 'changed' END;
    DELETE FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_name AND n.data IS NULL
      AND (n.closed_until IS NULL OR n.closed_until <= clock_timestamp());
  END IF;
  RETURN v_rows || ${operated('v_kind')};
END $$;
`
