/** Every statement. All are parameterised and have no name; what could be large or renamed comes back as text. */

import { ID_LENGTH } from '../../base/ids.ts'
import { quoteIdentifier, quoteText } from '../../clients/postgres/index.ts'

export type Statements = ReturnType<typeof statementsFor>

export function statementsFor(schema: string) {
  const s = quoteIdentifier(schema)
  const texts = (n: number) => `$${n}::text::text[]`
  const numbers = (n: number) => `$${n}::text::bigint[]`
  const shown = `kind, name, id, holder, owner, session, ttl_ms::text, mode, weight::text, capacity::text, place::text, note,
    since_ms::text, left_ms::text, lock_delay_ms::text, is_over, at_ms::text`
  const event = 'kind, xid::text, no::text, name, id, holder, owner, token::text, left_ms::text'
  return {
    /** namespace, channel, then the columns of the batch. */
    apply: `SELECT op, attempt, kind, token, data, ms::text, session::text FROM ${s}.apply($1::text, $2::text, ${texts(3)},
      ${texts(4)}, ${texts(5)}, ${numbers(6)}, ${texts(7)}, $8::text::integer[], $9::text::integer[],
      $10::text::double precision[], ${texts(11)}, ${texts(12)}, $13::text::integer[], $14::text::double precision[])`,
    /** As `apply`, for one acquire, and for one release: see `sql/single.ts`. */
    take: `SELECT ${s}.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
    giveBack: `SELECT ${s}.give_back($1, $2, $3, $4, $5, $6, $7)`,
    /** namespace, id, holder, ttl */
    openSession: `SELECT no::text, ttl_ms::text
      FROM ${s}.open_session($1::text, $2::text, $3::text, $4::text::double precision)`,
    /** namespace, id */
    findSession: `SELECT no::text, ttl_ms::text, (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::text, holder
      FROM ${s}.sessions
      WHERE id = $2::text AND namespace = $1::text AND ended IS NULL AND expires_at > clock_timestamp()`,
    /** namespace, session, attempts, names, tokens, those of them that wait */
    keepAlive: `SELECT kind, name, attempt, token, data
      FROM ${s}.keep_alive($1::text, $2::text::bigint, ${texts(3)}, ${texts(4)}, ${texts(5)}, ${texts(6)})`,
    /** namespace, channel, session */
    closeSession: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.close_session($1::text, $2::text, $3::text::bigint)`,
    /** anything: see `clients/postgres/postgres-js.ts` for why it has a parameter */
    sweep: `SELECT ${s}.sweep() WHERE $1::text IS NOT NULL`,
    /** namespace, channel, names that are due, and the sessions, names and attempts of those who wait */
    tend: `SELECT kind, name, attempt, token, data, ms::text, session::text
      FROM ${s}.tend($1::text, $2::text, ${texts(3)}, ${numbers(4)}, ${texts(5)}, ${texts(6)})`,
    notify: 'SELECT pg_notify($1::text, $2::text)',
    /** namespace, channel; see `sql/events.ts` for these and how they make a watch */
    watchLog: `SELECT log::text, due_ms::text FROM ${s}.watch_log($1::text, $2::text)`,
    unwatchLog: `DELETE FROM ${s}.watchers WHERE namespace = $1::text AND channel = $2::text`,
    /** namespace, log, then the position, and limit */
    readLog: `SELECT ${event} FROM ${s}.read_log($1::text, $2::text::uuid, $3::text::xid8, $4::text::xid8[],
      $5::text::pg_snapshot, $6::text::xid8, $7::text::bigint, $8::text::integer)`,
    /** namespace, prefix */
    watchedHolders: `SELECT ${event} FROM ${s}.watched_holders($1::text, $2::text)`,
    snapshot: 'SELECT pg_current_snapshot()::text WHERE $1::text IS NOT NULL',
    /** Of these transactions, or of all if it is null, those that are still writing. */
    writers: `SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
      WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND relation = ${quoteText(`${s}.holders`)}::regclass
        AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
        AND ($1::text IS NULL OR virtualtransaction = ANY (${texts(1)}))`,
    /** namespace, name, token, public id */
    check: `SELECT 1 FROM ${s}.holders h JOIN ${s}.sessions z ON z.no = h.session
      WHERE h.namespace = $1::text AND h.name = $2::text AND h.token = $3::text::bigint AND left(h.attempt, 22) = $4::text
        AND z.ended IS NULL AND z.expires_at > clock_timestamp()`,
    /** namespace, channel, name, ids, reason, expiry */
    forceRelease: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.force_release($1::text, $2::text, $3::text, ${texts(4)}, $5::text, $6::text::double precision)`,
    /** namespace, channel, name, from, to, expiry */
    resize: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.resize($1::text, $2::text, $3::text, $4::text::integer, $5::text::integer, $6::text::double precision)`,
    /** namespace, channel, name, data, expiry */
    forget: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.forget($1::text, $2::text, $3::text, $4::text, $5::text::double precision)`,
    /** namespace, name, whether its waiters are wanted */
    show: `SELECT ${shown} FROM ${s}.show($1::text, ARRAY[$2::text], $3::text::boolean)`,
    /** namespace, prefix, the name after which the page begins, limit; see `sql/looking.ts` */
    list: `SELECT ${shown} FROM ${s}.list_names($1::text, $2::text, $3::text, $4::text::integer)`,
    /** namespace, the id after which the page begins, limit */
    sessions: `SELECT left(id, ${ID_LENGTH}), holder, ttl_ms::text,
      (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::text
      FROM ${s}.sessions
      WHERE namespace = $1::text AND id > $2::text AND ended IS NULL AND expires_at > clock_timestamp()
      ORDER BY id LIMIT $3::text::integer`,
  }
}
