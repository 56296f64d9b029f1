/**
 * Polls for waiters: expires dead holders of their names, grants to the next waiters, and reports what changed. The answer is
 * right whether or not a notification came, and whichever process did the work. Rows as in claims, and also:
 *
 *   granted   it had been granted before
 *   gone      its session is over
 *   missing   it is not in the queue any more (why, in data)
 *   due       in so many milliseconds the next look at this name is worth it (`due_in` in grants)
 */
import { BY_INDEX } from '../../tables/tables.ts'

export const queue = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.look(
  p_namespace text, p_channel text, p_due text[], p_sessions bigint[], p_names text[], p_attempts text[])
RETURNS text LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  v_name text;
  v_rows text := '';
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.lock_names(p_namespace, p_due);
  PERFORM ${s}.lock_sessions(p_namespace, p_due, '{}', p_sessions);
  PERFORM ${s}.clear(p_namespace, p_due);
  FOREACH v_name IN ARRAY p_due LOOP
    v_rows := v_rows || ${s}.grant_next(p_namespace, v_name, p_channel);
  END LOOP;

  RETURN v_rows || coalesce((
    SELECT string_agg(',' || json_build_array(CASE
      WHEN z.no IS NULL OR z.ended IS NOT NULL THEN 'gone' WHEN h.token IS NOT NULL THEN 'granted' ELSE 'missing' END,
      u.attempt, NULL, h.token::text, CASE WHEN h.token IS NULL THEN m.kind ELSE h.previous_data END, NULL, u.session), '')
    FROM unnest(p_sessions, p_names, p_attempts) AS u (session, name, attempt)
    LEFT JOIN LATERAL (SELECT * FROM ${s}.sessions z WHERE z.no = u.session OFFSET 0) z ON true
    LEFT JOIN LATERAL (
      SELECT * FROM ${s}.holders h
      WHERE h.namespace = p_namespace AND h.name = u.name AND h.attempt = u.attempt AND h.session + 0 = u.session OFFSET 0) h ON true
    LEFT JOIN LATERAL (
      SELECT * FROM ${s}.marks m WHERE m.session = u.session AND m.attempt = u.attempt OFFSET 0) m ON true
    WHERE z.no IS NULL OR z.ended IS NOT NULL OR NOT EXISTS (
      SELECT FROM ${s}.waiters w WHERE w.session = u.session AND w.attempt = u.attempt AND w.name || '' = u.name OFFSET 0)
  ), '') || coalesce((
    SELECT string_agg(',' || json_build_array('due', asked.name, NULL, NULL, NULL, ${s}.due_in(p_namespace, asked.name)), '')
    FROM (SELECT DISTINCT u.name FROM unnest(p_names) AS u (name)) AS asked), '');
END $$;
`
