/** Every statement. All are parameterised and have no name; what could be large or renamed comes back as text. */
import { quoteIdentifier } from '../../clients/postgres/index.ts'

export type Statements = ReturnType<typeof statementsFor>

export function statementsFor(schema: string) {
  const s = quoteIdentifier(schema)
  const texts = (n: number) => `$${n}::text::text[]`
  const numbers = (n: number) => `$${n}::text::bigint[]`
  const now = '(extract(epoch FROM clock_timestamp()) * 1000)::text'
  return {
    /** namespace, channel, then the columns of the batch. */
    apply: `SELECT op, attempt, kind, token, data, ms::text, session::text FROM ${s}.apply($1::text, $2::text, ${texts(3)},
      ${texts(4)}, ${texts(5)}, ${numbers(6)}, ${texts(7)}, $8::text::integer[], $9::text::integer[],
      $10::text::double precision[], ${texts(11)})`,
    /** As `apply`, for one acquire, and for one release: see `sql/single.ts`. */
    take: `SELECT ${s}.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    giveBack: `SELECT ${s}.give_back($1, $2, $3, $4, $5, $6, $7)`,
    /** namespace, id, holder, ttl */
    openSession: `SELECT no::text, ttl_ms::text
      FROM ${s}.open_session($1::text, $2::text, $3::text, $4::text::double precision)`,
    /** namespace, id */
    findSession: `SELECT no::text, ttl_ms::text, holder, (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::text
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
    /** namespace, name, token, public id */
    check: `SELECT 1 FROM ${s}.holders h JOIN ${s}.sessions z ON z.no = h.session
      WHERE h.namespace = $1::text AND h.name = $2::text AND h.token = $3::text::bigint AND left(h.attempt, 22) = $4::text
        AND z.ended IS NULL AND z.expires_at > clock_timestamp()`,
    /** namespace, channel, name, ids, expiry */
    forceRelease: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.force_release($1::text, $2::text, $3::text, ${texts(4)}, $5::text::double precision)`,
    /** namespace, channel, name, from, to, expiry */
    resize: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.resize($1::text, $2::text, $3::text, $4::text::integer, $5::text::integer, $6::text::double precision)`,
    /** namespace, channel, name, data, expiry */
    forget: `SELECT kind, attempt, token, data, session::text
      FROM ${s}.forget($1::text, $2::text, $3::text, $4::text, $5::text::double precision)`,
    /** namespace, name or prefix, which of the two (or `holders` of the name); one statement, so all rows are of one moment */
    show: `
      SELECT 'holder', h.name, left(h.attempt, 22), z.holder, h.mode, h.weight::text, h.capacity::text, h.token::text, h.note,
        (extract(epoch FROM clock_timestamp() - h.held_since) * 1000)::text,
        (extract(epoch FROM z.expires_at - clock_timestamp()) * 1000)::text,
        h.lock_delay_ms::text, coalesce(z.ended = 'closed', z.no IS NULL), ${now}
      FROM ${s}.holders h LEFT JOIN ${s}.sessions z ON z.no = h.session
      WHERE h.namespace = $1::text AND (h.name = $2::text OR ($3::text = 'prefix' AND starts_with(h.name, $2::text)))
      UNION ALL
      SELECT 'waiter', w.name, left(w.attempt, 22), z.holder, w.mode, w.weight::text, w.capacity::text, w.place::text, w.note,
        (extract(epoch FROM clock_timestamp() - w.waiting_since) * 1000)::text, NULL, NULL, false, ${now}
      FROM ${s}.waiters w
      JOIN ${s}.sessions z ON z.no = w.session AND z.ended IS NULL AND z.expires_at > clock_timestamp()
      WHERE w.namespace = $1::text AND $3::text <> 'holders'
        AND (w.name = $2::text OR ($3::text = 'prefix' AND starts_with(w.name, $2::text)))
      UNION ALL
      SELECT 'name', n.name, NULL, NULL, NULL, NULL, n.capacity::text, NULL, n.data, NULL,
        (extract(epoch FROM n.closed_until - clock_timestamp()) * 1000)::text, NULL, false, ${now}
      FROM ${s}.names n
      WHERE n.namespace = $1::text AND (n.name = $2::text OR ($3::text = 'prefix' AND starts_with(n.name, $2::text)))`,
  }
}
