/** The guard's own tables, beside the user's. The layout carries a version, so that a later one can be told. */

import { InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import { prepare, type SqliteDatabase } from '../client/index.ts'

const LAYOUT_VERSION = 1n
/** The mark that the sqlite backend writes into the header of its files ('HFST'). */
const LOCK_FILE_ID = 0x48465354n

const tables = `
  CREATE TABLE IF NOT EXISTS holdfast_guard_layout (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    version  INTEGER NOT NULL
  ) STRICT;

  INSERT OR IGNORE INTO holdfast_guard_layout (only_row, version) VALUES (1, ${LAYOUT_VERSION});

  -- The newest fence of every name, and the highest exclusive token among all that were seen or may have been forgotten.
  CREATE TABLE IF NOT EXISTS holdfast_guard_names (
    guard           TEXT NOT NULL,
    name            TEXT NOT NULL,
    issuer          TEXT NOT NULL,
    mode            TEXT NOT NULL CHECK (mode IN ('exclusive', 'shared')),
    token           INTEGER NOT NULL CHECK (token > 0),
    grant_id        TEXT NOT NULL,
    exclusive_token INTEGER,
    touched_ms      INTEGER NOT NULL,
    PRIMARY KEY (guard, name)
  ) STRICT, WITHOUT ROWID;

  CREATE INDEX IF NOT EXISTS holdfast_guard_names_by_touch ON holdfast_guard_names (guard, touched_ms);

  -- The rest of forgotten names, one row for each issuer; and whose fence came first.
  CREATE TABLE IF NOT EXISTS holdfast_guard_issuers (
    guard       TEXT NOT NULL,
    issuer      TEXT NOT NULL,
    pinned      INTEGER NOT NULL DEFAULT 0,
    floor_token INTEGER,
    floor_grant TEXT,
    PRIMARY KEY (guard, issuer)
  ) STRICT, WITHOUT ROWID;
`

/** To be called inside a transaction. Makes the tables if they are missing, and refuses those of a later release. */
export function ensureLayout(database: SqliteDatabase): void {
  const { application_id } = prepare(database, 'PRAGMA application_id').get() as { application_id: bigint }
  if (application_id === LOCK_FILE_ID)
    throw new InvalidArgumentError(
      'database',
      'must not be the file of a locker: what you protect lives in a file of its own, and the guard with it.',
    )
  database.exec(tables)
  const { version } = prepare(database, 'SELECT version FROM holdfast_guard_layout').get() as {
    version: bigint
  }
  if (version !== LAYOUT_VERSION)
    throw new UnsupportedError(
      `The guard's tables in this file have layout ${version}, and this release of Holdfast knows ${LAYOUT_VERSION}. ` +
        'Update Holdfast in every process that uses the file.',
    )
}
