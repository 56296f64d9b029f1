/**
 * Records that are kept in the database beside the locks. PostgreSQL's advisory locks are the truth. A record says what a lock means
 * (name, attempt, token), and counts while its connection has the lock of its key. A connection that has locks also has one with
 * a random key (`conn`), by which others see that it lives. The tables are UNLOGGED: a crash ends all connections and all records.
 *
 * The release of an exclusive lock writes nothing: its record stays, and counts no more without the lock. So a connection
 * must not have two records of one key of which only one is meant. `claims.ts` asks for a key again with the slot of its old record;
 * and a slot that is asked for with another key loses its old record, whatever the answer is.
 *
 * The steps of a grant: lock · draw the token · record · commit · answer.
 *   Advisory locks do not roll back: what fails after the lock is unlocked here (T11, cancelled statements; T50, poolers).
 *   A crash, or a lost answer, ends the connection, and with it lock and record.
 *   A commit of unlogged rows does not wait for the disk. So a token above `known`, up to which the log is known to be on
 *   disk, writes to the log, and its commit waits for the disk and a synchronous standby (T68, tokens lost in a crash).
 */
import { quoteText } from '../client/index.ts'
import { READ_AND_WRITE, type TablePart } from '../tables/tables.ts'

/** The channel of force releases (payload: the holder's connection) and of free hints (`FREE`, the connection that freed the key, the key). */
export const CHANNEL = 'holdfast_advisory'
export const FREE = 'free '

/** Sessions that wait for a key share a lock of this number. Its seed keeps it apart from keys. */
export const waitersOf = (key: string) => `hashint8extended(${key}, 7305804402384072037)`

/**
 * After a key was unlocked: tells the processes that wait for it. To look at their lock is to try it, because our own waiters share
 * it, and do not stand in our way.
 */
export const tellWaiters = (conn: string, key: string) => `CASE WHEN pg_try_advisory_lock(${waitersOf(key)})
  THEN CASE WHEN pg_advisory_unlock(${waitersOf(key)}) THEN 'released' END
  ELSE concat('others-wait', pg_notify('${CHANNEL}', '${FREE}' || ${conn} || ' ' || ${key})) END`

export const advisoryPart: TablePart = {
  part: 'advisory',
  version: 1,
  relations: {
    advisory_connections: READ_AND_WRITE,
    advisory_holders: READ_AND_WRITE,
    advisory_locks: ['SELECT'],
    advisory_tokens: ['USAGE', 'SELECT'],
  },
  printedBy: 'postgresAdvisorySchema()',
  sql: (s) => `
CREATE SEQUENCE IF NOT EXISTS ${s}.advisory_tokens AS bigint MINVALUE 1 MAXVALUE 4503599627370495 CACHE 1;

CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.advisory_connections (
  conn bigint PRIMARY KEY,
  namespace text NOT NULL,
  session text NOT NULL,
  holder text NOT NULL,
  ttl_ms integer NOT NULL
);

CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.advisory_holders (
  conn bigint NOT NULL REFERENCES ${s}.advisory_connections ON DELETE CASCADE,
  slot integer NOT NULL,
  key bigint,
  token bigint NOT NULL,
  since timestamptz NOT NULL,
  namespace text NOT NULL,
  name text NOT NULL,
  id text NOT NULL,
  mode text NOT NULL,
  note text,
  owner text,
  forced text,
  PRIMARY KEY (conn, slot)
) WITH (fillfactor = 30);
-- No index has the key, so that records are overwritten in place and leave no garbage.
CREATE INDEX IF NOT EXISTS advisory_holders_forced ON ${s}.advisory_holders (conn) WHERE forced IS NOT NULL;

CREATE OR REPLACE VIEW ${s}.advisory_locks AS
SELECT (classid::bigint << 32) | objid::bigint AS key, pid, granted, waitstart
FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database());

CREATE OR REPLACE FUNCTION ${s}.advisory_other_name(my_key bigint, my_namespace text, my_name text) RETURNS text
LANGUAGE sql AS $$
SELECT h.name FROM ${s}.advisory_holders h
JOIN ${s}.advisory_locks me ON me.key = h.conn AND me.granted
JOIN ${s}.advisory_locks l ON l.key = h.key AND l.pid = me.pid AND l.granted
WHERE h.key = my_key AND (h.name <> my_name OR h.namespace <> my_namespace) LIMIT 1
$$;

-- Frees locks, then takes others. An answer for each release, then for each acquire, in their order:
-- released | others-wait | granted <token> <known> | busy | collision <name> | failed <SQLSTATE> <message>; or one row: gone
CREATE OR REPLACE FUNCTION ${s}.advisory_apply(
  my_conn bigint, my_namespace text, known bigint, verify boolean, releases json, acquires json)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  item record;
  drawn bigint;
  other text;
  hint text;
  exclusive_keys bigint[] := '{}';
  shared_keys bigint[] := '{}';
  answers text[] := '{}';
BEGIN
  IF current_setting('holdfast.connection', true) IS DISTINCT FROM my_conn::text THEN
    RETURN NEXT 'gone';
    RETURN;
  END IF;
  FOR item IN SELECT * FROM json_to_recordset(releases) AS r (mode text, key bigint, slot integer) LOOP
    IF item.mode = 'exclusive' THEN
      PERFORM pg_advisory_unlock(item.key);
    ELSE
      UPDATE ${s}.advisory_holders h SET key = NULL, forced = NULL WHERE h.conn = my_conn AND h.slot = item.slot;
      PERFORM pg_advisory_unlock_shared(item.key);
    END IF;
    RETURN NEXT ${tellWaiters('my_conn', 'item.key')};
  END LOOP;
  IF acquires IS NULL THEN
    RETURN;
  END IF;
  BEGIN
    FOR item IN SELECT * FROM json_to_recordset(acquires)
      AS a (mode text, key bigint, slot integer, name text, id text, note text, owner text)
    LOOP
      IF item.mode = 'exclusive' AND pg_try_advisory_lock(item.key) THEN
        exclusive_keys := exclusive_keys || item.key;
      ELSIF item.mode = 'shared' AND pg_try_advisory_lock_shared(item.key) THEN
        shared_keys := shared_keys || item.key;
      ELSE
        UPDATE ${s}.advisory_holders h SET key = NULL
        WHERE h.conn = my_conn AND h.slot = item.slot AND (h.key <> item.key OR item.mode = 'shared');
        other := CASE WHEN verify THEN ${s}.advisory_other_name(item.key, my_namespace, item.name) END;
        answers := answers || coalesce('collision ' || other, 'busy');
        CONTINUE;
      END IF;
      drawn := nextval(${quoteText(`${s}.advisory_tokens`)});
      UPDATE ${s}.advisory_holders h SET key = item.key, token = drawn, since = clock_timestamp(), name = item.name,
        id = item.id, mode = item.mode, note = item.note, owner = item.owner, forced = NULL
      WHERE h.conn = my_conn AND h.slot = item.slot;
      IF NOT FOUND THEN
        INSERT INTO ${s}.advisory_holders VALUES (my_conn, item.slot, item.key, drawn, clock_timestamp(), my_namespace,
          item.name, item.id, item.mode, item.note, item.owner);
      END IF;
      IF drawn > known THEN
        SELECT last_value + log_cnt INTO known FROM ${s}.advisory_tokens;
        PERFORM pg_logical_emit_message(true, 'holdfast', '');
      END IF;
      answers := answers || format('granted %s %s', drawn, known);
    END LOOP;
  EXCEPTION WHEN OTHERS OR query_canceled THEN
    -- The records are undone, and the locks are not.
    PERFORM pg_advisory_unlock(key) FROM unnest(exclusive_keys) AS key;
    PERFORM pg_advisory_unlock_shared(key) FROM unnest(shared_keys) AS key;
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    answers := array_fill(format('failed %s %s. %s', SQLSTATE, SQLERRM, hint), ARRAY[json_array_length(acquires)]);
    UPDATE ${s}.advisory_holders h SET key = NULL
    FROM json_to_recordset(acquires) AS a (slot integer) WHERE h.conn = my_conn AND h.slot = a.slot;
  END;
  RETURN QUERY SELECT unnest(answers);
END
$$;
`,
}
