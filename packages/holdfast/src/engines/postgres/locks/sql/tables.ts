/**
 * The tables of the schema.
 *
 * `holders`, `waiters` and `marks` belong to a row of `sessions`. A claim counts for as long as its session has a row
 * that is not `ended`; there are no foreign keys, because each would lock the session's row once more for every claim.
 * A row of `names` exists only while the name carries data or is closed.
 *
 * - A renewal updates one row and no index: `sessions` has indexes on what never changes, and room on each page
 *   for the versions that it leaves behind, which the next access to the page removes again.
 * - No column is in two indexes of a table, or a lookup by it could be planned with the wrong one (see locks).
 * - Names are compared by their bytes, which is how all engines list them, and the fastest way.
 */
import { eventTables } from './event-log.ts'

/** A request of a batch (see claims). `text`: the note of an acquire, or data to store. `ms`: lock-delay or hold-at-least. */
export const REQUEST = [
  ['op', 'text'],
  ['name', 'text'],
  ['attempt', 'text'],
  ['session', 'bigint'],
  ['token', 'text'],
  ['ms', 'double precision'],
  ['text', 'text'],
  ['waits', 'boolean'],
  ['mode', 'text'],
  ['weight', 'integer'],
  ['capacity', 'integer'],
  ['owner', 'text'],
  ['max_waiters', 'integer'],
  ['wait_ms', 'double precision'],
] as const

export const tables = (s: string) => `
-- Nothing is cached: a connection that had drawn numbers ahead would hand out small ones later (T67, tokens in the order of grants).
CREATE SEQUENCE IF NOT EXISTS ${s}.tokens AS bigint MINVALUE 1 MAXVALUE 4503599627370495 CACHE 1 NO CYCLE;
CREATE SEQUENCE IF NOT EXISTS ${s}.places AS bigint CACHE 1;

CREATE TABLE IF NOT EXISTS ${s}.sessions (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" UNIQUE,
  namespace text COLLATE "C" NOT NULL,
  holder text NOT NULL,
  ttl_ms double precision NOT NULL,
  expires_at timestamptz NOT NULL,
  ended text CHECK (ended IN ('expired', 'closed')),
  ended_at timestamptz,
  has_marks boolean NOT NULL DEFAULT false
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE IF NOT EXISTS ${s}.holders (
  namespace text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  attempt text COLLATE "C" NOT NULL,
  session bigint NOT NULL,
  token bigint NOT NULL,
  mode text NOT NULL,
  weight integer NOT NULL,
  capacity integer NOT NULL,
  lock_delay_ms double precision NOT NULL,
  held_since timestamptz NOT NULL,
  note text,
  previous_data text,
  owner text,
  PRIMARY KEY (namespace, name, attempt)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE IF NOT EXISTS ${s}.waiters (
  namespace text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  place bigint NOT NULL,
  attempt text COLLATE "C" NOT NULL,
  session bigint NOT NULL,
  mode text NOT NULL,
  weight integer NOT NULL,
  capacity integer NOT NULL,
  lock_delay_ms double precision NOT NULL,
  waiting_since timestamptz NOT NULL,
  note text,
  channel text,
  owner text,
  until timestamptz,
  PRIMARY KEY (namespace, name, place)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE IF NOT EXISTS ${s}.marks (
  session bigint NOT NULL,
  attempt text COLLATE "C" NOT NULL,
  kind text NOT NULL,
  detail text,
  PRIMARY KEY (session, attempt)
);

CREATE TABLE IF NOT EXISTS ${s}.names (
  namespace text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  capacity integer NOT NULL,
  data text,
  closed_until timestamptz,
  PRIMARY KEY (namespace, name)
);
${eventTables(s)}
CREATE INDEX IF NOT EXISTS holders_by_session ON ${s}.holders (session);
CREATE INDEX IF NOT EXISTS waiters_by_attempt ON ${s}.waiters (session, attempt);
DO $$ BEGIN
  CREATE TYPE ${s}.request AS (${REQUEST.map(([field, type]) => `${field} ${type}`).join(', ')});
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
`
