/**
 * Claims of sessions: one call for a batch, each request with its own answer, none of which raises. An acquire or a release that
 * is alone has a call of its own, `apply_acquire` or `apply_release`, with parameters instead of an array: it takes the same
 * locks, and costs the server a quarter.
 *
 *   g  acquire   granted | busy | queued | queue-full | late | abandoned | session-gone | mismatch (the capacity, in data)
 *   r  release   released | not-held
 *   a  abandon   abandoned
 *   d  setData   stored | not-held
 *
 * Answers are rows in JSON, each after a comma: op, attempt, kind, token, data, ms, session. `handed` is a grant to a waiter
 * of the caller's process; without a token this waiter should look.
 *
 * Failures between the steps of a call: send · lock · judge · write · commit · answer.
 *   Crash or error before the commit: nothing happened. Crash or lost answer after it: a claim is the session's and ends
 *   with it; asked again, the attempt finds its own row and the same token. A cancelled wait for a standby counts as a
 *   lost answer. A pause anywhere: the locks are held meanwhile, time is read after they are won, and belief counts
 *   from the session's last prolongation, which is older.
 *   A session that ends between the look at it and the commit: the claim is over as soon as it is there (see locks).
 *   Released and granted to the next are one transaction: there is no moment in which the name is free for others.
 *   Abandon leaves its mark under the lock of the name, which a late request for the same attempt takes first (T73, late originals).
 *
 * Rows come and go thousands of times a second, and leave entries in the indexes. A plain index scan marks those that
 * it found dead, so that the next one passes over them; a bitmap scan does not, and would become slower with every call.
 */
import { quoteText } from '../../client/index.ts'
import { BY_INDEX } from '../../tables/tables.ts'
import { isWatched } from './event-log.ts'
import { keyOf } from './locks.ts'
import { REQUEST } from './tables.ts'

/** The requests of `apply`. */
const batch = 'unnest(p_requests) WITH ORDINALITY'

/** Fields of an acquire and of a release, as parameters. */
const ACQUIRE = REQUEST.filter(([field]) => field !== 'op' && field !== 'token')
const RELEASE = REQUEST.filter(([field]) => ['name', 'attempt', 'session', 'token'].includes(field))
type Fields = typeof ACQUIRE

/** In the order in which `apply_acquire` and `apply_release` take them. */
export const acquireFields = ACQUIRE.map(([field]) => field)
export const releaseFields = RELEASE.map(([field]) => field)

const parameters = (fields: Fields) => fields.map(([field, type]) => `p_${field} ${type}`).join(', ')
/** The request of these parameters, as of the type in `tables.ts`. */
const requestOf = (s: string, op: string, fields: Fields) => {
  const values = REQUEST.map((field) =>
    field[0] === 'op' ? `'${op}'` : fields.includes(field) ? `p_${field[0]}` : 'NULL',
  )
  return `ROW(${values.join(', ')})::${s}.request`
}
const single = `(SELECT ${ACQUIRE.map(([field]) => `p_${field} AS ${field}`).join(', ')})`

/** An answer, and its key. The event is logged here, so that a statement needs no loop over its rows. */
const answered = (s: string, op: string, event: string, answer: string) => `
      ',' || json_build_array('${op}', h.attempt, ${answer}) AS answer, '${op}' || h.attempt AS key, CASE WHEN ${isWatched(s)}
        THEN ${s}.log_event(p_namespace, '${event}', h.name, h.attempt, h.session, h.owner, h.token) END AS logged`

/**
 * For a call that grants nothing, closes nothing and stores nothing: its commit need not wait for the disk. The call that grants
 * the name next waits for it, and the log up to there includes this call. After a crash that lost it, what was released or
 * abandoned is there again, and ends with its session, or at the next keep-alive, which does not list it; a waiter has lost its
 * position, and asks anew.
 */
const relaxCommit = "set_config('synchronous_commit', 'off', true)"

/** The answer of a release, and the name if there are waiters. */
const released = (s: string) => `RETURNING ${answered(s, 'r', 'released', "'released'")},
        CASE WHEN EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = h.name OFFSET 0)
          THEN h.name END AS name`

/** Releases what is held. */
const release = (s: string, requests: string) => `
      DELETE FROM ${s}.holders h WHERE h.ctid = ANY (ARRAY(
        SELECT f.ctid FROM ${requests} AS r, LATERAL (
          SELECT f.ctid FROM ${s}.holders f WHERE f.namespace = p_namespace AND f.name = r.name AND f.attempt = r.attempt
            AND f.session + 0 = r.session AND f.token::text = r.token OFFSET 0) f
        WHERE r.op = 'r' AND r.ms = 0 AND EXISTS (
          SELECT FROM ${s}.sessions z
          WHERE z.no = r.session AND z.ended IS NULL AND z.expires_at > clock_timestamp() OFFSET 0)))
      ${released(s)}`

/** Grants names that are free. */
const grantFree = (s: string, requests: string) => `
      INSERT INTO ${s}.holders AS h
      SELECT p_namespace, r.name, r.attempt, r.session, nextval(${quoteText(`${s}.tokens`)}), r.mode, r.weight, r.capacity,
        r.ms, clock_timestamp(), r.text, n.data, r.owner
      FROM ${requests} AS r
      LEFT JOIN LATERAL (
        SELECT n.data, n.closed_until FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = r.name OFFSET 0) n ON true
      WHERE EXISTS (
          SELECT FROM ${s}.sessions z
          WHERE z.no = r.session AND z.namespace = p_namespace AND z.ended IS NULL AND z.expires_at > clock_timestamp()
            AND (NOT z.has_marks OR NOT EXISTS (
              SELECT FROM ${s}.marks m WHERE m.session = r.session AND m.attempt = r.attempt OFFSET 0)) OFFSET 0)
        AND (n.closed_until IS NULL OR n.closed_until <= clock_timestamp())
        AND (r.wait_ms IS NULL OR statement_timestamp() + r.wait_ms * interval '1 millisecond' > clock_timestamp())
        AND NOT EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = r.name OFFSET 0)
        AND NOT EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = r.name OFFSET 0)
      RETURNING ${answered(s, 'g', 'acquired', "'granted', h.token::text, h.previous_data")}`

/** How each call begins, and how it ends if it has granted nothing by the short way. */
const begin = (s: string) => `
  IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') <> 'on' THEN
    PERFORM ${s}.begin_work();
  END IF;`
const relaxIfPossible = `
  IF current_setting('holdfast.must_last', true) IS DISTINCT FROM 'yes' THEN
    PERFORM ${relaxCommit};
  END IF;`
const lockOne = (s: string) => `
  IF NOT pg_try_advisory_xact_lock(${keyOf('p_name')}) THEN
    PERFORM ${s}.lock_names(p_namespace, ARRAY[p_name]);
  END IF;`
const SETTINGS = `SET plan_cache_mode = force_generic_plan ${BY_INDEX}`

export const claims = (s: string) => `
-- Nearly all requests are done by one of two statements: the holder releases, or the name is free. The others are settled.
-- Each expression costs half a microsecond, and an array of requests fifty.
CREATE OR REPLACE FUNCTION ${s}.apply_acquire(p_namespace text, p_channel text, ${parameters(ACQUIRE)}) RETURNS text
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_rows text;
  v_key text;
  v_logged text;
BEGIN${begin(s)}${lockOne(s)}
  ${grantFree(s, single)} INTO v_rows, v_key, v_logged;
  IF v_rows IS NULL THEN
    v_rows := ${s}.settle(p_namespace, p_channel, '{}', ARRAY[${requestOf(s, 'g', ACQUIRE)}]);${relaxIfPossible}
  END IF;
  RETURN v_rows;
END $$;

CREATE OR REPLACE FUNCTION ${s}.apply_release(p_namespace text, p_channel text, ${parameters(RELEASE)}) RETURNS text
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_rows text;
  v_key text;
  v_logged text;
  v_name text;
BEGIN${begin(s)}${lockOne(s)}
  DELETE FROM ${s}.holders h
  WHERE h.namespace = p_namespace AND h.name = p_name AND h.attempt = p_attempt AND h.session + 0 = p_session
    AND h.token::text = p_token AND EXISTS (
      SELECT FROM ${s}.sessions z WHERE z.no = p_session AND z.ended IS NULL AND z.expires_at > clock_timestamp() OFFSET 0)
  ${released(s)} INTO v_rows, v_key, v_logged, v_name;
  IF v_rows IS NULL THEN
    v_rows := ${s}.settle(p_namespace, p_channel, '{}', ARRAY[${requestOf(s, 'r', RELEASE)}]);
  ELSIF v_name IS NOT NULL THEN
    v_rows := v_rows || ${s}.settle(p_namespace, p_channel, ARRAY[v_name], '{}');
  END IF;${relaxIfPossible}
  RETURN v_rows;
END $$;

CREATE OR REPLACE FUNCTION ${s}.apply(p_namespace text, p_channel text, p_requests ${s}.request[]) RETURNS text
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_granted text;
  v_released text;
  v_done text[];
  v_names text[];
  v_left ${s}.request[];
  v_rows text;
BEGIN${begin(s)}
  PERFORM ${s}.lock_names(p_namespace, ARRAY(SELECT r.name FROM unnest(p_requests) AS r));
  IF cardinality(p_requests) > 1 THEN
    WITH done AS (${release(s, batch)})
    SELECT string_agg(answer, ''), array_agg(key), array_agg(name) FROM done INTO v_released, v_done, v_names;
    -- Of several requests for the same name, one at most finds it free.
    WITH done AS (${grantFree(s, `(SELECT DISTINCT ON (name) * FROM ${batch} AS u WHERE u.op = 'g' ORDER BY name, ordinality)`)})
    SELECT string_agg(answer, ''), v_done || array_agg(key) FROM done INTO v_granted, v_done;
  END IF;
  v_rows := concat(v_released, v_granted);
  v_names := array_remove(v_names, NULL);
  v_left := ARRAY(SELECT r FROM unnest(p_requests) AS r WHERE (r.op || r.attempt = ANY (v_done)) IS NOT TRUE);
  IF cardinality(v_left) > 0 OR cardinality(v_names) > 0 THEN
    v_rows := v_rows || ${s}.settle(p_namespace, p_channel, v_names, v_left);
  END IF;
  IF v_granted IS NULL THEN${relaxIfPossible}
  END IF;
  RETURN v_rows;
END $$;

-- The rest of a batch, one request after the other, with the names locked. p_released: names that waiters can have now.
CREATE OR REPLACE FUNCTION ${s}.settle(p_namespace text, p_channel text, p_released text[], p_requests ${s}.request[])
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_names text[] := ARRAY(SELECT DISTINCT r.name FROM unnest(p_requests) AS r) || p_released;
  v_name text;
  v_request ${s}.request;
  v_rows text := '';
BEGIN
  PERFORM ${s}.lock_sessions(p_namespace, v_names, ARRAY(SELECT r.session FROM unnest(p_requests) AS r WHERE r.op = 'a'),
    ARRAY(SELECT r.session FROM unnest(p_requests) AS r));
  PERFORM ${s}.clear(p_namespace, v_names);
  FOREACH v_name IN ARRAY v_names LOOP
    v_rows := v_rows || ${s}.grant_next(p_namespace, v_name, p_channel);
  END LOOP;
  FOREACH v_request IN ARRAY p_requests LOOP
    IF v_request.op = 'g' THEN
      v_rows := v_rows || ${s}.claim(p_namespace, p_channel, v_request);
    ELSIF v_request.op = 'd' THEN
      v_rows := v_rows || ${s}.store_data(p_namespace, v_request);
    ELSE
      v_rows := v_rows || ${s}.drop_claim(p_namespace, p_channel, v_request);
    END IF;
  END LOOP;
  RETURN v_rows;
END $$;

CREATE OR REPLACE FUNCTION ${s}.answer(
  p_request ${s}.request, p_kind text, p_token bigint DEFAULT NULL, p_data text DEFAULT NULL, p_ms double precision DEFAULT NULL)
RETURNS text LANGUAGE sql STABLE AS $$
  SELECT ',' || json_build_array(p_request.op, p_request.attempt, p_kind, p_token::text, p_data, p_ms)
$$;

-- One acquire on a name that is locked, cleared and granted to its waiters: what is there counts.
CREATE OR REPLACE FUNCTION ${s}.claim(p_namespace text, p_channel text, p_request ${s}.request) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_found record;
  v_own ${s}.holders;
  v_wish ${s}.waiters;
BEGIN
  SELECT
    (SELECT z.ended IS NULL FROM ${s}.sessions z WHERE z.no = p_request.session AND z.namespace = p_namespace) AS is_alive,
    EXISTS (SELECT FROM ${s}.marks m WHERE m.session = p_request.session AND m.attempt = p_request.attempt) AS has_mark,
    EXISTS (SELECT FROM ${s}.waiters w
      WHERE w.session = p_request.session AND w.attempt = p_request.attempt
        AND w.namespace || '' = p_namespace AND w.name || '' = p_request.name) AS waits,
    EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_request.name) AS is_waited_for,
    (SELECT coalesce(sum(h.weight), 0) FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_request.name) AS held,
    coalesce(
      (SELECT h.capacity FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_request.name LIMIT 1),
      (SELECT w.capacity FROM ${s}.waiters w
        WHERE w.namespace = p_namespace AND w.name = p_request.name ORDER BY w.place LIMIT 1)) AS capacity,
    (SELECT n.data FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_request.name) AS data,
    (SELECT n.closed_until FROM ${s}.names n
      WHERE n.namespace = p_namespace AND n.name = p_request.name AND n.closed_until > clock_timestamp()) AS closed_until
  INTO v_found;
  IF v_found.is_alive IS NOT TRUE THEN
    RETURN ${s}.answer(p_request, 'session-gone');
  END IF;
  IF v_found.has_mark THEN
    RETURN ${s}.answer(p_request, CASE WHEN p_request.waits THEN 'abandoned' ELSE 'busy' END);
  END IF;
  SELECT * INTO v_own FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_request.name
    AND h.attempt = p_request.attempt AND h.session + 0 = p_request.session;
  IF FOUND THEN
    RETURN ${s}.answer(p_request, 'granted', v_own.token, v_own.previous_data);
  END IF;
  v_wish := ROW(p_namespace, p_request.name, 0, p_request.attempt, p_request.session, p_request.mode, p_request.weight,
    p_request.capacity, p_request.ms, clock_timestamp(), p_request.text, p_channel, p_request.owner,
    statement_timestamp() + p_request.wait_ms * interval '1 millisecond');
  -- The caller has gone meanwhile, and abandons the attempt.
  IF v_wish.until <= clock_timestamp() THEN
    RETURN ${s}.answer(p_request, 'late');
  END IF;
  -- A waiter keeps its position, whatever has become of the capacity; if it could be granted, it would hold by now.
  IF NOT v_found.waits THEN
    IF v_found.capacity <> p_request.capacity THEN
      RETURN ${s}.answer(p_request, 'mismatch', NULL, v_found.capacity::text);
    END IF;
    IF v_found.closed_until IS NULL AND NOT v_found.is_waited_for AND v_found.held + p_request.weight <= p_request.capacity THEN
      RETURN ${s}.answer(p_request, 'granted', ${s}.hold(v_wish, v_found.data), v_found.data);
    END IF;
    -- Sessions that were over have been marked as ended. A waiter whose own time is over counts until it is first.
    IF p_request.waits AND p_request.max_waiters IS NOT NULL AND (
      SELECT count(*) FROM (
        SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_request.name
          AND EXISTS (SELECT FROM ${s}.sessions z WHERE z.no = w.session AND z.ended IS NULL OFFSET 0)
        LIMIT p_request.max_waiters) AS queued) >= p_request.max_waiters
    THEN
      RETURN ${s}.answer(p_request, 'queue-full');
    END IF;
    IF p_request.waits THEN
      v_wish.place := nextval(${quoteText(`${s}.places`)});
      INSERT INTO ${s}.waiters SELECT v_wish.*;
      PERFORM ${s}.log_event(p_namespace, 'waiting', p_request.name, p_request.attempt, p_request.session, p_request.owner, NULL);
    END IF;
  END IF;
  IF p_request.waits THEN
    RETURN ${s}.answer(p_request, 'queued', p_ms => ${s}.due_in(p_namespace, p_request.name));
  END IF;
  RETURN ${s}.answer(p_request, 'busy',
    p_ms => extract(epoch FROM v_found.closed_until - clock_timestamp())::double precision * 1000);
END $$;

CREATE OR REPLACE FUNCTION ${s}.store_data(p_namespace text, p_request ${s}.request) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_held ${s}.holders;
BEGIN
  SELECT * INTO v_held FROM ${s}.holders h
  WHERE h.namespace = p_namespace AND h.name = p_request.name AND h.attempt = p_request.attempt
    AND h.session + 0 = p_request.session AND h.token::text = p_request.token;
  IF NOT FOUND THEN
    RETURN ${s}.answer(p_request, 'not-held');
  END IF;
  PERFORM ${s}.must_last();
  INSERT INTO ${s}.names AS n (namespace, name, capacity, data)
  VALUES (p_namespace, p_request.name, v_held.capacity, p_request.text)
  ON CONFLICT (namespace, name) DO UPDATE SET data = excluded.data;
  PERFORM ${s}.log_event(p_namespace, 'data', v_held.name, v_held.attempt, v_held.session, v_held.owner, v_held.token);
  RETURN ${s}.answer(p_request, 'stored');
END $$;

-- One release or abandon. What was over has been cleared, so what is found is alive.
CREATE OR REPLACE FUNCTION ${s}.drop_claim(p_namespace text, p_channel text, p_request ${s}.request) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  v_held ${s}.holders;
  v_waiter ${s}.waiters;
  v_rows text := '';
BEGIN
  IF p_request.op = 'a' THEN
    INSERT INTO ${s}.marks SELECT z.no, p_request.attempt, 'abandoned' FROM ${s}.sessions z
    WHERE z.no = p_request.session AND z.namespace = p_namespace AND z.ended IS NULL
    ON CONFLICT DO NOTHING;
    UPDATE ${s}.sessions z SET has_marks = true WHERE z.no = p_request.session AND NOT z.has_marks;
    DELETE FROM ${s}.waiters w
    WHERE w.session = p_request.session AND w.attempt = p_request.attempt
      AND w.namespace || '' = p_namespace AND w.name || '' = p_request.name
    RETURNING w.* INTO v_waiter;
    IF FOUND THEN
      PERFORM ${s}.log_event(p_namespace, 'gave-up', v_waiter.name, v_waiter.attempt, v_waiter.session, v_waiter.owner, NULL);
    END IF;
  END IF;
  DELETE FROM ${s}.holders h
  WHERE h.namespace = p_namespace AND h.name = p_request.name AND h.attempt = p_request.attempt
    AND h.session + 0 = p_request.session AND (p_request.op = 'a' OR h.token::text = p_request.token)
  RETURNING h.* INTO v_held;
  IF FOUND THEN
    PERFORM ${s}.log_event(p_namespace, 'released', v_held.name, v_held.attempt, v_held.session, v_held.owner, v_held.token);
    IF p_request.ms > 0 THEN
      -- A release that keeps the name closed grants it to no waiter, but the first one must know when to ask again.
      PERFORM ${s}.close_name(p_namespace, v_held.name, v_held.capacity,
        clock_timestamp() + p_request.ms * interval '1 millisecond');
      v_rows := ${s}.tell_waiter((SELECT w FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = v_held.name
        ORDER BY w.place LIMIT 1), p_channel, NULL, NULL);
    END IF;
  END IF;
  RETURN ${s}.answer(p_request, CASE WHEN p_request.op = 'a' THEN 'abandoned' WHEN v_held.name IS NULL THEN 'not-held'
    ELSE 'released' END) || v_rows || ${s}.grant_next(p_namespace, p_request.name, p_channel);
END $$;
`
