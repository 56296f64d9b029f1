/**
 * The functions behind a fenced table (`table-fence.ts`), in the database's own language: they bind every client. They
 * keep the rule of `../../../guards/rule.ts` for exclusive fences, on the same rows as `postgresGuard`, and a test compares the two on
 * random fences. A shared fence is no permission to write.
 *
 * Between any two of their steps the same can go wrong as in `store.ts`, with the same answers; in PL/pgSQL every
 * statement is one of its own. A write that is refused is undone with all that the function did. It sees no reads.
 *
 * `fence_row` runs with the rights of its owner, so that writers of the table need no rights on the guard's rows. It can
 * raise the mark of every name, so only its owner may put it on a table, and roles that were granted EXECUTE (T80, functions for strangers). It
 * asks again before it judges, because the server looks at that right only when a trigger is created.
 *
 * Triggers run for each row, because a write to a parent table runs no statement trigger of its children. So what is the same
 * for all rows is done once in a transaction, and kept in settings that end with it: the index of the fences that are shown,
 * and the last fence that passed.
 */
import { quoteText } from '../client/index.ts'
import { BY_INDEX } from '../tables/tables.ts'

/** SQL: where the fence for a name begins in the index. It is in hexadecimal, so that no name can contain another's. */
const indexKey = (name: string) => `chr(10) || encode(convert_to(${name}, 'UTF8'), 'hex') || ' '`

export function triggerSql(s: string): string {
  return `
CREATE OR REPLACE FUNCTION ${s}.fence_part(encoded text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
  SELECT convert_from(decode(coalesce(string_agg(CASE WHEN part[1] LIKE '\\%%' THEN substr(part[1], 2)
    ELSE encode(convert_to(part[1], 'UTF8'), 'hex') END, '' ORDER BY place), ''), 'hex'), 'UTF8')
  FROM regexp_matches(encoded, '%[0-9A-Fa-f]{2}|[^%]+', 'g') WITH ORDINALITY AS r (part, place)
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_parts(shown text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
-- The parts of a fence's text, decoded. Refuses everything else.
DECLARE
  parts text[] := string_to_array(shown, '/');
BEGIN
  IF cardinality(parts) <> 6 OR parts[1] <> 'hf1' OR parts[4] NOT IN ('exclusive', 'shared')
    OR parts[5] !~ '^[1-9][0-9]{0,18}$' OR parts[5]::numeric > 9223372036854775807
    OR parts[6] !~ '^[A-Za-z0-9_-]{1,64}$' THEN
    RAISE EXCEPTION 'holdfast.fence holds something that is not a fence'
      USING ERRCODE = 'HF103', HINT = 'Set it to the text of formatFence(lease.fence), unchanged.';
  END IF;
  IF strpos(parts[2], '%') > 0 THEN parts[2] := ${s}.fence_part(parts[2]); END IF;
  IF strpos(parts[3], '%') > 0 THEN parts[3] := ${s}.fence_part(parts[3]); END IF;
  RETURN parts;
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_shown(the_name text) RETURNS text
LANGUAGE plpgsql AS $$
-- The text of the fence for a name in holdfast.fence; of several, the last. Null if there is none. Every fence is read once,
-- not once for every row: the transaction keeps an index, newest first, and the setting of which it was made. Fences that are
-- added to the setting are put in front of the index.
BEGIN
  -- In one expression each: a variable would be another copy of a text that may be long.
  IF (current_setting('holdfast.fence', true) = current_setting('holdfast.fence_indexed', true)) IS NOT TRUE THEN
    PERFORM ${s}.fence_index(coalesce(current_setting('holdfast.fence', true), ''),
      nullif(current_setting('holdfast.fence_indexed', true), ''));
  END IF;
  RETURN nullif(split_part(split_part(current_setting('holdfast.fence_index'), ${indexKey('the_name')}, 2), chr(10), 1), '');
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_index(setting text, indexed text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  is_longer boolean := coalesce(starts_with(setting, indexed || ' '), false);
  index text := CASE WHEN is_longer THEN current_setting('holdfast.fence_index') ELSE '' END;
  added text := CASE WHEN is_longer THEN substr(setting, length(indexed) + 1) ELSE setting END;
BEGIN
  SELECT coalesce(string_agg(${indexKey(`(${s}.fence_parts(each))[3]`)} || each, '' ORDER BY place DESC), '') || index
  INTO index FROM regexp_split_to_table(added, '\\s+') WITH ORDINALITY AS r (each, place) WHERE each <> '';
  PERFORM set_config('holdfast.fence_index', index, true), set_config('holdfast.fence_indexed', setting, true);
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_pass(the_guard text, the_name text, the_issuers text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  parts text[] := ${s}.fence_parts(${s}.fence_shown(the_name));
  the_issuer text;
  the_token bigint;
  the_grant text;
  known record;
  pinned text;
  bottom record;
  now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
  IF parts[3] = the_name AND parts[4] = 'exclusive' THEN
    the_issuer := parts[2];
    the_token := parts[5]::bigint;
    the_grant := parts[6];
  END IF;
  IF the_token IS NULL THEN
    RAISE EXCEPTION 'writing needs an exclusive fence for "%", and holdfast.fence has none', the_name
      USING ERRCODE = 'HF100', HINT = 'SET LOCAL holdfast.fence to the text of formatFence(lease.fence) first.';
  END IF;
  IF the_issuers IS NOT NULL AND the_issuer <> ALL (the_issuers) THEN
    PERFORM ${s}.fence_refuse_foreign(the_name, the_issuer);
  END IF;

  LOOP
    SELECT * INTO known FROM ${s}.guard_names n WHERE n.guard = the_guard AND n.name = the_name FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO ${s}.guard_names (guard, name, touched_ms) VALUES (the_guard, the_name, now_ms) ON CONFLICT DO NOTHING;
  END LOOP;
  -- The usual case: this very fence has been here, with \`enter\` or with an earlier row.
  IF known.token = the_token AND known.grant_id = the_grant AND known.issuer = the_issuer
    AND known.mode = 'exclusive' AND known.touched_ms > now_ms - 60000 THEN
    RETURN;
  END IF;

  SELECT g.pinned_issuer INTO pinned FROM ${s}.guards g WHERE g.guard = the_guard;
  IF pinned IS NULL THEN
    INSERT INTO ${s}.guards (guard) VALUES (the_guard) ON CONFLICT DO NOTHING;
    SELECT g.pinned_issuer INTO pinned FROM ${s}.guards g WHERE g.guard = the_guard FOR UPDATE;
  END IF;
  IF (the_issuers IS NULL AND pinned <> the_issuer) OR known.issuer <> the_issuer THEN
    PERFORM ${s}.fence_refuse_foreign(the_name, the_issuer);
  END IF;

  IF known.token IS NULL THEN
    INSERT INTO ${s}.guard_issuers (guard, issuer) VALUES (the_guard, the_issuer) ON CONFLICT DO NOTHING;
    SELECT i.floor_token, i.floor_grant INTO bottom FROM ${s}.guard_issuers i
    WHERE i.guard = the_guard AND i.issuer = the_issuer FOR SHARE;
    IF the_token < bottom.floor_token OR (the_token = bottom.floor_token AND the_grant <> bottom.floor_grant) THEN
      PERFORM ${s}.fence_refuse_stale(the_name, the_token, bottom.floor_token);
    END IF;
  ELSIF the_token < known.token
    OR (the_token = known.token AND (known.mode <> 'exclusive' OR the_grant <> known.grant_id)) THEN
    PERFORM ${s}.fence_refuse_stale(the_name, the_token, known.token);
  END IF;

  UPDATE ${s}.guard_names n SET issuer = the_issuer, mode = 'exclusive', token = the_token, grant_id = the_grant,
    exclusive_token = the_token, touched_ms = greatest(n.touched_ms, now_ms)
  WHERE n.guard = the_guard AND n.name = the_name;
  IF pinned IS NULL THEN
    UPDATE ${s}.guards g SET pinned_issuer = the_issuer WHERE g.guard = the_guard;
  END IF;
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_refuse_stale(the_name text, the_token bigint, highest bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'stale fence for "%": token % was overtaken, the highest token seen is %', the_name, the_token, highest
    USING ERRCODE = 'HF101', HINT = 'Roll back. Acquire the lock again, and read the current state.';
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_refuse_foreign(the_name text, the_issuer text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'foreign fence for "%": tokens of the issuer "%" cannot be compared here', the_name, the_issuer
    USING ERRCODE = 'HF102', HINT = 'Give all lockers the same issuer, or name it in issuers.';
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_judge(the_table oid, the_guard text, the_issuers text, the_name text, the_pass text)
RETURNS void LANGUAGE plpgsql ${BY_INDEX} AS $$
-- Judges a name that a table's row has, and keeps the pass. Not part of fence_row, which runs for every row: settings cost
-- at each call.
BEGIN
  IF NOT has_function_privilege((SELECT c.relowner FROM pg_class c WHERE c.oid = the_table),
    ${quoteText(`${s}.fence_row()`)}::regprocedure, 'EXECUTE') THEN
    RAISE EXCEPTION 'the owner of the table % may not use the function %.fence_row()', the_table::regclass,
      ${quoteText(s)} USING ERRCODE = '42501',
      HINT = 'Grant EXECUTE on it to the owner, who then decides about every name of every guard in that schema.';
  END IF;
  PERFORM ${s}.fence_pass(the_guard, the_name, CASE WHEN the_issuers <> '' THEN the_issuers::text[] END);
  PERFORM set_config('holdfast.fence_tables', CASE WHEN the_pass = current_setting('holdfast.fence_pass', true)
    THEN current_setting('holdfast.fence_tables', true) ELSE ' ' END || the_table || ' ', true);
  PERFORM set_config('holdfast.fence_pass', the_pass, true);
END
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name text := TG_ARGV[2];
  old_name text;
  shown text := current_setting('holdfast.fence', true);
  pass text;
BEGIN
  IF TG_NARGS > 3 THEN
    IF TG_OP = 'TRUNCATE' THEN
      RAISE EXCEPTION 'the table is fenced row by row, and cannot be truncated'
        USING ERRCODE = 'HF100', HINT = 'Delete the rows under the fence of each.';
    END IF;
    name := TG_ARGV[2] || (to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END) ->> TG_ARGV[3]);
    IF TG_OP = 'UPDATE' THEN
      old_name := TG_ARGV[2] || (to_jsonb(OLD) ->> TG_ARGV[3]);
      -- After the update only a key that another BEFORE trigger changed has not been judged.
      IF TG_WHEN = 'AFTER' AND name IS NOT DISTINCT FROM old_name THEN
        RETURN NULL;
      ELSIF TG_WHEN = 'BEFORE' AND name IS DISTINCT FROM old_name THEN
        PERFORM ${s}.fence_judge(TG_RELID, TG_ARGV[0], TG_ARGV[1], old_name, NULL);
      END IF;
    END IF;
  END IF;
  -- A pass holds until the transaction ends, because its mark is locked; a savepoint rollback undoes both. So the last pass
  -- is cached with its tables. A forged pass raises no mark. It is not cached where each row has its own fence.
  pass := ${quoteText(s)} || chr(31) || pg_current_xact_id() || chr(31) || TG_ARGV[0] || chr(31) || TG_ARGV[1] || chr(31)
    || name || chr(31) || CASE WHEN TG_NARGS = 3 OR octet_length(shown) < 1000 THEN shown END;
  IF (pass = current_setting('holdfast.fence_pass', true)
    AND strpos(current_setting('holdfast.fence_tables', true), ' ' || TG_RELID || ' ') > 0) IS NOT TRUE THEN
    PERFORM ${s}.fence_judge(TG_RELID, TG_ARGV[0], TG_ARGV[1], name, pass);
  END IF;
  RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD WHEN TG_OP <> 'TRUNCATE' AND TG_WHEN = 'BEFORE' THEN NEW END;
END
$$;
REVOKE ALL ON FUNCTION ${s}.fence_row() FROM PUBLIC;`
}
