/** The guard's own tables and functions, beside the user's, in a schema of their own. */
import type { TablePart } from '../tables/tables.ts'
import { triggerSql } from './trigger-sql.ts'

/**
 * - `guards` has a row for each guard: whose fence was the first ever accepted.
 * - `guard_names` has the newest fence of every name, and the highest exclusive token among all that were seen. A row
 *   without a token was inserted to be locked, before the name's first fence was judged. There is no index on
 *   `touched_ms`: it would change with every run, and only `prune` reads it. The room that is left in the pages
 *   lets the rows be updated in place.
 * - `guard_issuers` has what stays of forgotten names, one row for each issuer. It exists before the first name of that
 *   issuer is remembered, so that there is always a row on which to collide.
 *
 * Names are compared by their bytes, whatever the collation of the database takes for equal.
 */
export const guardTables: TablePart = {
  part: 'guards',
  version: 1,
  // Which rights are needed depends on the user: an owner of tables that installs a fence needs none.
  relations: { guards: [], guard_names: [], guard_issuers: [] },
  printedBy: 'postgresGuardSchema()',
  sql: (s) => `
CREATE TABLE IF NOT EXISTS ${s}.guards (
  guard         text COLLATE "C" PRIMARY KEY,
  pinned_issuer text COLLATE "C"
);
CREATE TABLE IF NOT EXISTS ${s}.guard_names (
  guard           text COLLATE "C" NOT NULL,
  name            text COLLATE "C" NOT NULL,
  issuer          text COLLATE "C",
  mode            text CHECK (mode IN ('exclusive', 'shared')),
  token           bigint CHECK (token > 0),
  grant_id        text COLLATE "C",
  exclusive_token bigint,
  touched_ms      bigint NOT NULL,
  PRIMARY KEY (guard, name)
) WITH (fillfactor = 60);
CREATE TABLE IF NOT EXISTS ${s}.guard_issuers (
  guard       text COLLATE "C" NOT NULL,
  issuer      text COLLATE "C" NOT NULL,
  floor_token bigint,
  floor_grant text COLLATE "C",
  PRIMARY KEY (guard, issuer)
);
${triggerSql(s)}`,
}
