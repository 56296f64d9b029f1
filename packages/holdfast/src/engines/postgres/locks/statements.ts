/** Every statement. All are parameterised; what could be large or renamed comes back as text. */
import { hash } from 'node:crypto'
import { ID_LENGTH } from '../../../base/ids.ts'
import { quoteIdentifier } from '../client/index.ts'
import { acquireFields, releaseFields } from './sql/claims.ts'

export type Statements = ReturnType<typeof statementsFor>

/** After the namespace and the channel. */
const places = (fields: readonly string[]) =>
  ['', '', ...fields].map((_, index) => `$${index + 1}`).join(', ')

export function statementsFor(schema: string) {
  const s = quoteIdentifier(schema)
  const texts = (n: number) => `$${n}::text::text[]`
  const event = 'kind, xid::text, no::text, name, id, holder, owner, token::text, left_ms::text'
  const leftMs = '(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::text'
  const alive = 'ended IS NULL AND expires_at > clock_timestamp()'
  return {
    /** namespace, channel, requests */
    apply: `SELECT ${s}.apply($1, $2, $3)`,
    /** namespace, channel, the fields of one request */
    applyAcquire: `SELECT ${s}.apply_acquire(${places(acquireFields)})`,
    applyRelease: `SELECT ${s}.apply_release(${places(releaseFields)})`,
    /** namespace, id, holder, ttl */
    openSession: `SELECT no::text, ttl_ms::text
      FROM ${s}.open_session($1::text, $2::text, $3::text, $4::text::double precision)`,
    /** namespace, id */
    findSession: `SELECT no::text, ttl_ms::text, ${leftMs}, holder FROM ${s}.sessions
      WHERE id = $2::text AND namespace = $1::text AND ${alive}`,
    /** namespace, session, attempts, names, tokens, the attempts among them that wait */
    keepAlive: `SELECT kind, name, attempt, token, data
      FROM ${s}.keep_alive($1::text, $2::text::bigint, ${texts(3)}, ${texts(4)}, ${texts(5)}, ${texts(6)})`,
    /** namespace, channel, session */
    endSession: `SELECT ${s}.end_session($1::text, $2::text, $3::text::bigint)`,
    /** anything: see `engines/postgres/client/postgres-js.ts` for why it has a parameter */
    sweep: `SELECT ${s}.sweep() WHERE $1::text IS NOT NULL`,
    /** namespace, channel, names that are due, and the sessions, names and attempts of the waiters that ask */
    look: `SELECT ${s}.look($1::text, $2::text, ${texts(3)}, $4::text::bigint[], ${texts(5)}, ${texts(6)})`,
    notify: 'SELECT pg_notify($1::text, $2::text)',
    /** namespace, channel; see `sql/event-log.ts` for these and how they make a watch */
    openLog: `SELECT log::text, is_complete, seen, due_ms::text FROM ${s}.open_log($1::text, $2::text)`,
    leaveLog: `DELETE FROM ${s}.watchers WHERE namespace = $1::text AND channel = $2::text`,
    /** namespace, log, then the position, and limit */
    readEvents: `SELECT ${event} FROM ${s}.read_events($1::text, $2::text::uuid, $3::text::xid8[], $4::text::xid8[],
      $5::text::xid8, $6::text::bigint, $7::text::integer)`,
    /** namespace, prefix */
    holdersNow: `SELECT ${event} FROM ${s}.holders_now($1::text, $2::text)`,
    /** namespace, name, token, public id */
    check: `SELECT 1 FROM ${s}.holders h JOIN ${s}.sessions z ON z.no = h.session
      WHERE h.namespace = $1::text AND h.name = $2::text AND h.token = $3::text::bigint
        AND left(h.attempt, ${ID_LENGTH}) = $4::text AND ${alive}`,
    /** namespace, channel, name, ids, reason, expiry */
    forceRelease: `SELECT ${s}.release_by_force($1::text, $2::text, $3::text, ${texts(4)}, $5::text,
      $6::text::double precision)`,
    /** namespace, channel, name, from, to, expiry */
    resize: `SELECT ${s}.change_capacity($1::text, $2::text, $3::text, $4::text::integer, $5::text::integer,
      $6::text::double precision)`,
    /** namespace, channel, name, data, expiry */
    forget: `SELECT ${s}.forget_data($1::text, $2::text, $3::text, $4::text, $5::text::double precision)`,
    /** namespace, name, whether its waiters are wanted */
    state: `SELECT s::text FROM ${s}.states($1::text, ARRAY[$2::text], $3::text::boolean) AS s`,
    /** namespace, prefix, the name after which the page begins, limit */
    list: `SELECT s::text FROM ${s}.list_states($1::text, $2::text, $3::text, $4::text::integer) AS s`,
    /** namespace, the id after which the page begins, limit */
    sessions: `SELECT left(id, ${ID_LENGTH}), holder, ttl_ms::text, ${leftMs} FROM ${s}.sessions
      WHERE namespace = $1::text AND id > $2::text AND ${alive} ORDER BY id LIMIT $3::text::integer`,
  }
}

/** Statements that are sent all the time: names for them, by their text. The same text has the same name in all processes. */
export function namesOf(sql: Statements): ReadonlyMap<string, string> {
  const frequent = [sql.apply, sql.applyAcquire, sql.applyRelease, sql.keepAlive]
  return new Map(frequent.map((text) => [text, `holdfast_${hash('sha256', text).slice(0, 24)}`]))
}
