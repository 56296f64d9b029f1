/**
 * What clients of versions 1 to 3 call, and versions since then call with more. In an upgraded schema these become calls of
 * the present functions, so that watchers also see what those clients do until they are restarted. (Except a force release
 * by a client of version 1, which names its holder in another way.)
 */
export const older = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.apply(
  p_namespace text, p_channel text, p_ops text[], p_names text[], p_attempts text[], p_sessions bigint[],
  p_modes text[], p_weights integer[], p_capacities integer[], p_ms double precision[], p_texts text[])
RETURNS TABLE (op text, attempt text, kind text, token text, data text, ms double precision, session bigint)
LANGUAGE sql AS $$ SELECT * FROM ${s}.apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULL, NULL, NULL) $$;

CREATE OR REPLACE FUNCTION ${s}.apply(
  p_namespace text, p_channel text, p_ops text[], p_names text[], p_attempts text[], p_sessions bigint[],
  p_modes text[], p_weights integer[], p_capacities integer[], p_ms double precision[], p_texts text[],
  p_owners text[], p_max_waiters integer[])
RETURNS TABLE (op text, attempt text, kind text, token text, data text, ms double precision, session bigint)
LANGUAGE sql AS $$ SELECT * FROM ${s}.apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, NULL) $$;

CREATE OR REPLACE FUNCTION ${s}.take(
  p_namespace text, p_channel text, p_op text, p_name text, p_attempt text, p_session bigint, p_mode text,
  p_weight integer, p_capacity integer, p_lock_delay_ms double precision, p_note text)
RETURNS text LANGUAGE sql AS $$ SELECT ${s}.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULL, NULL, NULL) $$;

CREATE OR REPLACE FUNCTION ${s}.take(
  p_namespace text, p_channel text, p_op text, p_name text, p_attempt text, p_session bigint, p_mode text,
  p_weight integer, p_capacity integer, p_lock_delay_ms double precision, p_note text, p_owner text,
  p_max_waiters integer)
RETURNS text LANGUAGE sql AS $$ SELECT ${s}.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, NULL) $$;

CREATE OR REPLACE FUNCTION ${s}.give_back(
  p_namespace text, p_channel text, p_name text, p_attempt text, p_session bigint, p_keep_ms double precision)
RETURNS text LANGUAGE sql AS $$ SELECT ${s}.give_back($1, $2, $3, $4, $5, $6, NULL) $$;

CREATE OR REPLACE FUNCTION ${s}.force_release(
  p_namespace text, p_channel text, p_name text, p_ids text[], p_not_after_ms double precision)
RETURNS TABLE (kind text, attempt text, token text, data text, session bigint)
LANGUAGE sql AS $$ SELECT * FROM ${s}.force_release($1, $2, $3, $4, NULL, $5) $$;
`
