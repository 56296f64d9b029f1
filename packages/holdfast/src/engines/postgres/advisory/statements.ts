/** Every statement. What is sent often has a name, so that the server keeps its plan for the connection. */
import { quoteIdentifier, quoteText } from '../client/index.ts'
import { CHANNEL, tellWaiters, waitersOf } from './schema.ts'

export interface Statement {
  readonly text: string
  /** Only on a connection of our own: a name is part of the server's session. */
  readonly name?: string
}

export type Statements = ReturnType<typeof statementsFor>

/** Without limits of its own, but for the TTL; with a plan that does not depend on how small a table was (T83, plans for small tables). */
const SETTINGS = {
  synchronous_commit: 'on',
  default_transaction_isolation: 'read committed',
  default_transaction_read_only: 'off',
  enable_seqscan: 'off',
  // A scan that is switched off, where there is no other way, would count as so expensive that it is compiled first.
  jit: 'off',
  plan_cache_mode: 'force_generic_plan',
  statement_timeout: '0',
  lock_timeout: '0',
  idle_in_transaction_session_timeout: '0',
  transaction_timeout: '0',
  // Each look at the client would set an alarm, at which a stepped clock ends the session early.
  client_connection_check_interval: '0',
}

export function statementsFor(schema: string) {
  const s = quoteIdentifier(schema)
  const number = (n: number) => `$${n}::text::bigint`
  const numbers = (n: number) => `$${n}::text::bigint[]`
  const isMine = `current_setting('holdfast.connection', true) IS NOT DISTINCT FROM $1::text`
  const settings = Object.entries(SETTINGS).map(([name, value]) => `('${name}', '${value}')`)
  const leftMs = `(c.ttl_ms - CASE WHEN a.state = 'idle'
    THEN extract(epoch FROM clock_timestamp() - a.state_change) * 1000 ELSE 0 END)`
  /** Of a record `h`. */
  const isHeld = `EXISTS (SELECT FROM ${s}.advisory_locks me JOIN ${s}.advisory_locks l ON l.pid = me.pid AND l.granted
    WHERE me.key = h.conn AND me.granted AND l.key = h.key)`
  const nowMs = 'extract(epoch FROM clock_timestamp()) * 1000'
  const locks = `WITH locks AS MATERIALIZED (SELECT * FROM ${s}.advisory_locks WHERE granted)`
  const holders = `${s}.advisory_holders h JOIN ${s}.advisory_connections c ON c.conn = h.conn
    JOIN locks me ON me.key = h.conn JOIN locks l ON l.key = h.key AND l.pid = me.pid`
  const shown = (isWanted: string) => `
      SELECT h.name, h.conn::text, h.token::text, (${nowMs})::text, json_strip_nulls(json_build_object(
        'id', h.id, 'holder', c.holder, 'owner', h.owner, 'mode', h.mode, 'note', h.note, 'session', c.session,
        'ttlMs', c.ttl_ms, 'heldForMs', extract(epoch FROM clock_timestamp() - h.since) * 1000,
        'expiresInMs', greatest(0, ${leftMs})))::text
      FROM ${holders} LEFT JOIN LATERAL pg_stat_get_activity(me.pid) a ON true
      WHERE h.namespace = $1::text AND ${isWanted}
      ORDER BY h.name COLLATE "C", h.token`
  return {
    /** conn, ttl: takes the lock by which others see that the connection lives. False if another has it. */
    open: {
      text: `SELECT CASE WHEN pg_try_advisory_lock(${number(1)}) THEN 'open' ELSE 'taken' END,
        set_config('holdfast.connection', $1::text, false), set_config('idle_session_timeout', $2::text, false),
        (SELECT count(set_config(wanted.name, wanted.value, false)) FROM (VALUES ${settings.join(', ')})
          AS wanted (name, value) JOIN pg_catalog.pg_settings USING (name))::text`,
    },
    /** conn: removes what connections that have ended left behind, and an earlier one with the same key. */
    sweep: {
      text: `DELETE FROM ${s}.advisory_connections WHERE conn = ANY (ARRAY(
        SELECT c.conn FROM ${s}.advisory_connections c
        WHERE c.conn = ${number(1)} OR NOT EXISTS (SELECT FROM ${s}.advisory_locks l WHERE l.key = c.conn AND l.granted)
        FOR UPDATE SKIP LOCKED))`,
    },
    /** conn, namespace, public id of the session, holder, ttl */
    register: {
      text: `INSERT INTO ${s}.advisory_connections (conn, namespace, session, holder, ttl_ms)
        VALUES (${number(1)}, $2::text, $3::text, $4::text, $5::text::integer)`,
    },
    /** conn, namespace, up to which token the log is known to be on disk, whether to verify names, releases, acquires */
    apply: {
      name: 'holdfast_apply',
      text: `SELECT ${s}.advisory_apply(${number(1)}, $2::text, ${number(3)}, $4::text::boolean, $5::text::json, $6::text::json)`,
    },
    /**
     * conn, key, slot, up to which token the log is known to be on disk, name, id, note, owner: takes one exclusive lock, for which the
     * slot has a record. If it fails, the lock may be taken all the same: `untake`.
     */
    take: {
      name: 'holdfast_take',
      text: `WITH tried AS MATERIALIZED (
          SELECT CASE WHEN ${isMine} THEN pg_try_advisory_lock(${number(2)})::text ELSE 'gone' END AS got),
        taken AS (
          UPDATE ${s}.advisory_holders h SET key = CASE WHEN got = 'true' THEN ${number(2)} END,
            token = CASE WHEN got = 'true' THEN nextval(${quoteText(`${s}.advisory_tokens`)}) ELSE h.token END,
            since = clock_timestamp(), name = $5::text, id = $6::text, mode = 'exclusive', note = $7::text, owner = $8::text,
            forced = NULL
          FROM tried WHERE h.conn = ${number(1)} AND h.slot = $3::text::integer
            AND (got = 'true' OR (got = 'false' AND h.key <> ${number(2)}))
          RETURNING CASE WHEN got = 'true' THEN h.token END AS token,
            CASE WHEN got = 'true' AND h.token > ${number(4)} THEN (SELECT last_value + log_cnt FROM ${s}.advisory_tokens) END AS known,
            CASE WHEN got = 'true' AND h.token > ${number(4)} THEN pg_logical_emit_message(true, 'holdfast', '') END AS logged)
        SELECT got, token::text, coalesce(known, ${number(4)})::text FROM tried LEFT JOIN taken ON true`,
    },
    /** conn, key, slot: gives up what a failed `take` may have got, and what the slot had */
    untake: {
      text: `WITH cleared AS (UPDATE ${s}.advisory_holders h SET key = NULL WHERE h.conn = ${number(1)} AND h.slot = $3::text::integer)
        SELECT CASE WHEN ${isMine} THEN pg_advisory_unlock(${number(2)})::text ELSE 'gone' END`,
    },
    /** conn, key: gives one exclusive lock back, and tells the processes that wait for it */
    free: {
      name: 'holdfast_free',
      text: `SELECT CASE WHEN NOT ${isMine} THEN 'gone' WHEN pg_advisory_unlock(${number(2)}) THEN ${tellWaiters(number(1), number(2))} ELSE 'released' END`,
    },
    /** conn, key: others that free it tell so from now on; false if one of them is looking at this moment */
    awaitFree: {
      name: 'holdfast_await_free',
      text: `SELECT CASE WHEN ${isMine} THEN pg_try_advisory_lock_shared(${waitersOf(number(2))})::text ELSE 'gone' END`,
    },
    /** conn, keys: the end of that */
    stopAwaiting: {
      text: `SELECT CASE WHEN ${isMine}
        THEN (SELECT count(pg_advisory_unlock_shared(${waitersOf('key')})) FROM unnest(${numbers(2)}) AS key)::text ELSE 'gone' END`,
    },
    /** conn: alive or gone, and then the records that an operator has marked */
    keep: {
      name: 'holdfast_keep',
      text: `SELECT CASE WHEN ${isMine} THEN 'alive' ELSE 'gone' END, NULL, NULL UNION ALL
        SELECT h.id, h.token::text, h.forced FROM ${s}.advisory_holders h
        WHERE h.conn = ${number(1)} AND h.forced IS NOT NULL`,
    },
    /** conn: gives up everything */
    leave: {
      text: `WITH removed AS (DELETE FROM ${s}.advisory_connections c WHERE c.conn = ${number(1)} AND ${isMine})
        SELECT CASE WHEN ${isMine} THEN pg_advisory_unlock_all()::text END`,
    },
    hashtext: { text: 'SELECT hashtext($1::text)::bigint::text' },
    /** namespace, name; one statement, but locks are looked at a moment after the rows */
    show: { text: `${locks} ${shown('h.name = $2::text')}` },
    /** namespace, prefix, the name after which the page begins, the most names; the same */
    list: {
      text: `${locks}, page AS MATERIALIZED (
        SELECT DISTINCT h.name COLLATE "C" AS name FROM ${holders}
        WHERE h.namespace = $1::text AND starts_with(h.name, $2::text) AND h.name COLLATE "C" > $3::text
        ORDER BY 1 LIMIT $4::text::integer)
      ${shown('h.name IN (SELECT p.name FROM page p)')}`,
    },
    /** namespace, the id after which the page begins, the most sessions */
    sessions: {
      text: `SELECT c.session, c.holder, c.ttl_ms::text, ${leftMs}::text
      FROM ${s}.advisory_connections c
      JOIN ${s}.advisory_locks me ON me.key = c.conn AND me.granted
      LEFT JOIN LATERAL pg_stat_get_activity(me.pid) a ON true
      WHERE c.namespace = $1::text AND c.session COLLATE "C" > $2::text
      ORDER BY c.session COLLATE "C" LIMIT $3::text::integer`,
    },
    /** conns and tokens of the holders that were seen, the expiry, the reason: marks them and tells their sessions */
    force: {
      text: `WITH call AS MATERIALIZED (SELECT ${nowMs} < $3::text::double precision AS in_time), marked AS (
        UPDATE ${s}.advisory_holders h SET forced = $4::text
        FROM call, unnest(${numbers(1)}, ${numbers(2)}) AS seen (conn, token)
        WHERE call.in_time AND h.conn = seen.conn AND h.token = seen.token AND ${isHeld} RETURNING h.conn
      )
      SELECT CASE WHEN in_time THEN 'in time' ELSE 'late' END,
        (SELECT count(pg_notify('${CHANNEL}', m.conn::text)) FROM marked m)::text FROM call`,
    },
    /** conns, for how long it may take, tokens: whether all of them have ended; those that have freed the tokens go on (T78, late operators) */
    end: {
      text: `SELECT coalesce(bool_and(pg_terminate_backend(l.pid, $2::text::bigint)), true)
        FROM ${s}.advisory_locks l WHERE l.key = ANY (${numbers(1)}) AND l.granted AND EXISTS (
          SELECT FROM ${s}.advisory_holders h
          WHERE h.conn = l.key AND h.token = ANY (${numbers(3)}) AND ${isHeld})`,
    },
  } satisfies Record<string, Statement>
}
