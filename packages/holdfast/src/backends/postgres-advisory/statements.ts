/** Every statement. What is sent often has a name, so that the server keeps its plan for the connection. */
import { quoteIdentifier, quoteText } from '../../clients/postgres/index.ts'

export interface Statement {
  readonly text: string
  /** Only on a connection of our own: a name is part of the server's session. */
  readonly name?: string
}

export type Statements = ReturnType<typeof statementsFor>

export function statementsFor(schema: string) {
  const s = quoteIdentifier(schema)
  const texts = (n: number) => `$${n}::text::text[]`
  const numbers = (n: number) => `$${n}::text::bigint[]`
  const number = (n: number) => `$${n}::text::bigint`
  const claimsWithLocks = `${s}.advisory_claims c
    JOIN ${s}.advisory_sessions z ON z.session = c.session
    JOIN locks me ON me.key = c.conn AND me.granted
    JOIN locks home ON home.key = c.session AND home.granted
    JOIN locks l ON l.key = c.key AND l.pid = me.pid`
  const locks = `WITH locks AS MATERIALIZED (SELECT * FROM ${s}.advisory_locks)`
  const leftMs = `(z.ttl_ms - CASE WHEN a.state = 'idle'
    THEN extract(epoch FROM clock_timestamp() - a.state_change) * 1000 ELSE 0 END)::text`
  // A session of layout 1 has no public id.
  const shown = (isWanted: string) => `
      SELECT CASE WHEN c.token IS NULL THEN 'waiter' ELSE 'holder' END, c.name, c.id, z.holder, c.mode, c.token::text, c.note,
        (extract(epoch FROM clock_timestamp() - c.since) * 1000)::text, ${leftMs},
        c.session::text, c.conn::text, (extract(epoch FROM clock_timestamp()) * 1000)::text,
        c.owner, coalesce(z.id, ''), z.ttl_ms::text
      FROM ${claimsWithLocks} LEFT JOIN LATERAL pg_stat_get_activity(me.pid) a ON true
      WHERE c.namespace = $1::text AND ${isWanted} AND (c.token IS NULL OR l.granted)
      ORDER BY c.token, coalesce(l.waitstart, c.since)`
  return {
    /**
     * slot, conn, key, name, id, note, owner: takes an exclusive lock and a slot that has been used before, with as little as
     * possible around it. The lock is tried when the record has been found, and the token drawn when it was got. No row:
     * it is busy, or the slot is new, or the session is another one; `try` says which.
     */
    grab: {
      name: 'holdfast_grab',
      text: `UPDATE ${s}.advisory_claims c SET key = $3::bigint, token = nextval(${quoteText(`${s}.advisory_tokens`)}),
        since = clock_timestamp(), name = $4, id = $5, mode = 'exclusive', note = $6, owner = $7
      WHERE c.slot = $1::integer AND c.conn = $2::text::bigint AND current_setting('holdfast.connection', true) = $2::text
        AND pg_try_advisory_lock($3::bigint)
      RETURNING c.token::text`,
    },
    /** known */
    settle: { name: 'holdfast_settle', text: `SELECT ${s}.advisory_settle()::text` },
    /** conn, slot, op, key, namespace, name, id, note, owner, up to which token the log is known to be on disk */
    try: {
      name: 'holdfast_try',
      text: `SELECT ${s}.advisory_try($1::bigint, $2::integer, $3, $4::bigint, $5, $6, $7, $8, $9, $10::bigint)`,
    },
    /** conn, key: what is given up most often, without a function. Who does not hold it any more has given it up as well. */
    unlock: {
      name: 'holdfast_unlock',
      text: `SELECT CASE WHEN current_setting('holdfast.connection', true) = $1 THEN
        CASE WHEN pg_advisory_unlock($2::bigint) THEN 'released' ELSE 'released' END ELSE 'gone' END`,
    },
    /** conn, slot, op, key */
    giveUp: {
      name: 'holdfast_give_up',
      text: `SELECT ${s}.advisory_give_up($1::bigint, $2::integer, $3, $4::bigint)`,
    },
    /** conn, namespace, known, then the columns of the batch */
    apply: {
      name: 'holdfast_apply',
      text: `SELECT ${s}.advisory_apply(${number(1)}, $2::text, ${number(3)}, ${texts(4)}, $5::text::integer[], ${numbers(6)},
        ${texts(7)}, ${texts(8)}, ${texts(9)}, ${texts(10)})`,
    },
    /** conn, ttl, keys that are waited for */
    keep: {
      name: 'holdfast_keep',
      text: `SELECT kind, data FROM ${s}.advisory_keep(${number(1)}, $2::text::integer, ${numbers(3)})`,
    },
    /** conn, ttl, holder, channel, namespace, public id */
    openSession: {
      text: `SELECT ${s}.advisory_open_session(${number(1)}, $2::text::integer, $3::text, $4::text, $5::text, $6::text)`,
    },
    /** conn, ttl */
    open: { text: `SELECT ${s}.advisory_open(${number(1)}, $2::text::integer)` },
    /** conn, session, namespace, key, id, name, mode, note, owner, the most waiters that may be there */
    place: {
      name: 'holdfast_place',
      text: `SELECT ${s}.advisory_place(${number(1)}, ${number(2)}, $3::text, ${number(4)}, $5::text, $6::text, $7::text,
        $8::text, $9::text, $10::text::integer)`,
    },
    /** conn, session, key, id, mode, ttl, known */
    take: {
      name: 'holdfast_take',
      text: `SELECT kind, token, now_known FROM ${s}.advisory_take(${number(1)}, ${number(2)}, ${number(3)}, $4::text,
        $5::text, $6::text::integer, ${number(7)})`,
    },
    /** conn */
    leave: { text: `SELECT ${s}.advisory_leave(${number(1)})` },
    /** conns */
    callOff: { name: 'holdfast_call_off', text: `SELECT ${s}.advisory_call_off(${numbers(1)})::text` },
    /** conns, for how long it may take */
    end: { text: `SELECT ${s}.advisory_end(${numbers(1)}, $2::text::bigint)` },
    hashtext: { text: 'SELECT hashtext($1::text)::bigint::text' },
    /** namespace, name; one statement, but locks are looked at a moment after the rows */
    show: { text: `${locks} ${shown('c.name = $2::text')}` },
    /** namespace, prefix, the name after which the page begins, the most names; the same */
    list: {
      text: `${locks}, page AS MATERIALIZED (
        SELECT DISTINCT c.name COLLATE "C" AS name FROM ${claimsWithLocks}
        WHERE c.namespace = $1::text AND starts_with(c.name, $2::text) AND c.name COLLATE "C" > $3::text
          AND (c.token IS NULL OR l.granted)
        ORDER BY 1 LIMIT $4::text::integer)
      ${shown('c.name IN (SELECT p.name FROM page p)')}`,
    },
    /** namespace, the id after which the page begins, the most sessions */
    sessions: {
      text: `SELECT z.id, z.holder, z.ttl_ms::text, ${leftMs}
      FROM ${s}.advisory_sessions z
      JOIN ${s}.advisory_locks home ON home.key = z.session AND home.granted
      LEFT JOIN LATERAL pg_stat_get_activity(home.pid) a ON true
      WHERE z.namespace = $1::text AND z.id COLLATE "C" > $2::text
      ORDER BY z.id COLLATE "C" LIMIT $3::text::integer`,
    },
    /**
     * The sessions and ids of holders that are to go, the expiry and the reason: they are told, and look here when they were not. How
     * many were marked; none after the expiry.
     */
    force: {
      text: `WITH marked AS (
        INSERT INTO ${s}.advisory_forced (session, id, detail)
        SELECT asked.*, $4::text FROM unnest(${numbers(1)}, ${texts(2)}) AS asked (session, id)
        WHERE extract(epoch FROM clock_timestamp()) * 1000 < $3::text::double precision RETURNING session, id, detail
      ), told AS MATERIALIZED (
        SELECT pg_notify(z.channel, m.session::text || ' ' || m.id || ' ' || m.detail)
        FROM marked m JOIN ${s}.advisory_sessions z ON z.session = m.session
      )
      SELECT (SELECT count(*) FROM marked)::text, (SELECT count(*) FROM told)::text`,
    },
    /** Which of these ids hold something still, with the connections that hold it. */
    left: {
      text: `WITH locks AS MATERIALIZED (SELECT * FROM ${s}.advisory_locks)
      SELECT c.id, c.conn::text FROM ${claimsWithLocks} WHERE c.id = ANY (${texts(1)}) AND l.granted`,
    },
    /** session, id */
    unforce: {
      name: 'holdfast_unforce',
      text: `DELETE FROM ${s}.advisory_forced f WHERE f.session = ${number(1)} AND f.id = $2::text`,
    },
  } satisfies Record<string, Statement>
}
