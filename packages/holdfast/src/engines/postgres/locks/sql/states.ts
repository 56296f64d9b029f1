/**
 * Reads for operators. The functions are STABLE: all that they read is of the moment at which the calling statement began.
 * They lock nothing and remove nothing: what has expired is left out, and the lock-delay that it leaves behind is worked out.
 */
import { ID_LENGTH } from '../../../../base/ids.ts'
import { BY_INDEX } from '../../tables/tables.ts'

const ms = (interval: string) => `extract(epoch FROM ${interval})::double precision * 1000`
const claim = (c: string) => `'id', left(${c}.attempt, ${ID_LENGTH}), 'holder', z.holder, 'owner', ${c}.owner,
  'session', left(z.id, ${ID_LENGTH}), 'ttlMs', z.ttl_ms, 'mode', ${c}.mode, 'weight', ${c}.weight, 'note', ${c}.note`

export const states = (s: string) => `
-- As the SPI has it, with tokens as text. No row for a name that is not in use.
CREATE OR REPLACE FUNCTION ${s}.states(p_namespace text, p_names text[], p_with_waiters boolean) RETURNS SETOF jsonb
LANGUAGE plpgsql STABLE ${BY_INDEX} AS $$
BEGIN
  RETURN QUERY
  SELECT jsonb_strip_nulls(jsonb_build_object('name', u.name, 'capacity', coalesce(h.capacity, w.capacity, n.capacity, h.past),
    'holders', coalesce(h.holders, '[]'), 'waiters', coalesce(w.waiters, '[]'), 'data', n.data,
    'closedForMs', greatest(n.closed_ms, h.closed_ms, 0), 'atMs', ${ms('clock_timestamp()')}))
  FROM unnest(p_names) AS u (name)
  CROSS JOIN LATERAL (
    SELECT max(h.capacity) AS past, max(h.capacity) FILTER (WHERE z.left_ms > 0) AS capacity,
      max(z.left_ms + h.lock_delay_ms) FILTER (WHERE z.left_ms <= 0 AND h.lock_delay_ms > 0) AS closed_ms,
      jsonb_agg(jsonb_build_object(${claim('h')}, 'token', h.token::text, 'heldForMs', ${ms('clock_timestamp() - h.held_since')},
        'expiresInMs', z.left_ms) ORDER BY h.token) FILTER (WHERE z.left_ms > 0) AS holders
    FROM ${s}.holders h CROSS JOIN LATERAL (
      SELECT *, ${ms('z.expires_at - clock_timestamp()')} AS left_ms FROM ${s}.sessions z
      WHERE z.no = h.session AND z.ended IS DISTINCT FROM 'closed' OFFSET 0) z
    WHERE h.namespace = p_namespace AND h.name = u.name) h
  CROSS JOIN LATERAL (
    SELECT max(w.capacity) AS capacity, jsonb_agg(jsonb_build_object(${claim('w')},
      'waitingForMs', ${ms('clock_timestamp() - w.waiting_since')}) ORDER BY w.place) AS waiters
    FROM ${s}.waiters w CROSS JOIN LATERAL (
      SELECT * FROM ${s}.sessions z
      WHERE z.no = w.session AND z.ended IS NULL AND z.expires_at > clock_timestamp() OFFSET 0) z
    WHERE p_with_waiters AND w.namespace = p_namespace AND w.name = u.name) w
  LEFT JOIN LATERAL (
    SELECT *, ${ms('n.closed_until - clock_timestamp()')} AS closed_ms
    FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = u.name OFFSET 0) n ON true
  WHERE h.holders IS NOT NULL OR w.waiters IS NOT NULL OR n.data IS NOT NULL OR greatest(n.closed_ms, h.closed_ms) > 0
  ORDER BY u.name COLLATE "C";
END $$;

-- One page, and before it the name after which the next one begins, if there are more. It looks up one name after the other,
-- so that a name with thousands of waiters costs no more than others.
CREATE OR REPLACE FUNCTION ${s}.list_states(p_namespace text, p_prefix text, p_after text, p_limit integer)
RETURNS SETOF jsonb LANGUAGE plpgsql STABLE ${BY_INDEX} AS $$
DECLARE
  v_names text[] := '{}';
  v_name text := p_after;
BEGIN
  LOOP
    v_name := (SELECT min(f.name) FROM (
      (SELECT name FROM ${s}.holders
        WHERE namespace = p_namespace AND name > v_name AND name >= p_prefix ORDER BY name LIMIT 1)
      UNION ALL (SELECT name FROM ${s}.waiters
        WHERE namespace = p_namespace AND name > v_name AND name >= p_prefix ORDER BY name LIMIT 1)
      UNION ALL (SELECT name FROM ${s}.names
        WHERE namespace = p_namespace AND name > v_name AND name >= p_prefix ORDER BY name LIMIT 1)) AS f);
    EXIT WHEN v_name IS NULL OR NOT starts_with(v_name, p_prefix);
    IF cardinality(v_names) = p_limit THEN
      RETURN NEXT to_jsonb(v_names[p_limit]);
      EXIT;
    END IF;
    v_names := v_names || v_name;
  END LOOP;
  RETURN QUERY SELECT * FROM ${s}.states(p_namespace, v_names, true);
END $$;
`
