/**
 * The log of events, for watchers. It is written only while its namespace is watched, by the transactions that make the
 * changes. Without a watcher a change costs one lookup in an empty table, within a statement that runs anyway.
 *
 *   closed ──a watcher comes──▶ open                          with a new id                               [open_log]
 *   open ──a watcher comes, or prolongs──▶ open               also after `watched_until`                  [open_log]
 *   open ──a watcher finds that it came with a dump──▶ open   with a new id, and empty                    [open_log]
 *   open ──an event comes after `watched_until`──▶ closed     its events stay until the next watcher      [log_event]
 *
 * A transaction that skips an event has closed the log, or has seen no open one. So an open log has every event of all transactions
 * that began to write after it was opened, and is complete when those that began before have ended. They are found by their lock
 * on `holders`, which every function that logs takes before it looks for the log.
 *
 * Ids do not follow the order of commits, and neither do transaction ids. So a position in the log is a set of transactions
 * whose events were seen: a snapshot, as text: `xmax.xip.xip`. An event is new if its transaction is visible and not in that set. For one name the
 * order of transaction ids is the order of events, because a transaction writes nothing, and so has no id, before it has the
 * lock of the name; and the next one that gets this lock sees what was committed under it.
 *
 * The log has the last KEPT_EVENTS, and a little more: writers cut it, so that it stays short also after a watcher has died or
 * left.
 *
 * The tables are unlogged. After a crash or a fail-over they are empty: the log is closed, and its watchers get a gap.
 */

import { ID_LENGTH } from '../../../../base/ids.ts'
import { KEPT_EVENTS, WATCHED_FOR_MS } from '../../../../kit/follow-log.ts'
import { quoteText } from '../../client/index.ts'
import { BY_INDEX } from '../../tables/tables.ts'

/** Numbers are shared by all namespaces. It is a prime, so that namespaces which write alternately all come to cut their logs. */
const EVENTS_PER_CUT = 997

/** For statements that run anyway. */
export const isWatched = (s: string, namespace = 'p_namespace') =>
  `EXISTS (SELECT FROM ${s}.logs l WHERE l.namespace = ${namespace} OFFSET 0)`

export const eventTables = (s: string) => `
CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.logs (
  namespace text COLLATE "C" PRIMARY KEY,
  id uuid NOT NULL,
  watched_until timestamptz NOT NULL,
  -- Events of transactions before this one were cut off, as far as the snapshot sees them.
  cut xid8 NOT NULL DEFAULT '0',
  cut_by pg_snapshot NOT NULL DEFAULT '1:1:',
  -- Which transaction has written the row. The server's own note of that, xmin, differs if the row came with a dump: then the
  -- transaction ids in the log mean nothing here.
  written_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
  -- The virtual transaction ids of those that may miss an event; NULL: not looked up yet.
  incomplete_by text[]
);
CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.watchers (
  namespace text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (namespace, channel)
);
CREATE UNLOGGED TABLE IF NOT EXISTS ${s}.events (
  namespace text COLLATE "C" NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  no bigint GENERATED ALWAYS AS IDENTITY,
  log uuid NOT NULL,
  kind text NOT NULL,
  name text NOT NULL,
  id text NOT NULL,
  holder text NOT NULL,
  owner text,
  token bigint,
  -- Of its session: by then the claim is over, or the session was prolonged.
  expires_at timestamptz,
  PRIMARY KEY (namespace, xid, no)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
`

const EVENT =
  'kind text, xid xid8, no bigint, name text, id text, holder text, owner text, token bigint, left_ms double precision'
const snapshot = `(SELECT concat_ws('.', pg_snapshot_xmax(now), (SELECT string_agg(xid::text, '.') FROM pg_snapshot_xip(now) AS xid))
    FROM pg_current_snapshot() AS now)`
const now = `'now', NULL::xid8, NULL::bigint, ${snapshot}, NULL, NULL, NULL, NULL::bigint, NULL::double precision`

export const events = (s: string) => `
-- Cuts off what is more than the log keeps. From the last cut on: before it are only rows that VACUUM has not removed yet, which
-- may be many, and few events of transactions that were open then. It waits for no lock.
CREATE OR REPLACE FUNCTION ${s}.cut_log(p_namespace text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_log ${s}.logs;
  v_cut xid8;
BEGIN
  -- A log that came with a dump is left as it is, so that the next watcher recognises it.
  SELECT * INTO v_log FROM ${s}.logs l
  WHERE l.namespace = p_namespace AND l.xmin = l.written_by::xid FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT e.xid INTO v_cut FROM ${s}.events e WHERE e.namespace = p_namespace
  ORDER BY e.xid DESC, e.no DESC OFFSET ${KEPT_EVENTS} LIMIT 1;
  DELETE FROM ${s}.events e WHERE e.namespace = p_namespace AND e.xid >= v_log.cut AND e.xid < v_cut;
  IF FOUND THEN
    UPDATE ${s}.logs l SET cut = v_cut, cut_by = pg_current_snapshot(), written_by = pg_current_xact_id()
    WHERE l.namespace = p_namespace;
  END IF;
END $$;

-- It waits for no lock: an event too many in a log that another call closes does no harm. It does no work that grows with the
-- log: a call that has a caller runs it. So the events of a log that it closes are left to the next watcher.
CREATE OR REPLACE FUNCTION ${s}.log_event(
  p_namespace text, p_kind text, p_name text, p_attempt text, p_session bigint, p_owner text, p_token bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_log ${s}.logs;
  v_no bigint;
BEGIN
  SELECT * INTO v_log FROM ${s}.logs l WHERE l.namespace = p_namespace;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF v_log.watched_until <= clock_timestamp() THEN
    PERFORM FROM ${s}.logs l WHERE l.namespace = p_namespace AND l.watched_until <= clock_timestamp() FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      DELETE FROM ${s}.logs l WHERE l.namespace = p_namespace;
      DELETE FROM ${s}.watchers w WHERE w.namespace = p_namespace;
      RETURN;
    END IF;
  END IF;
  INSERT INTO ${s}.events (namespace, log, kind, name, id, holder, owner, token, expires_at)
  SELECT p_namespace, v_log.id, p_kind, p_name, left(p_attempt, ${ID_LENGTH}), coalesce(z.holder, ''), p_owner, p_token,
    z.expires_at
  FROM (SELECT) AS one LEFT JOIN ${s}.sessions z ON z.no = p_session
  RETURNING no INTO v_no;
  IF v_no % ${EVENTS_PER_CUT} = 0 THEN
    PERFORM ${s}.cut_log(p_namespace);
  END IF;
  -- Transactions that notify commit one after the other, in the whole server: hence only while there is a listener.
  PERFORM pg_notify(w.channel, 'event') FROM ${s}.watchers w
  WHERE w.namespace = p_namespace AND w.expires_at > clock_timestamp();
END $$;

-- Opens the log or keeps it open. Its id, whether it is complete, a snapshot from which on it is, and in how many milliseconds
-- a session of the namespace may be over (null: there is none). It reads the sessions, which is a small table.
CREATE OR REPLACE FUNCTION ${s}.open_log(p_namespace text, p_channel text)
RETURNS TABLE (log uuid, is_complete boolean, seen text, due_ms double precision) LANGUAGE plpgsql ${BY_INDEX} AS $$
#variable_conflict use_column
DECLARE
  v_until timestamptz := clock_timestamp() + interval '${WATCHED_FOR_MS} milliseconds';
  v_new uuid := gen_random_uuid();
  v_log ${s}.logs;
BEGIN
  PERFORM ${s}.begin_work();
  PERFORM ${s}.limit_waits();
  DELETE FROM ${s}.logs l WHERE l.namespace = p_namespace AND l.xmin <> l.written_by::xid;
  INSERT INTO ${s}.logs AS l (namespace, id, watched_until) VALUES (p_namespace, v_new, v_until)
  ON CONFLICT (namespace) DO UPDATE SET watched_until = greatest(l.watched_until, excluded.watched_until),
    written_by = excluded.written_by
  RETURNING l.* INTO v_log;
  INSERT INTO ${s}.watchers AS w VALUES (p_namespace, p_channel, v_until)
  ON CONFLICT (namespace, channel) DO UPDATE SET expires_at = excluded.expires_at;
  DELETE FROM ${s}.watchers w WHERE w.namespace = p_namespace AND w.expires_at <= clock_timestamp();
  IF v_log.id = v_new THEN
    DELETE FROM ${s}.events e WHERE e.namespace = p_namespace;
  ELSIF v_log.incomplete_by IS DISTINCT FROM '{}' THEN
    -- The transaction that opened it has committed. Those that write since then see the log.
    UPDATE ${s}.logs l SET incomplete_by = ARRAY(
      SELECT DISTINCT k.virtualtransaction FROM pg_catalog.pg_locks k
      WHERE k.locktype = 'relation' AND k.mode = 'RowExclusiveLock' AND k.relation = ${quoteText(`${s}.holders`)}::regclass
        AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
        AND (v_log.incomplete_by IS NULL OR k.virtualtransaction = ANY (v_log.incomplete_by)))
    WHERE l.namespace = p_namespace RETURNING l.* INTO v_log;
  END IF;
  RETURN QUERY SELECT v_log.id, v_log.incomplete_by IS NOT DISTINCT FROM '{}', ${snapshot},
    min(CASE WHEN z.ended IS NULL THEN greatest(0, extract(epoch FROM z.expires_at - clock_timestamp()) * 1000) ELSE 0 END)
      ::double precision
  FROM ${s}.sessions z
  WHERE z.namespace = p_namespace AND (z.ended IS NULL
    OR EXISTS (SELECT FROM ${s}.holders h WHERE h.session = z.no OFFSET 0)
    OR EXISTS (SELECT FROM ${s}.waiters w WHERE w.session = z.no OFFSET 0));
END $$;

-- Events since the snapshot p_seen; with p_until, only what this snapshot sees; only events after p_xid and p_no. The first
-- row is 'now', with the present snapshot in name. No row: the log does not have all that is new.
CREATE OR REPLACE FUNCTION ${s}.read_events(
  p_namespace text, p_log uuid, p_seen xid8[], p_until xid8[], p_xid xid8, p_no bigint, p_limit integer)
RETURNS TABLE (${EVENT}) LANGUAGE plpgsql STABLE ${BY_INDEX} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT ${now} FROM ${s}.logs l
  WHERE l.namespace = p_namespace AND l.id = p_log AND l.cut <= p_seen[1]
    AND p_seen[1] <= pg_snapshot_xmax(pg_current_snapshot()) AND NOT EXISTS (
    SELECT FROM unnest(p_seen[2:]) AS o (xid) WHERE o.xid < l.cut AND pg_visible_in_snapshot(o.xid, l.cut_by));
  IF NOT FOUND THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT n.kind, n.xid, n.no, n.name, n.id, n.holder, n.owner, n.token,
    extract(epoch FROM n.expires_at - clock_timestamp())::double precision * 1000
  FROM (
    (SELECT * FROM ${s}.events e
      WHERE e.namespace = p_namespace AND e.xid >= p_seen[1] AND (e.xid, e.no) > (p_xid, p_no) AND e.log = p_log
        AND (p_until IS NULL OR (e.xid < p_until[1] AND e.xid <> ALL (p_until[2:])))
      ORDER BY e.xid, e.no LIMIT p_limit)
    UNION ALL
    SELECT o.* FROM unnest(p_seen[2:]) AS u (xid) CROSS JOIN LATERAL (
      SELECT * FROM ${s}.events e
      WHERE e.namespace = p_namespace AND e.xid = u.xid AND (e.xid, e.no) > (p_xid, p_no) AND e.log = p_log
        AND (p_until IS NULL OR (e.xid < p_until[1] AND e.xid <> ALL (p_until[2:]))) OFFSET 0) o
  ) AS n ORDER BY n.xid, n.no LIMIT p_limit;
END $$;

-- The current holders, and before them 'now' as in read_events: one picture, of one moment.
CREATE OR REPLACE FUNCTION ${s}.holders_now(p_namespace text, p_prefix text)
RETURNS TABLE (${EVENT}) LANGUAGE plpgsql STABLE ${BY_INDEX} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT ${now};
  RETURN QUERY
  SELECT 'acquired', NULL::xid8, NULL::bigint, h.name, left(h.attempt, ${ID_LENGTH}), z.holder, h.owner, h.token,
    NULL::double precision
  FROM ${s}.holders h CROSS JOIN LATERAL (
    SELECT z.holder FROM ${s}.sessions z
    WHERE z.no = h.session AND z.ended IS NULL AND z.expires_at > clock_timestamp() OFFSET 0) z
  WHERE h.namespace = p_namespace AND h.name >= p_prefix AND starts_with(h.name, p_prefix)
  ORDER BY h.name, h.attempt;
END $$;
`
