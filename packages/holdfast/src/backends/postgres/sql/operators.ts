/** What an operator may do to a name. The first row says how it went; hand-overs to the caller's process follow. */
export const operators = (s: string) => `
CREATE FUNCTION ${s}.prepare_name(p_namespace text, p_channel text, p_name text, p_marks boolean)
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

CREATE FUNCTION ${s}.handed(p_namespace text, p_channel text, p_name text)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE sql AS $$
  SELECT 'handed', p.attempt, p.token::text, p.data, p.session FROM ${s}.promote(p_namespace, p_name, p_channel) p
$$;

-- Compare-and-release: who got the name in between is not hit (T74). The mark tells the old holder why.
CREATE FUNCTION ${s}.force_release(p_namespace text, p_channel text, p_name text, p_token bigint, p_holder text)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_hit record;
  v_count integer := 0;
BEGIN
  RETURN QUERY SELECT * FROM ${s}.prepare_name(p_namespace, p_channel, p_name, true);
  FOR v_hit IN
    DELETE FROM ${s}.holders h USING ${s}.sessions z
    WHERE h.namespace = p_namespace AND h.name = p_name AND z.no = h.session
      AND (p_token IS NULL OR h.token = p_token) AND (p_holder IS NULL OR z.holder = p_holder)
    RETURNING h.session, h.attempt
  LOOP
    v_count := v_count + 1;
    UPDATE ${s}.sessions z SET has_marks = true WHERE z.no = v_hit.session AND NOT z.has_marks;
    INSERT INTO ${s}.marks AS m VALUES (v_hit.session, v_hit.attempt, 'force-released')
    ON CONFLICT (session, attempt) DO UPDATE SET kind = excluded.kind;
  END LOOP;
  RETURN QUERY SELECT 'released', NULL, v_count::text, NULL, NULL::bigint;
  IF v_count > 0 THEN
    RETURN QUERY SELECT * FROM ${s}.handed(p_namespace, p_channel, p_name);
  END IF;
END $$;

-- resized | in-use | not-found | mismatch (it is not a semaphore)
CREATE FUNCTION ${s}.resize(p_namespace text, p_channel text, p_name text, p_capacity integer, p_lock_capacity integer)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql AS $$
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
    WHEN v_use.capacity IS NULL THEN 'not-found'
    WHEN v_use.capacity = p_lock_capacity THEN 'mismatch'
    WHEN greatest(v_use.held, v_use.heaviest) > p_capacity THEN 'in-use'
    ELSE 'resized' END;
  RETURN NEXT;
  IF kind = 'resized' THEN
    UPDATE ${s}.holders h SET capacity = p_capacity WHERE h.namespace = p_namespace AND h.name = p_name;
    UPDATE ${s}.waiters w SET capacity = p_capacity WHERE w.namespace = p_namespace AND w.name = p_name;
    RETURN QUERY SELECT * FROM ${s}.handed(p_namespace, p_channel, p_name);
  END IF;
END $$;

-- forgotten | in-use | not-found. A name that is still closed stays so; its data goes all the same.
CREATE FUNCTION ${s}.forget(p_namespace text, p_channel text, p_name text)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT * FROM ${s}.prepare_name(p_namespace, p_channel, p_name, false);
  IF EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name)
    OR EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name) THEN
    kind := 'in-use';
  ELSE
    UPDATE ${s}.names n SET data = NULL WHERE n.namespace = p_namespace AND n.name = p_name AND n.data IS NOT NULL;
    kind := CASE WHEN FOUND THEN 'forgotten' ELSE 'not-found' END;
    DELETE FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_name AND n.data IS NULL
      AND (n.closed_until IS NULL OR n.closed_until <= clock_timestamp());
  END IF;
  RETURN NEXT;
END $$;
`
