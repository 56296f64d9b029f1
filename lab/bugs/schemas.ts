/** Bugs in the tables and functions in PostgreSQL. The tests that must notice one plant it themselves, by its id. */

import { postgresLockfreeSchema } from '../../packages/holdfast/src/engines/postgres/lockfree/index.ts'
import { schemaSql } from '../../packages/holdfast/src/engines/postgres/locks/schema.ts'
import { type Edit, edited, library, type SchemaBug } from './bug.ts'

const tests = `${library}/engines/postgres/locks`
/** Where the text comes from; it is replaced in the statements that are made of it. */
const sql = `${tests}/sql`
const jobs = `${library}/engines/postgres/lockfree/jobs-tables.ts`
const jobTests = `${library}/engines/postgres/lockfree/jobs-in-order.test.ts`

export const schemaBugs: readonly SchemaBug[] = [
  {
    id: 'T66-unjudged',
    what: 'a taker neither waits for the row of a session nor writes to it: expired is what seems to be expired',
    schema: 'unjudged',
    edits: [
      { file: `${sql}/locks.ts`, find: 'ORDER BY z.no\n    FOR UPDATE)', replaceBy: 'ORDER BY z.no)' },
      {
        file: `${sql}/locks.ts`,
        find: `    UPDATE "unjudged".sessions SET ended = 'expired', ended_at = clock_timestamp()
    WHERE no = ANY (v_locked) AND ended IS NULL AND expires_at <= clock_timestamp();`,
        replaceBy: '    DELETE FROM "unjudged".holders h WHERE h.session = ANY (v_locked);',
      },
    ],
    foundBy: { test: `${tests}/locking.test.ts` },
  },
  {
    id: 'T66-unlocked',
    what: 'an abandon locks only sessions that are over, so that a renewal runs beside it',
    schema: 'unlocked',
    edits: [
      { file: `${sql}/locks.ts`, find: 'z.no = ANY (p_always || v_over)', replaceBy: 'z.no = ANY (v_over)' },
    ],
    foundBy: { test: `${tests}/marks.test.ts` },
  },
  {
    id: 'T67-cached',
    what: 'connections draw tokens from a sequence in blocks',
    schema: 'cached',
    edits: [{ file: `${sql}/tables.ts`, find: 'CACHE 1 NO CYCLE', replaceBy: 'CACHE 32 NO CYCLE' }],
    foundBy: { test: `${tests}/locking.test.ts` },
  },
  {
    id: 'T67-early',
    what: 'a token is drawn before the lock is won',
    schema: 'early',
    edits: [
      {
        file: `${sql}/claims.ts`,
        find: '  v_logged text;\nBEGIN',
        replaceBy: `  v_logged text;
  v_early bigint := nextval('"early".tokens');
  v_pause text := pg_sleep(0.001)::text;
BEGIN`,
      },
      {
        file: `${sql}/claims.ts`,
        find: `r.session, nextval('"early".tokens'), r.mode, r.weight, r.capacity,
        r.ms, clock_timestamp(), r.text, n.data, r.owner
      FROM (SELECT p_name`,
        replaceBy: `r.session, v_early, r.mode, r.weight, r.capacity,
        r.ms, clock_timestamp(), r.text, n.data, r.owner
      FROM (SELECT p_name`,
      },
    ],
    foundBy: { test: `${tests}/locking.test.ts` },
  },
  {
    id: 'T68-client-decides',
    what: 'a commit is on the disk only if the settings of the client say so',
    schema: 'holdfast',
    edits: [
      {
        file: `${sql}/locks.ts`,
        find: "PERFORM set_config('synchronous_commit', 'on', true);",
        replaceBy: 'NULL;',
      },
    ],
    foundBy: { test: `${tests}/durability.test.ts` },
  },
  {
    id: 'jobs-unlocked',
    what: 'a transaction that adds a job does not lock its ordering key, so ids do not follow commits',
    schema: 'jobs_unlocked',
    edits: [{ file: jobs, find: 'PERFORM pg_advisory_xact_lock(', replaceBy: 'PERFORM abs(' }],
    foundBy: { test: jobTests },
  },
  {
    id: 'jobs-forgotten',
    what: 'a claim deletes the row of an ordering key without jobs while a transaction that adds one is open',
    schema: 'jobs_forgotten',
    edits: [{ file: jobs, find: 'pg_try_advisory_xact_lock(', replaceBy: '0 <> abs(' }],
    foundBy: { test: jobTests },
  },
  {
    id: 'jobs-overtaken',
    what: 'a claim takes the first job of an ordering key that is due, although an earlier one is not done',
    schema: 'jobs_overtaken',
    edits: [
      {
        file: jobs,
        find: 'AND starts < max_starts ORDER BY j.id LIMIT 1;',
        replaceBy: 'AND starts < max_starts AND j.visible_at <= statement_timestamp() ORDER BY j.id LIMIT 1;',
      },
    ],
    foundBy: { test: jobTests },
  },
]

/** The name and the statements of a schema with this bug in it. */
export function plantedSchema(id: string): { readonly schema: string; readonly schemaSql: string } {
  const bug = schemaBugs.find((each) => each.id === id)
  if (bug === undefined) throw new Error(`the bank has no ${id}`)
  return { schema: bug.schema, schemaSql: changedSchema(bug.schema, bug.edits) }
}

export function changedSchema(schema: string, edits: readonly Edit[]): string {
  const isOfJobs = edits.every(({ file }) => file === jobs)
  return edited(isOfJobs ? postgresLockfreeSchema({ schema }) : schemaSql(schema), edits)
}
