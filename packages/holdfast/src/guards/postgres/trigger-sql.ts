/**
 * The functions behind a fenced table (`table-fence.ts`), in the database's own language: they bind every client. They
 * keep the rule of `../rule.ts` for exclusive fences, on the same rows as `postgresGuard`, and a test compares the two on
 * random fences. A shared fence is no permission to write.
 *
 * Between any two of their steps the same can go wrong as in `store.ts`, with the same answers; in PL/pgSQL every
 * statement is one of its own. A write that is refused is undone with all that the function did. It sees no reads.
 *
 * `fence_row` runs with the rights of its owner, so that those who write the table need none on the guard's rows. It can
 * raise the mark of every name, so only its owner may put it on a table, and roles that were granted EXECUTE (T80). It
 * asks again at each write, because the server looks at that right only when a trigger is created.
 */
import { quoteText } from '../../clients/postgres/index.ts'

export function triggerSql(s: string): string {
  return `
CREATE OR REPLACE FUNCTION ${s}.fence_part(encoded text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
  SELECT convert_from(decode(coalesce(string_agg(CASE WHEN part[1] LIKE '\\%%' THEN substr(part[1], 2)
    ELSE encode(convert_to(part[1], 'UTF8'), 'hex') END, '' ORDER BY place), ''), 'hex'), 'UTF8')
  FROM regexp_matches(encoded, '%[0-9A-Fa-f]{2}|[^%]+', 'g') WITH ORDINALITY AS r (part, place)
$$;
CREATE OR REPLACE FUNCTION ${s}.fence_pass(the_guard text, the_name text, the_issuers text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  shown text;
  parts text[];
  the_issuer text;
  the_token bigint;
  the_grant text;
  known record;
  pinned text;
  bottom record;
  now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
  FOR shown IN SELECT each FROM regexp_split_to_table(trim(current_setting('holdfast.fence', true)), '\\s+') each LOOP
    CONTINUE WHEN coalesce(shown, '') = '';
    parts := string_to_array(shown, '/');
    IF cardinality(parts) <> 6 OR parts[1] <> 'hf1' OR parts[4] NOT IN ('exclusive', 'shared')
      OR parts[5] !~ '^[1-9][0-9]{0,18}$' OR parts[5]::numeric > 9223372036854775807
      OR parts[6] !~ '^[A-Za-z0-9_-]{1,64}$' THEN
      RAISE EXCEPTION 'holdfast.fence holds something that is not a fence'
        USING ERRCODE = 'HF103', HINT = 'Set it to the text of formatFence(lease.fence), unchanged.';
    END IF;
    CONTINUE WHEN ${s}.fence_part(parts[3]) IS DISTINCT FROM the_name;
    -- Of several for one name the last counts.
    the_issuer := ${s}.fence_part(parts[2]);
    the_token := CASE WHEN parts[4] = 'exclusive' THEN parts[5]::bigint END;
    the_grant := parts[6];
  END LOOP;
  IF the_token IS NULL THEN
    RAISE EXCEPTION 'writing needs an exclusive fence for "%", and holdfast.fence has none', the_name
      USING ERRCODE = 'HF100', HINT = 'SET LOCAL holdfast.fence to the text of formatFence(lease.fence) first.';
  END IF;
  IF the_issuers IS NOT NULL AND the_issuer <> ALL (the_issuers) THEN
    PERFORM ${s}.fence_refuse_foreign(the_name, the_issuer);
  END IF;

  INSERT INTO ${s}.guard_names (guard, name, touched_ms) VALUES (the_guard, the_name, now_ms) ON CONFLICT DO NOTHING;
  SELECT * INTO known FROM ${s}.guard_names n WHERE n.guard = the_guard AND n.name = the_name FOR UPDATE;
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
CREATE OR REPLACE FUNCTION ${s}.fence_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  issuers text[] := CASE WHEN TG_ARGV[1] <> '' THEN TG_ARGV[1]::text[] END;
  before_name text := TG_ARGV[2];
  after_name text := TG_ARGV[2];
BEGIN
  IF NOT has_function_privilege((SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID),
    ${quoteText(`${s}.fence_row()`)}::regprocedure, 'EXECUTE') THEN
    RAISE EXCEPTION 'the owner of the table % may not use the function %.fence_row()', TG_RELID::regclass,
      ${quoteText(s)} USING ERRCODE = '42501',
      HINT = 'Grant EXECUTE on it to the owner, who then decides about every name of every guard in that schema.';
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    IF TG_NARGS > 3 THEN
      RAISE EXCEPTION 'the table is fenced row by row, and cannot be truncated'
        USING ERRCODE = 'HF100', HINT = 'Delete the rows under the fence of each.';
    END IF;
    PERFORM ${s}.fence_pass(TG_ARGV[0], after_name, issuers);
    RETURN NULL;
  END IF;
  IF TG_NARGS > 3 THEN
    before_name := TG_ARGV[2] || CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) ->> TG_ARGV[3] END;
    after_name := TG_ARGV[2] || CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) ->> TG_ARGV[3] END;
  END IF;
  IF TG_WHEN = 'AFTER' THEN
    -- Another BEFORE trigger may have changed the key since it was checked.
    IF TG_OP = 'INSERT' OR after_name IS DISTINCT FROM before_name THEN
      PERFORM ${s}.fence_pass(TG_ARGV[0], after_name, issuers);
    END IF;
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    PERFORM ${s}.fence_pass(TG_ARGV[0], before_name, issuers);
  END IF;
  IF TG_OP <> 'DELETE' AND (TG_OP = 'INSERT' OR after_name IS DISTINCT FROM before_name) THEN
    PERFORM ${s}.fence_pass(TG_ARGV[0], after_name, issuers);
  END IF;
  RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END
$$;
REVOKE ALL ON FUNCTION ${s}.fence_row() FROM PUBLIC;`
}
