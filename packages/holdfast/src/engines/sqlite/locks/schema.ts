/**
 * The tables of the file. Their version stands in the file, and a file of another version is refused: two layouts would not
 * exclude each other.
 *
 * `holders`, `waiters` and `marks` belong to a row of `sessions`, and are deleted with it (`removeSession`). A row of
 * `names` exists only while the name carries data or is closed, so an unused name leaves nothing behind.
 * Times are milliseconds on the machine's monotonic clock and mean something only for the boot in `boot_id`.
 * `events` has rows only while the file is watched (`event-log.ts`).
 *
 * Cost of an acquire is the number of pages that it changes, because the log of SQLite writes and checksums whole
 * pages. So pages are small, and `holders` is one b-tree, without rowids and without an index by session: that would be
 * one more page for every acquire and every release, to save a keep-alive and the end of a session from reading all
 * holders, which takes half a millisecond for 10,000.
 */
import type { DatabaseSync } from 'node:sqlite'
import { foreignFile, unusable } from './failures.ts'
import type { MachineIdentity } from './machine.ts'

/** 'HFST'; it stands in the header of the file and tells it from those of other programs. */
export const APPLICATION_ID = 0x48465354
export const SCHEMA_VERSION = 1
const PAGE_BYTES = 1_024

const TABLES = `
CREATE TABLE meta (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  file_id TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  time_namespace TEXT NOT NULL,
  next_token INTEGER NOT NULL,
  reserved_token INTEGER NOT NULL,
  watched_until REAL,
  log_id TEXT,
  CHECK (next_token <= reserved_token)
) STRICT;

CREATE TABLE sessions (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  namespace TEXT NOT NULL,
  holder TEXT NOT NULL,
  ttl_ms REAL NOT NULL,
  expires_at REAL NOT NULL,
  boot_id TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

CREATE TABLE holders (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  attempt TEXT NOT NULL,
  session INTEGER NOT NULL,
  token INTEGER NOT NULL,
  mode TEXT NOT NULL,
  weight INTEGER NOT NULL,
  capacity INTEGER NOT NULL,
  lock_delay_ms REAL NOT NULL,
  held_since REAL NOT NULL,
  note TEXT,
  previous_data TEXT,
  owner TEXT,
  PRIMARY KEY (namespace, name, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE waiters (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  place INTEGER NOT NULL,
  attempt TEXT NOT NULL,
  session INTEGER NOT NULL,
  mode TEXT NOT NULL,
  weight INTEGER NOT NULL,
  capacity INTEGER NOT NULL,
  lock_delay_ms REAL NOT NULL,
  waiting_since REAL NOT NULL,
  note TEXT,
  address TEXT,
  owner TEXT,
  PRIMARY KEY (namespace, name, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiters_by_session ON waiters (session, attempt);

CREATE TABLE marks (
  session INTEGER NOT NULL,
  attempt TEXT NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT,
  PRIMARY KEY (session, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE names (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  capacity INTEGER NOT NULL,
  data TEXT,
  closed_until REAL,
  PRIMARY KEY (namespace, name),
  CHECK (data IS NOT NULL OR closed_until IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX names_by_closing ON names (closed_until) WHERE closed_until IS NOT NULL;

CREATE TABLE events (
  no INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  id TEXT NOT NULL,
  holder TEXT NOT NULL,
  owner TEXT,
  token INTEGER
) STRICT;
`

/** The origin of a file: the machine and the boot in which it was made. */
export interface Origin extends MachineIdentity {
  readonly fileId: string
}

/**
 * Makes an empty file ours, in one commit; leaves a file of ours as it is, and refuses every other without having
 * changed it. Nothing may be set that is written to the file before this has said that it is ours.
 */
export function ensureSchema(connection: DatabaseSync, file: string, origin: Origin): void {
  if (within(connection, 'BEGIN', () => isOurs(connection, file))) return
  // Has an effect because the file is empty.
  connection.exec(`PRAGMA page_size = ${PAGE_BYTES}`)
  within(connection, 'BEGIN IMMEDIATE', () => {
    // Another process may have been faster.
    if (!isOurs(connection, file)) create(connection, origin)
  })
}

/** When it throws, its opener closes the connection, which undoes what was done. */
function within<T>(connection: DatabaseSync, begin: string, work: () => T): T {
  connection.exec(begin)
  const result = work()
  connection.exec('COMMIT')
  return result
}

function create(connection: DatabaseSync, origin: Origin): void {
  connection.exec(TABLES)
  connection
    .prepare('INSERT INTO meta VALUES (1, ?, ?, ?, 1, 1, NULL, NULL)')
    .run(origin.fileId, origin.bootId, origin.timeNamespaceOffset)
  connection.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION}`)
}

/** False: the file is empty. In a transaction, because another process may make it ours between two looks. */
function isOurs(connection: DatabaseSync, file: string): boolean {
  const [application, version] = [pragma(connection, 'application_id'), pragma(connection, 'user_version')]
  const isEmpty = connection.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get() === undefined
  if (isEmpty && application === 0 && version === 0) return false
  if (application !== APPLICATION_ID) throw foreignFile(file, 'is the SQLite database of another program')
  if (version === SCHEMA_VERSION) return true
  throw unusable(
    file,
    `has version ${version} of the layout, and this Holdfast knows version ${SCHEMA_VERSION}. Two layouts would not ` +
      'exclude each other, so all processes must use the same: use one release of Holdfast in all of them, or choose another file.',
  )
}

function pragma(connection: DatabaseSync, name: string): number {
  return Number(connection.prepare(`PRAGMA ${name}`).get()?.[name])
}
