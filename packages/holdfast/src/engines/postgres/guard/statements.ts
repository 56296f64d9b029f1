/** The guard's statements. Tokens travel as text: a client may read a 64-bit number as a double (T42, tokens as doubles). */

import { makeFence } from '../../../base/fence.ts'
import type { Remembered } from '../../../guards/rule.ts'
import type { Row } from '../client/index.ts'

export type GuardStatements = ReturnType<typeof guardStatements>

const REMEMBERED = 'n.name, n.issuer, n.mode, n.token::text, n.grant_id, n.exclusive_token::text'

/** The setting in which the trigger of a fenced table looks for fences; see `trigger-sql.ts`. */
export const FENCE_SETTING = 'holdfast.fence'

/** `s` is the quoted schema. */
export function guardStatements(s: string) {
  return {
    lock: `
      INSERT INTO ${s}.guard_names AS n (guard, name, touched_ms)
      SELECT $1::text, w.name, $3::text::bigint
      FROM unnest($2::text::text[]) WITH ORDINALITY AS w (name, position) ORDER BY w.position
      ON CONFLICT (guard, name) DO UPDATE SET touched_ms = excluded.touched_ms
      RETURNING ${REMEMBERED},
        (SELECT g.pinned_issuer FROM ${s}.guards g WHERE g.guard = $1::text), pg_current_xact_id_if_assigned()::text`,
    floors: `
      SELECT issuer, floor_token::text, floor_grant FROM ${s}.guard_issuers
      WHERE guard = $1::text AND issuer = ANY ($2::text::text[]) ORDER BY issuer FOR SHARE`,
    makeGuard: `INSERT INTO ${s}.guards (guard) VALUES ($1::text) ON CONFLICT DO NOTHING`,
    lockPin: `SELECT pinned_issuer FROM ${s}.guards WHERE guard = $1::text FOR UPDATE`,
    makeIssuers: `
      INSERT INTO ${s}.guard_issuers (guard, issuer)
      SELECT $1::text, w.issuer FROM unnest($2::text::text[]) WITH ORDINALITY AS w (issuer, position) ORDER BY w.position
      ON CONFLICT DO NOTHING`,
    // The setting gathers the fences of all calls in this transaction, and ends with it.
    remember: `
      WITH same AS (SELECT pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM $2::text AS transaction),
      remembered AS (
        UPDATE ${s}.guard_names n SET issuer = w.issuer, mode = w.mode, token = w.token, grant_id = w.grant_id,
          exclusive_token = w.exclusive_token
        FROM same, unnest($3::text::text[], $4::text::text[], $5::text::text[], $6::text::bigint[], $7::text::text[],
          $8::text::bigint[]) AS w (name, issuer, mode, token, grant_id, exclusive_token)
        WHERE same.transaction AND n.guard = $1::text AND n.name = w.name
          AND (n.mode, n.token, n.grant_id, n.exclusive_token)
            IS DISTINCT FROM (w.mode, w.token, w.grant_id, w.exclusive_token)),
      pinned AS (
        UPDATE ${s}.guards g SET pinned_issuer = $9::text FROM same
        WHERE same.transaction AND g.guard = $1::text AND $9::text IS NOT NULL)
      SELECT same.transaction::text, set_config('${FENCE_SETTING}',
        concat_ws(' ', nullif(current_setting('${FENCE_SETTING}', true), ''), $10::text), true) FROM same`,
    dropUnused: `
      DELETE FROM ${s}.guard_names WHERE guard = $1::text AND name = ANY ($2::text::text[]) AND token IS NULL`,
    recall: `SELECT ${REMEMBERED} FROM ${s}.guard_names n WHERE n.guard = $1::text AND n.name = $2::text`,
    lockIssuers: `
      SELECT issuer FROM ${s}.guard_issuers WHERE guard = $1::text ORDER BY issuer FOR UPDATE`,
    lockFreeIssuers: `
      SELECT issuer FROM ${s}.guard_issuers WHERE guard = $1::text ORDER BY issuer FOR UPDATE SKIP LOCKED`,
    forget: `
      WITH old AS (
        SELECT name FROM ${s}.guard_names
        WHERE guard = $1::text AND touched_ms <= $2::text::bigint
          AND (issuer IS NULL OR issuer = ANY ($3::text::text[]))
        FOR UPDATE SKIP LOCKED),
      gone AS (
        DELETE FROM ${s}.guard_names n USING old WHERE n.guard = $1::text AND n.name = old.name
        RETURNING n.issuer, n.token, n.grant_id),
      tops AS (
        SELECT DISTINCT ON (issuer) issuer, token, grant_id FROM gone WHERE token IS NOT NULL
        ORDER BY issuer, token DESC),
      raised AS (
        UPDATE ${s}.guard_issuers i SET floor_token = t.token, floor_grant = t.grant_id FROM tops t
        WHERE i.guard = $1::text AND i.issuer = t.issuer AND (i.floor_token IS NULL OR i.floor_token < t.token))
      SELECT count(*)::text FROM gone WHERE token IS NOT NULL`,
    // Fails in a transaction that has failed, and tells one that has been begun meanwhile.
    sameTransaction: 'SELECT (pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM $1::text)::text',
  }
}

/** A row with the columns of `REMEMBERED` in front; null if the row was inserted only to be locked. */
export function readRemembered(row: Row): Remembered | null {
  const [name, issuer, mode, token, grant, exclusiveToken] = row as (string | null)[]
  if (token == null) return null
  return {
    highest: makeFence({
      issuer: String(issuer),
      name: String(name),
      mode: mode as 'exclusive' | 'shared',
      token: BigInt(token),
      grant: String(grant),
    }),
    exclusiveToken: exclusiveToken == null ? null : BigInt(exclusiveToken),
  }
}
