/** The table of idempotency keys and its functions. */
import { quoteText } from '../client/index.ts'
import { BY_INDEX, READ_AND_WRITE, type TablePart } from '../tables/tables.ts'
import { ON_DISK } from './durable.ts'

/** A look at a key has a connection meanwhile. It is given up after this, and repeated if the caller still waits. */
const LONGEST_LOCK_WAIT_MS = 1_000

/**
 * `idempotency_claim` locks the key's row, also one that did not exist, and judges it only then: a renewal and a takeover
 * meet at the row. The token is drawn after that, so tokens are in the order of claims (T67, tokens in the order of grants). In PL/pgSQL every statement
 * sees what was committed while the one before waited, under READ COMMITTED; under other levels the server says 40001.
 *
 * `begun_before`: another caller may have begun the work under an earlier claim. It stays until there is an outcome,
 * through every claim and every giving back. An outcome is never replaced.
 */
export const keyTables: TablePart = {
  part: 'idempotency',
  version: 1,
  relations: { idempotency: READ_AND_WRITE, idempotency_tokens: ['USAGE'] },
  printedBy: 'postgresLockfreeSchema()',
  sql: (s) => `
CREATE TABLE IF NOT EXISTS ${s}.idempotency (
  scope        text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  state        text NOT NULL CHECK (state IN ('new', 'working', 'done', 'failed')),
  attempt      text COLLATE "C" NOT NULL,
  token        bigint,
  payload      text COLLATE "C",
  body         text,
  lease_until  timestamptz,
  expires_at   timestamptz NOT NULL,
  begun_before boolean NOT NULL DEFAULT false,
  PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS idempotency_by_expiry ON ${s}.idempotency (expires_at);
CREATE SEQUENCE IF NOT EXISTS ${s}.idempotency_tokens CACHE 1;
CREATE OR REPLACE FUNCTION ${s}.idempotency_claim(the_scope text, the_key text, the_payload text, the_attempt text,
  ttl interval, keep interval, OUT kind text, OUT claim_token bigint, OUT answer text, OUT left_ms double precision)
LANGUAGE plpgsql ${BY_INDEX} AS $$
DECLARE
  found_row record;
  at timestamptz;
  is_takeover boolean;
BEGIN
  -- A claim that a crash or a fail-over could take back would let its token be drawn twice (T68, tokens lost in a crash).
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  -- The caller may have gone meanwhile, and a process of the server would go on waiting.
  PERFORM set_config('lock_timeout', '${LONGEST_LOCK_WAIT_MS}', true);
  INSERT INTO ${s}.idempotency (scope, key, state, attempt, expires_at)
  VALUES (the_scope, the_key, 'new', the_attempt, clock_timestamp()) ON CONFLICT DO NOTHING;
  SELECT * INTO found_row FROM ${s}.idempotency i WHERE i.scope = the_scope AND i.key = the_key FOR UPDATE;
  IF NOT FOUND THEN
    -- Another caller has given it back in between.
    kind := 'busy';
    left_ms := 0;
    RETURN;
  END IF;
  at := clock_timestamp();
  IF found_row.state IN ('done', 'failed') AND found_row.expires_at > at THEN
    kind := CASE WHEN found_row.payload IS DISTINCT FROM the_payload THEN 'reused' ELSE found_row.state END;
    answer := CASE WHEN kind <> 'reused' THEN found_row.body END;
    RETURN;
  ELSIF found_row.state = 'working' AND found_row.payload IS DISTINCT FROM the_payload
    AND (found_row.lease_until > at OR found_row.expires_at > at) THEN
    kind := 'reused';
    RETURN;
  ELSIF found_row.state = 'working' AND found_row.attempt <> the_attempt AND found_row.lease_until > at THEN
    kind := 'busy';
    left_ms := extract(epoch FROM found_row.lease_until - at) * 1000;
    RETURN;
  END IF;
  is_takeover := found_row.state = 'working' AND (found_row.attempt <> the_attempt OR found_row.begun_before);
  kind := CASE WHEN is_takeover THEN 'taken-over' ELSE 'claimed' END;
  claim_token := nextval(${quoteText(`${s}.idempotency_tokens`)});
  UPDATE ${s}.idempotency i SET state = 'working', attempt = the_attempt, token = claim_token, payload = the_payload,
    body = NULL, lease_until = clock_timestamp() + ttl, expires_at = clock_timestamp() + ttl + keep,
    begun_before = is_takeover
  WHERE i.scope = the_scope AND i.key = the_key;
END
$$;
`,
}

export function keyStatements(s: string) {
  const own = 'scope = $1::text AND key = $2::text AND attempt = $3::text'
  const ms = (parameter: string) => `${parameter}::text::double precision * interval '1 millisecond'`
  return {
    claim: `
      SELECT kind, claim_token::text, answer, left_ms::text FROM ${s}.idempotency_claim($1::text, $2::text, $3::text, $4::text,
        ${ms('$5')}, ${ms('$6')})`,
    extend: `
      UPDATE ${s}.idempotency SET lease_until = CASE WHEN state = 'working' THEN clock_timestamp() + ${ms('$4')} END,
        expires_at = CASE WHEN state = 'working'
          THEN greatest(expires_at, clock_timestamp() + ${ms('$4')} + ${ms('$5')}) ELSE expires_at END
      WHERE ${own} AND (state = 'done' OR state = 'working' AND lease_until > clock_timestamp()) RETURNING 1, ${ON_DISK}`,
    settle: `
      UPDATE ${s}.idempotency SET lease_until = NULL,
        state = CASE WHEN state = 'working' THEN $4::text ELSE state END,
        body = CASE WHEN state = 'working' THEN $5::text ELSE body END,
        expires_at = CASE WHEN state = 'working' THEN clock_timestamp() + ${ms('$6')} ELSE expires_at END
      WHERE ${own} RETURNING state, body, ${ON_DISK}`,
    abandon: `
      WITH forgotten AS (
        DELETE FROM ${s}.idempotency WHERE ${own} AND state = 'working' AND NOT ($4::text::boolean OR begun_before))
      UPDATE ${s}.idempotency SET lease_until = CASE WHEN state = 'working' THEN clock_timestamp() END,
        expires_at = CASE WHEN state = 'working'
          THEN greatest(expires_at, clock_timestamp() + ${ms('$5')}) ELSE expires_at END
      WHERE ${own} AND (state <> 'working' OR $4::text::boolean OR begun_before) RETURNING state, body, ${ON_DISK}`,
    prune: `
      WITH old AS (
        SELECT scope, key FROM ${s}.idempotency
        WHERE expires_at <= statement_timestamp()
          AND (lease_until IS NULL OR lease_until <= statement_timestamp())
        ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED),
      gone AS (DELETE FROM ${s}.idempotency i USING old WHERE i.scope = old.scope AND i.key = old.key RETURNING 1)
      SELECT count(*)::text FROM gone`,
  }
}
