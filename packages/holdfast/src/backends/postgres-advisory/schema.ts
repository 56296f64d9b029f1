/**
 * What is kept in the database beside the locks themselves. PostgreSQL's advisory locks are the truth; a row only says what
 * a lock means: which name, whose attempt, which token. The tables are UNLOGGED, because they have to live exactly as
 * long as the locks: a crash of the server ends all connections and empties both.
 *
 * Every connection of ours holds an advisory lock of its own with a random key (`conn`), and says which one in the
 * setting `holdfast.connection`. By the lock others see that it lives; by the setting its own statements notice that
 * they run in another session than they should, because a client re-connected quietly or a pooler stands in between.
 *
 * A record counts while its connection has the lock of its key. So a release writes nothing: it unlocks, and the record
 * stays behind, without a meaning, until another takes its slot. Records of a connection never have the same key twice,
 * but for those who share it. No index has the key, so that a record is replaced within its page and leaves no garbage.
 *
 * What may go wrong between the steps of a grant: lock · draw · record · commit · answer.
 *   Advisory locks do not roll back: what fails after the lock is unlocked, here or by the client (T11, T50).
 *   A crash in between ends the connection, and with it lock and record. A lost answer: the client ends the connection.
 *   A session never asks for a key that it has: PostgreSQL would grant it once more (T70).
 *   A commit that writes nothing but unlogged rows does not wait for the disk. So a token is given out only if the log
 *   up to it is known to be there: `known` says up to where the client knows it; otherwise a log record makes this
 *   commit wait for the disk, and for a synchronous standby (T68). That is one commit of 32, as sequences log ahead.
 *
 * Layout 2 adds columns, and functions with more parameters. Clients of layout 1 that run go on with the functions that they
 * know. The locks are the server's, with the same keys, so both exclude each other.
 */
import { alterTables, quoteText, type TablePart } from '../../clients/postgres/index.ts'

export const advisoryPart: TablePart = {
  part: 'advisory',
  version: 2,
  upgradesFrom: 1,
  printedBy: 'postgresAdvisorySchema()',
  sql: (s) => `
CREATE SEQUENCE IF NOT EXISTS ${s}.advisory_tokens AS bigint MINVALUE 1 MAXVALUE 4503599627370495 CACHE 1;

CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.advisory_sessions (
  session bigint PRIMARY KEY,
  holder text NOT NULL,
  ttl_ms integer NOT NULL,
  channel text NOT NULL,
  namespace text,
  id text
);

CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.advisory_claims (
  conn bigint NOT NULL,
  slot integer NOT NULL,
  key bigint,
  token bigint,
  since timestamptz NOT NULL,
  session bigint NOT NULL,
  namespace text NOT NULL,
  name text NOT NULL,
  id text NOT NULL,
  mode text NOT NULL,
  note text,
  owner text,
  PRIMARY KEY (conn, slot)
) WITH (fillfactor = 30);

CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.advisory_forced (session bigint NOT NULL, id text NOT NULL, detail text);
${alterTables(
  [`${s}.advisory_claims`, `${s}.advisory_sessions`, `${s}.advisory_forced`],
  `ALTER TABLE ${s}.advisory_claims ADD COLUMN IF NOT EXISTS owner text;
  ALTER TABLE ${s}.advisory_sessions ADD COLUMN IF NOT EXISTS namespace text, ADD COLUMN IF NOT EXISTS id text;
  ALTER TABLE ${s}.advisory_forced ADD COLUMN IF NOT EXISTS detail text;`,
)}
-- Not replaced if it is there: that would lock it, and an upgrade has locked the tables by now.
DO $$ BEGIN
IF to_regclass(${quoteText(`${s}.advisory_locks`)}) IS NULL THEN
CREATE VIEW ${s}.advisory_locks AS
SELECT (classid::bigint << 32) | objid::bigint AS key, pid, granted, waitstart
FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database());
END IF;
END $$;

CREATE OR REPLACE FUNCTION ${s}.advisory_is_mine(my_conn bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT current_setting('holdfast.connection', true) IS NOT DISTINCT FROM my_conn::text
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_open(my_conn bigint, my_ttl_ms integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  setting text;
BEGIN
  IF NOT pg_try_advisory_lock(my_conn) THEN
    RETURN false;
  END IF;
  PERFORM set_config('holdfast.connection', my_conn::text, false),
    set_config('idle_session_timeout', my_ttl_ms::text, false),
    set_config('synchronous_commit', 'on', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('default_transaction_read_only', 'off', false),
    -- A plan is kept for as long as the connection lives, however large the table becomes (T83). A scan that is switched
    -- off, where there is no other way, would count as so expensive that it is compiled first.
    set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false);
  FOREACH setting IN ARRAY ARRAY['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
    'transaction_timeout'] LOOP
    IF current_setting(setting, true) IS NOT NULL THEN
      PERFORM set_config(setting, '0', false);
    END IF;
  END LOOP;
  BEGIN
    -- Who waits in line and whose process has gone leaves it soon. Not every system can tell.
    PERFORM set_config('client_connection_check_interval', '500', false);
  EXCEPTION WHEN OTHERS THEN
    NULL;
  END;
  RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_sweep() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ${s}.advisory_claims WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM ${s}.advisory_claims c
    WHERE NOT EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = c.conn AND l.granted)
    FOR UPDATE SKIP LOCKED));
  DELETE FROM ${s}.advisory_sessions WHERE ctid = ANY (ARRAY(
    SELECT z.ctid FROM ${s}.advisory_sessions z
    WHERE NOT EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = z.session AND l.granted)
    FOR UPDATE SKIP LOCKED));
  DELETE FROM ${s}.advisory_forced WHERE ctid = ANY (ARRAY(
    SELECT f.ctid FROM ${s}.advisory_forced f
    WHERE NOT EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = f.session AND l.granted)
    FOR UPDATE SKIP LOCKED));
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_open_session(
  my_conn bigint, my_ttl_ms integer, my_holder text, my_channel text, my_namespace text, my_id text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF NOT ${s}.advisory_open(my_conn, my_ttl_ms) THEN
    RETURN false;
  END IF;
  -- It never waits; and each look at the client would ring an alarm, at which a stepped clock ends the session early.
  PERFORM set_config('client_connection_check_interval', '0', false);
  PERFORM ${s}.advisory_sweep();
  INSERT INTO ${s}.advisory_sessions (session, holder, ttl_ms, channel, namespace, id)
  VALUES (my_conn, my_holder, my_ttl_ms, my_channel, my_namespace, my_id)
  ON CONFLICT (session) DO UPDATE SET holder = excluded.holder, ttl_ms = excluded.ttl_ms, channel = excluded.channel,
    namespace = excluded.namespace, id = excluded.id;
  RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_settle() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  logged bigint;
BEGIN
  SELECT last_value + log_cnt INTO logged FROM ${s}.advisory_tokens;
  PERFORM pg_logical_emit_message(true, 'holdfast', '');
  RETURN logged;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_write(
  my_conn bigint, my_slot integer, my_session bigint, my_key bigint, my_token bigint,
  my_namespace text, my_name text, my_id text, my_mode text, my_note text, my_owner text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ${s}.advisory_claims c SET key = my_key, token = my_token, since = clock_timestamp(), session = my_session,
    namespace = my_namespace, name = my_name, id = my_id, mode = my_mode, note = my_note,
    owner = my_owner
  WHERE c.conn = my_conn AND c.slot = my_slot;
  IF NOT FOUND THEN
    INSERT INTO ${s}.advisory_claims (conn, slot, key, token, since, session, namespace, name, id, mode, note, owner)
    VALUES (my_conn, my_slot, my_key, my_token, clock_timestamp(), my_session, my_namespace, my_name, my_id, my_mode, my_note,
      my_owner);
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_other_name(my_key bigint, my_namespace text, my_name text) RETURNS text
LANGUAGE sql AS $$
SELECT c.name FROM ${s}.advisory_claims c
JOIN ${s}.advisory_locks me ON me.key = c.conn AND me.granted
JOIN ${s}.advisory_locks l ON l.key = c.key AND l.pid = me.pid
WHERE c.key = my_key AND (c.name <> my_name OR c.namespace <> my_namespace) LIMIT 1
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_try(
  my_conn bigint, my_slot integer, op text, my_key bigint, my_namespace text, my_name text, my_id text, my_note text,
  my_owner text, known bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  drawn bigint;
  got boolean;
  other text;
BEGIN
  IF current_setting('holdfast.connection', true) IS DISTINCT FROM my_conn::text THEN
    RETURN 'gone';
  END IF;
  IF op = 'x' THEN
    got := pg_try_advisory_lock(my_key);
  ELSIF op = 's' THEN
    got := pg_try_advisory_lock_shared(my_key);
  ELSE
    -- This session shares it already, so PostgreSQL would let it overtake who waits.
    got := NOT EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = my_key AND NOT l.granted);
  END IF;
  IF got THEN
    drawn := nextval(${quoteText(`${s}.advisory_tokens`)});
    UPDATE ${s}.advisory_claims c SET key = my_key, token = drawn, since = clock_timestamp(), namespace = my_namespace,
      name = my_name, id = my_id, mode = CASE op WHEN 'x' THEN 'exclusive' ELSE 'shared' END, note = my_note,
      owner = my_owner
    WHERE c.conn = my_conn AND c.slot = my_slot;
    IF NOT FOUND THEN
      PERFORM ${s}.advisory_write(my_conn, my_slot, my_conn, my_key, drawn, my_namespace, my_name, my_id,
        CASE op WHEN 'x' THEN 'exclusive' ELSE 'shared' END, my_note, my_owner);
    END IF;
    IF drawn <= known THEN
      RETURN 'granted ' || drawn;
    END IF;
    RETURN 'granted ' || drawn || ' ' || ${s}.advisory_settle();
  END IF;
  IF EXISTS (SELECT FROM ${s}.advisory_claims c
      WHERE c.key = my_key AND (c.name <> my_name OR c.namespace <> my_namespace)) THEN
    other := ${s}.advisory_other_name(my_key, my_namespace, my_name);
    IF other IS NOT NULL THEN
      RETURN 'collision ' || other;
    END IF;
  END IF;
  RETURN 'busy';
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_give_up(my_conn bigint, my_slot integer, op text, my_key bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('holdfast.connection', true) IS DISTINCT FROM my_conn::text THEN
    RETURN 'gone';
  END IF;
  IF op = 'r' THEN
    PERFORM pg_advisory_unlock(my_key);
  ELSIF op = 'u' THEN
    PERFORM pg_advisory_unlock_shared(my_key);
  ELSE
    -- Others of this session have the lock still, so the record would go on to count.
    UPDATE ${s}.advisory_claims c SET key = NULL WHERE c.conn = my_conn AND c.slot = my_slot;
  END IF;
  RETURN 'released';
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_apply(
  my_conn bigint, my_namespace text, known bigint,
  ops text[], slots integer[], keys bigint[], names text[], ids text[], notes text[], owners text[])
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  answer text;
BEGIN
  FOR i IN 1 .. cardinality(ops) LOOP
    IF ops[i] IN ('x', 's', 'j') THEN
      BEGIN
        answer := ${s}.advisory_try(my_conn, slots[i], ops[i], keys[i], my_namespace, names[i], ids[i], notes[i],
          owners[i], known);
        IF answer LIKE 'granted % %' THEN
          known := split_part(answer, ' ', 3)::bigint;
        END IF;
      EXCEPTION WHEN OTHERS OR query_canceled THEN
        answer := 'failed ' || SQLSTATE || ' ' || SQLERRM;
        IF ops[i] = 'x' THEN
          PERFORM pg_advisory_unlock(keys[i]);
        ELSIF ops[i] = 's' THEN
          PERFORM pg_advisory_unlock_shared(keys[i]);
        END IF;
      END;
    ELSE
      answer := ${s}.advisory_give_up(my_conn, slots[i], ops[i], keys[i]);
    END IF;
    RETURN NEXT answer;
  END LOOP;
END
$$;

-- placed | full | gone. With a limit, places for one key are given out one after the other, so that the count is exact.
CREATE OR REPLACE FUNCTION ${s}.advisory_place(
  my_conn bigint, my_session bigint, my_namespace text, my_key bigint, my_id text, my_name text, my_mode text, my_note text,
  my_owner text, max_waiters integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  waiters bigint;
BEGIN
  IF NOT ${s}.advisory_is_mine(my_conn) THEN
    RETURN 'gone';
  END IF;
  IF max_waiters IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast places ' || my_key, 0));
    SELECT count(*) INTO waiters FROM ${s}.advisory_claims c
    WHERE c.key = my_key AND c.token IS NULL AND c.conn <> my_conn
      AND EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = c.conn AND l.granted)
      AND EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = c.session AND l.granted);
    IF waiters >= max_waiters THEN
      RETURN 'full';
    END IF;
  END IF;
  PERFORM ${s}.advisory_write(my_conn, 0, my_session, my_key, NULL, my_namespace, my_name, my_id, my_mode, my_note, my_owner);
  RETURN 'placed';
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_take(
  my_conn bigint, my_session bigint, my_key bigint, my_id text, my_mode text, my_ttl_ms integer, known bigint,
  OUT kind text, OUT token text, OUT now_known text)
LANGUAGE plpgsql AS $$
DECLARE
  home integer;
  left_ms double precision;
  drawn bigint;
BEGIN
  IF NOT ${s}.advisory_is_mine(my_conn) THEN
    kind := 'gone';
    RETURN;
  END IF;
  IF my_mode = 'shared' THEN
    PERFORM pg_advisory_lock_shared(my_key);
  ELSE
    PERFORM pg_advisory_lock(my_key);
  END IF;
  -- The wait may have outlived the session (T18). If not, the lock is kept for as long as the session has left (T65).
  SELECT l.pid INTO home FROM ${s}.advisory_locks l WHERE l.key = my_session AND l.granted;
  IF FOUND THEN
    SELECT CASE WHEN a.state = 'idle'
      THEN my_ttl_ms - extract(epoch FROM clock_timestamp() - a.state_change) * 1000 ELSE my_ttl_ms END
    INTO left_ms FROM pg_stat_get_activity(home) a;
  END IF;
  IF coalesce(left_ms, 0) <= 0 THEN
    DELETE FROM ${s}.advisory_claims c WHERE c.conn = my_conn;
    PERFORM pg_advisory_unlock_all();
    PERFORM set_config('holdfast.connection', '', false);
    kind := 'session-gone';
    RETURN;
  END IF;
  PERFORM set_config('idle_session_timeout', ceil(least(left_ms, my_ttl_ms))::bigint::text, false);
  drawn := nextval(${quoteText(`${s}.advisory_tokens`)});
  UPDATE ${s}.advisory_claims c SET token = drawn, since = clock_timestamp()
  WHERE c.conn = my_conn AND c.slot = 0 AND c.id = my_id;
  kind := 'granted';
  token := drawn::text;
  now_known := CASE WHEN drawn <= known THEN known ELSE ${s}.advisory_settle() END::text;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_keep(
  my_conn bigint, my_ttl_ms integer, waiting bigint[], OUT kind text, OUT data text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
  reason text;
BEGIN
  IF NOT ${s}.advisory_is_mine(my_conn) THEN
    kind := 'gone';
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM set_config('idle_session_timeout', my_ttl_ms::text, false);
  kind := 'alive';
  RETURN NEXT;
  -- Each 'forced' is followed by its reason, which clients of layout 1 do not read.
  FOR data, reason IN SELECT f.id, f.detail FROM ${s}.advisory_forced f WHERE f.session = my_conn LOOP
    kind := 'forced';
    RETURN NEXT;
    kind := 'reason';
    data := reason;
    RETURN NEXT;
  END LOOP;
  IF cardinality(waiting) = 0 THEN
    RETURN;
  END IF;
  kind := 'turn';
  FOR data IN
    SELECT c.id FROM ${s}.advisory_claims c
    JOIN ${s}.advisory_locks me ON me.key = c.conn AND me.granted
    JOIN ${s}.advisory_locks l ON l.key = c.key AND l.pid = me.pid AND l.granted
    WHERE c.key = ANY (waiting) AND c.session = my_conn AND c.conn <> my_conn
  LOOP
    RETURN NEXT;
  END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_call_off(conns bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- They are not shown as waiting any more, also while the cancellation is on its way.
  UPDATE ${s}.advisory_claims c SET key = NULL WHERE c.conn = ANY (conns) AND c.slot = 0 AND c.token IS NULL;
  PERFORM pg_cancel_backend(l.pid) FROM ${s}.advisory_locks l WHERE l.key = ANY (conns) AND l.granted;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_leave(my_conn bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF ${s}.advisory_is_mine(my_conn) THEN
    DELETE FROM ${s}.advisory_claims c WHERE c.conn = my_conn;
    DELETE FROM ${s}.advisory_sessions z WHERE z.session = my_conn;
    DELETE FROM ${s}.advisory_forced f WHERE f.session = my_conn;
    PERFORM pg_advisory_unlock_all();
    PERFORM set_config('holdfast.connection', '', false);
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION ${s}.advisory_end(conns bigint[], within_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  ended boolean;
BEGIN
  SELECT coalesce(bool_and(pg_terminate_backend(l.pid, within_ms)), true) INTO ended
  FROM ${s}.advisory_locks l WHERE l.key = ANY (conns) AND l.granted;
  IF ended THEN
    DELETE FROM ${s}.advisory_claims c WHERE c.conn = ANY (conns);
  END IF;
  RETURN ended;
END
$$;
`,
}
