/**
 * Grants a name whose lock the call has: dead holders are removed (`clear`), then the first waiters are granted for as long as
 * they fit, and those whose session or own time is over are removed (`grant_next`; T20, dead waiters). `due_in` says in how many
 * milliseconds time alone can change something. Functions that may grant return rows as text, for waiters of the caller's process: see claims.
 */
import { ID_LENGTH } from '../../../../base/ids.ts'
import { quoteText } from '../../client/index.ts'

export const grants = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.close_name(p_namespace text, p_name text, p_capacity integer, p_until timestamptz)
RETURNS void LANGUAGE sql AS $$
  SELECT ${s}.must_last();
  INSERT INTO ${s}.names AS n (namespace, name, capacity, closed_until) VALUES (p_namespace, p_name, p_capacity, p_until)
  ON CONFLICT (namespace, name) DO UPDATE SET closed_until = greatest(n.closed_until, excluded.closed_until)
$$;

-- Removes the holders whose session is over; a lock-delay counts from the end of the session's time.
CREATE OR REPLACE FUNCTION ${s}.clear(p_namespace text, p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_dead ${s}.holders;
  v_session ${s}.sessions;
BEGIN
  FOR v_dead IN
    DELETE FROM ${s}.holders h WHERE h.ctid = ANY (ARRAY(
      SELECT d.ctid FROM unnest(p_names) AS u (name), LATERAL (
        SELECT d.ctid FROM ${s}.holders d WHERE d.namespace = p_namespace AND d.name = u.name
          AND NOT EXISTS (SELECT FROM ${s}.sessions z WHERE z.no = d.session AND z.ended IS NULL OFFSET 0) OFFSET 0) d))
    RETURNING h.*
  LOOP
    SELECT * INTO v_session FROM ${s}.sessions z WHERE z.no = v_dead.session;
    PERFORM ${s}.log_event(p_namespace,
      CASE v_session.ended WHEN 'expired' THEN 'expired' WHEN 'closed' THEN 'released' ELSE 'ended' END,
      v_dead.name, v_dead.attempt, v_dead.session, v_dead.owner, v_dead.token);
    IF v_session.ended = 'expired' AND v_dead.lock_delay_ms > 0
      AND v_session.expires_at + v_dead.lock_delay_ms * interval '1 millisecond' > clock_timestamp()
    THEN
      PERFORM ${s}.close_name(p_namespace, v_dead.name, v_dead.capacity,
        v_session.expires_at + v_dead.lock_delay_ms * interval '1 millisecond');
    END IF;
  END LOOP;
END $$;

-- Makes a holder of what waits, or could. The token is drawn under the lock of the name (T67, tokens in the order of grants).
CREATE OR REPLACE FUNCTION ${s}.hold(p_claim ${s}.waiters, p_data text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_token bigint := nextval(${quoteText(`${s}.tokens`)});
BEGIN
  PERFORM ${s}.must_last();
  INSERT INTO ${s}.holders VALUES (p_claim.namespace, p_claim.name, p_claim.attempt, p_claim.session, v_token, p_claim.mode,
    p_claim.weight, p_claim.capacity, p_claim.lock_delay_ms, clock_timestamp(), p_claim.note, p_data, p_claim.owner);
  PERFORM ${s}.log_event(p_claim.namespace, 'acquired', p_claim.name, p_claim.attempt, p_claim.session, p_claim.owner, v_token);
  RETURN v_token;
END $$;

-- Waiters whose session or whose own time is over are removed: under load most grants would go to callers that have gone.
CREATE OR REPLACE FUNCTION ${s}.grant_next(p_namespace text, p_name text, p_channel text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_first ${s}.waiters;
  v_name ${s}.names;
  v_held bigint;
  v_rows text := '';
BEGIN
  LOOP
    SELECT * INTO v_first FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name ORDER BY w.place LIMIT 1;
    EXIT WHEN NOT FOUND;
    IF v_first.until <= clock_timestamp()
      OR NOT EXISTS (SELECT FROM ${s}.sessions z WHERE z.no = v_first.session AND z.ended IS NULL)
    THEN
      DELETE FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name AND w.place = v_first.place;
      PERFORM ${s}.log_event(p_namespace, 'gave-up', p_name, v_first.attempt, v_first.session, v_first.owner, NULL);
      CONTINUE;
    END IF;
    IF v_held IS NULL THEN
      SELECT * INTO v_name FROM ${s}.names n WHERE n.namespace = p_namespace AND n.name = p_name;
      EXIT WHEN v_name.closed_until > clock_timestamp();
      SELECT coalesce(sum(h.weight), 0) INTO v_held
      FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name;
    END IF;
    EXIT WHEN v_held + v_first.weight > v_first.capacity;
    DELETE FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name AND w.place = v_first.place;
    v_rows := v_rows || ${s}.tell_waiter(v_first, p_channel, ${s}.hold(v_first, v_name.data), v_name.data);
    v_held := v_held + v_first.weight;
  END LOOP;
  RETURN v_rows;
END $$;

-- A waiter of the caller's process is told by the answer, every other one by a notification, once the transaction has
-- committed. Without a token: it should look. The secret half of the attempt stays here. What does not fit into a
-- notification is looked up by the process that gets it.
CREATE OR REPLACE FUNCTION ${s}.tell_waiter(p_waiter ${s}.waiters, p_channel text, p_token bigint, p_data text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_message text := json_build_array(p_waiter.session, left(p_waiter.attempt, ${ID_LENGTH}), p_token::text, p_data)::text;
BEGIN
  IF p_waiter.channel = p_channel THEN
    RETURN ',' || json_build_array('handed', p_waiter.attempt, NULL, p_token::text, p_data, NULL, p_waiter.session);
  END IF;
  IF octet_length(v_message) > 7900 THEN
    v_message := json_build_array(p_waiter.session, left(p_waiter.attempt, ${ID_LENGTH}))::text;
  END IF;
  IF p_waiter.channel IS NOT NULL THEN
    PERFORM pg_notify(p_waiter.channel, v_message);
  END IF;
  RETURN '';
END $$;

-- In how many milliseconds time alone may change something: the session of a holder or waiter is over, or the name opens.
-- Null: nothing can. Waiters count because they may hold the name before it is looked at again. Only the first of them do, so
-- that joining a long queue costs no more than a short one; the end of a later one is noticed one look later.
-- In PL/pgSQL, which keeps the plan: to make it takes ten times as long as to run it.
CREATE OR REPLACE FUNCTION ${s}.due_in(p_namespace text, p_name text) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT greatest(0, extract(epoch FROM min(at) - clock_timestamp()) * 1000)::double precision FROM (
    -- The end of a waiter's session changes nothing before it is first, and then it is removed.
    SELECT CASE WHEN z.ended IS NULL AND z.no IS NOT NULL THEN z.expires_at WHEN c.holds THEN clock_timestamp() END AS at
    FROM (
      SELECT h.session, true AS holds FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name
      UNION (SELECT w.session, false FROM ${s}.waiters w
        WHERE w.namespace = p_namespace AND w.name = p_name ORDER BY w.place LIMIT 50)
    ) AS c LEFT JOIN LATERAL (SELECT * FROM ${s}.sessions z WHERE z.no = c.session OFFSET 0) z ON true
    UNION ALL
    SELECT n.closed_until FROM ${s}.names n
    WHERE n.namespace = p_namespace AND n.name = p_name AND n.closed_until > clock_timestamp()
    UNION ALL
    -- The holder's row was deleted by hand.
    SELECT clock_timestamp()
    WHERE EXISTS (SELECT FROM ${s}.waiters w WHERE w.namespace = p_namespace AND w.name = p_name)
      AND NOT EXISTS (SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = p_name)
      AND NOT EXISTS (SELECT FROM ${s}.names n
        WHERE n.namespace = p_namespace AND n.name = p_name AND n.closed_until > clock_timestamp())
  ) AS soon);
END $$;
`
