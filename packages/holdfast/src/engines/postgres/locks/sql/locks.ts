/**
 * Locks and durability: the functions that all others stand on. Locks are taken in one order, so that no two calls can wait
 * for each other:
 *
 *   1. names    `lock_names`, all that the call will touch, in the order of their keys. An advisory lock that ends with
 *               the transaction: it writes nothing, and a name that is not used needs no row.
 *   2. sessions `lock_sessions`, in the order of their numbers.
 *
 * The snapshot of each statement is taken after the locks, so it shows all that was committed under them (hence READ
 * COMMITTED, which `begin_work` insists on).
 *
 * Expiry is judged while holding the session's row (T66, racing take-overs). A keep-alive holds it until its commit is durable, so the call that
 * has it sees whether the time was prolonged. A session that was found to be over is marked as `ended` in the same
 * transaction, and nothing brings it back, not even a clock that is set back. Only this way of being over takes
 * something away; to see without the lock that a session is alive is enough to add to what it has, because what is
 * added ends with the session.
 *
 * Every connection caches its plans, and would go on with one that was made while a table was small when it is large (T83, plans for small tables).
 * So the planner has no choice. Functions that clients call have BY_INDEX. A lookup compares the columns with which an index
 * begins, and no column of another index: what must not be looked up by is an expression (`h.session + 0`,
 * `w.name || ''`). OFFSET 0 keeps a lookup from becoming a join, which might read all rows once instead of a few rows often.
 */

/** Keeps our keys apart from those that others make of the same text. */
export const LOCK_SEED = '7305804402384072037'

/** The key of a name's lock. */
export const keyOf = (name: string, namespace = 'p_namespace') =>
  `hashtextextended(${namespace} || chr(31) || ${name}, ${LOCK_SEED})`

/** No call waits for as long in a server that works, and core has cancelled its calls by then, unless told otherwise. */
export const LONGEST_LOCK_WAIT_MS = 5_000

export const locks = (s: string) => `
CREATE OR REPLACE FUNCTION ${s}.begin_work() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'holdfast needs the isolation level READ COMMITTED, and this transaction has %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF001';
  END IF;
  -- A grant must not be undone by a crash of the server (T68, tokens lost in a crash).
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- This transaction must not be undone by a crash.
CREATE OR REPLACE FUNCTION ${s}.must_last() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('holdfast.must_last', 'yes', true);
END $$;

-- A lock that is stuck must not gather processes of the server that wait for it, for callers that have long gone. What is
-- given up is undone (55P03). For locks that are free, which is nearly all of them, this costs nothing.
CREATE OR REPLACE FUNCTION ${s}.limit_waits() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '${LONGEST_LOCK_WAIT_MS}', true);
END $$;

CREATE OR REPLACE FUNCTION ${s}.lock_names(p_namespace text, p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_key bigint;
BEGIN
  FOR v_key IN
    SELECT DISTINCT ${keyOf('name')} FROM unnest(p_names) AS name ORDER BY 1
  LOOP
    IF NOT pg_try_advisory_xact_lock(v_key) THEN
      PERFORM ${s}.limit_waits();
      PERFORM pg_advisory_xact_lock(v_key);
    END IF;
  END LOOP;
END $$;

-- Locks p_always, and those that seem to be over: of p_perhaps, and of all that have a claim on the names. Ends those
-- that really are.
CREATE OR REPLACE FUNCTION ${s}.lock_sessions(p_namespace text, p_names text[], p_always bigint[], p_perhaps bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  -- This reads the whole, small table: no index knows the expiry.
  v_over bigint[] := ARRAY(SELECT z.no FROM ${s}.sessions z WHERE z.ended IS NULL AND z.expires_at <= clock_timestamp());
  v_locked bigint[];
BEGIN
  IF cardinality(p_always) + cardinality(v_over) = 0 THEN
    RETURN;
  END IF;
  PERFORM ${s}.limit_waits();
  v_locked := ARRAY(
    SELECT z.no FROM ${s}.sessions z
    WHERE z.no = ANY (p_always || v_over) AND z.ended IS NULL
      AND (z.no = ANY (p_always) OR (z.expires_at <= clock_timestamp() AND (
      z.no = ANY (p_perhaps)
      OR EXISTS (SELECT FROM unnest(p_names) AS u (name) WHERE EXISTS (
        SELECT FROM ${s}.holders h WHERE h.namespace = p_namespace AND h.name = u.name AND h.session + 0 = z.no OFFSET 0) OFFSET 0)
      OR EXISTS (SELECT FROM ${s}.waiters w
        WHERE w.session = z.no AND w.namespace || '' = p_namespace AND w.name || '' = ANY (p_names) OFFSET 0))))
    ORDER BY z.no
    FOR UPDATE);
  IF cardinality(v_locked) > 0 THEN
    UPDATE ${s}.sessions SET ended = 'expired', ended_at = clock_timestamp()
    WHERE no = ANY (v_locked) AND ended IS NULL AND expires_at <= clock_timestamp();
  END IF;
END $$;
`
