/**
 * Reads for operators. The functions are STABLE: all that they read is of the moment at which the calling statement began.
 * They lock nothing and clean nothing up.
 */

import { ID_LENGTH } from '../../../base/ids.ts'
import { BY_INDEX } from '../../../clients/postgres/index.ts'

const COLUMNS = `kind text, name text, id text, holder text, owner text, session text, ttl_ms double precision, mode text,
  weight integer, capacity integer, place bigint, note text, since_ms double precision, left_ms double precision,
  lock_delay_ms double precision, is_over boolean, at_ms double precision`

const now = 'extract(epoch FROM clock_timestamp())::double precision * 1000'
const msUntil = (time: string) => `extract(epoch FROM ${time} - clock_timestamp())::double precision * 1000`
const msSince = (time: string) => `extract(epoch FROM clock_timestamp() - ${time})::double precision * 1000`

export const looking = (s: string) => `
-- holder (its token in place) | waiter | name (its data in note)
CREATE OR REPLACE FUNCTION ${s}.show(p_namespace text, p_names text[], p_with_waiters boolean)
RETURNS TABLE (${COLUMNS}) LANGUAGE plpgsql STABLE ${BY_INDEX} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT 'holder', h.name, left(h.attempt, ${ID_LENGTH}), z.holder, h.owner, left(z.id, ${ID_LENGTH}), z.ttl_ms, h.mode,
    h.weight, h.capacity, h.token, h.note, ${msSince('h.held_since')}, ${msUntil('z.expires_at')}, h.lock_delay_ms,
    coalesce(z.ended = 'closed', z.no IS NULL), ${now}
  FROM unnest(p_names) AS u (name)
  CROSS JOIN LATERAL (SELECT * FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = u.name OFFSET 0) h
  LEFT JOIN LATERAL (SELECT * FROM ${s}.sessions z WHERE z.no = h.session OFFSET 0) z ON true
  UNION ALL
  SELECT 'waiter', w.name, left(w.attempt, ${ID_LENGTH}), z.holder, w.owner, left(z.id, ${ID_LENGTH}), z.ttl_ms, w.mode,
    w.weight, w.capacity, w.place, w.note, ${msSince('w.waiting_since')}, NULL, NULL, false, ${now}
  FROM unnest(p_names) AS u (name)
  CROSS JOIN LATERAL (SELECT * FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = u.name OFFSET 0) w
  CROSS JOIN LATERAL (
    SELECT * FROM ${s}.sessions z
    WHERE z.no = w.session AND z.ended IS NULL AND z.expires_at > clock_timestamp() OFFSET 0) z
  WHERE p_with_waiters
  UNION ALL
  SELECT 'name', n.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, n.capacity, NULL, n.data, NULL,
    ${msUntil('n.closed_until')}, NULL, false, ${now}
  FROM unnest(p_names) AS u (name)
  CROSS JOIN LATERAL (SELECT * FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = u.name OFFSET 0) n;
END $$;

-- One page, and a row 'next' if there may be more. Of each table it reads at most as many rows as the page may have names,
-- and one more. A table that has more rows is known only up to the last of these: there the page ends.
CREATE OR REPLACE FUNCTION ${s}.list_names(p_namespace text, p_prefix text, p_after text, p_limit integer)
RETURNS TABLE (${COLUMNS}) LANGUAGE plpgsql STABLE ${BY_INDEX} AS $$
#variable_conflict use_column
DECLARE
  v_names text[];
  v_is_last boolean;
BEGIN
  WITH h AS MATERIALIZED (
    SELECT name FROM ${s}.holders
    WHERE namespace = p_namespace AND name >= p_prefix AND name > p_after ORDER BY name LIMIT p_limit + 1),
  w AS MATERIALIZED (
    SELECT name FROM ${s}.waiters
    WHERE namespace = p_namespace AND name >= p_prefix AND name > p_after ORDER BY name LIMIT p_limit + 1),
  n AS MATERIALIZED (
    SELECT name FROM ${s}.names
    WHERE namespace = p_namespace AND name >= p_prefix AND name > p_after ORDER BY name LIMIT p_limit + 1),
  found AS MATERIALIZED (SELECT name FROM h UNION SELECT name FROM w UNION SELECT name FROM n),
  known AS MATERIALIZED (
    SELECT min(name) AS until FROM (
      SELECT max(name) AS name, count(*) AS read FROM h
      UNION ALL SELECT max(name), count(*) FROM w
      UNION ALL SELECT max(name), count(*) FROM n) AS ends
    WHERE read > p_limit),
  page AS MATERIALIZED (
    SELECT name FROM found, known
    WHERE starts_with(name, p_prefix) AND (known.until IS NULL OR name <= known.until) ORDER BY name LIMIT p_limit),
  last AS MATERIALIZED (SELECT max(name) AS name FROM page)
  SELECT (SELECT array_agg(name ORDER BY name) FROM page),
    known.until IS DISTINCT FROM last.name
      AND NOT EXISTS (SELECT FROM found WHERE found.name > last.name AND starts_with(found.name, p_prefix))
  INTO v_names, v_is_last
  FROM known, last;
  IF v_names IS NULL THEN
    RETURN;
  END IF;
  IF NOT v_is_last THEN
    kind := 'next';
    name := v_names[cardinality(v_names)];
    RETURN NEXT;
  END IF;
  RETURN QUERY SELECT * FROM ${s}.show(p_namespace, v_names, true);
END $$;
`
