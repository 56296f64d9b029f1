/** Every statement, prepared once. Parameters are numbered, so that one value can stand in several places. */
import { ID_LENGTH } from '../../../base/ids.ts'
import type { NameKey, Situation } from '../../../kit/rules.ts'
import type { Mode, SessionState, WatchEventKind } from '../../../spi.ts'
import type { Database } from './database.ts'

/** With the counter of tokens, for an attempt that is granted. */
export interface SituationRow extends Situation {
  readonly next: number
  readonly reserved: number
}

export interface WaiterRow {
  readonly place: number
  readonly attempt: string
  readonly session: number
  readonly weight: number
  readonly address: string | null
}

/** A claim as operators see it; of ids only the public half. */
interface ClaimRow {
  readonly name: string
  readonly id: string
  readonly holder: string
  readonly owner: string | null
  readonly mode: Mode
  readonly weight: number
  readonly capacity: number
  readonly note: string | null
  readonly session: string
  readonly ttlMs: number
  readonly expires_at: number
  readonly lock_delay_ms: number
  /** Null: it waits. */
  readonly token: number | null
  /** Since when it holds or waits. */
  readonly since: number
}

export interface NameRow extends NameKey {
  readonly capacity: number
  readonly data: string | null
  readonly closed_until: number | null
}

export interface EventRow extends NameKey {
  readonly log_id: string | null
  /** Null: there is no event. */
  readonly no: number | null
  readonly kind: WatchEventKind
  readonly id: string
  readonly holder: string
  readonly owner: string | null
  readonly token: number | null
}

/** A session expires, a name opens, or the log of events is not watched any more. To be selected from `meta`. */
const DUE = `min(
  coalesce((SELECT min(expires_at) FROM sessions), 9e999),
  coalesce((SELECT min(closed_until) FROM names WHERE closed_until IS NOT NULL), 9e999),
  coalesce(watched_until, 9e999))`

const PUBLIC_ID = `substr(attempt, 1, ${ID_LENGTH})`
const CLAIM_COLUMNS = `name, ${PUBLIC_ID} AS id, holder, owner, mode, weight, capacity, note,
        substr(sessions.id, 1, ${ID_LENGTH}) AS session, ttl_ms AS ttlMs, expires_at, lock_delay_ms`

/** When time alone will next change something in the file. */
export function nextDueMs(sql: Statements): number {
  return sql.fileState.first()?.due ?? Infinity
}

export type Statements = ReturnType<typeof prepareStatements>

export function prepareStatements(database: Database) {
  const query = <Row = never>(sql: string) => database.query<Row>(sql)
  return {
    // --- the file -------------------------------------------------------------------------------------------
    fileState: query<{ boot_id: string; time_namespace: string; due: number }>(
      `SELECT boot_id, time_namespace, ${DUE} AS due FROM meta`,
    ),
    readTokens: query<{ next: number; reserved: number }>(
      'SELECT next_token AS next, reserved_token AS reserved FROM meta',
    ),
    writeNextToken: query('UPDATE meta SET next_token = ?1'),
    /** Whatever is left stays: a transaction that needs more than that must find more after every reservation. */
    reserveTokens: query('UPDATE meta SET reserved_token = reserved_token + ?1'),
    sqliteVersion: query<{ version: string }>('SELECT sqlite_version() AS version'),
    /** Changes when, and only when, another connection has committed. */
    dataVersion: query<{ data_version: number }>('PRAGMA data_version'),
    beginReading: query('BEGIN'),
    endReading: query('COMMIT'),

    // --- sessions -------------------------------------------------------------------------------------------
    openSession: query<{ no: number; ttl_ms: number }>(`
      INSERT INTO sessions (id, namespace, holder, ttl_ms, expires_at, boot_id)
      VALUES (?1, ?2, ?3, ?4, ?5 + ?4, ?6)
      ON CONFLICT (id) DO UPDATE SET expires_at = ?5 + ttl_ms WHERE namespace = ?2
      RETURNING no, ttl_ms`),
    findSession: query<{ no: number; ttl_ms: number; holder: string; expires_at: number }>(
      'SELECT no, ttl_ms, holder, expires_at FROM sessions WHERE id = ?1 AND namespace = ?2 AND expires_at > ?3',
    ),
    prolong: query('UPDATE sessions SET expires_at = ?2 + ttl_ms WHERE no = ?1'),
    claimsOf: query<{ name: string; attempt: string; token: number | null }>(`
      SELECT name, attempt, token FROM holders WHERE session = ?1
      UNION ALL
      SELECT name, attempt, NULL FROM waiters WHERE session = ?1`),
    expired: query<{ namespace: string; id: number }>(
      'SELECT namespace, no AS id FROM sessions WHERE expires_at <= ?1',
    ),
    /** For the log of events. */
    markExpired: query('UPDATE sessions SET expires_at = -1 WHERE no = ?1'),
    closeByLockDelay: query(`
      INSERT INTO names (namespace, name, capacity, closed_until)
      SELECT namespace, name, capacity, (SELECT expires_at FROM sessions WHERE no = ?1) + max(lock_delay_ms) FROM holders
      WHERE session = ?1 AND lock_delay_ms > 0 AND (SELECT expires_at FROM sessions WHERE no = ?1) + lock_delay_ms > ?2
      GROUP BY namespace, name
      ON CONFLICT DO UPDATE SET closed_until = max(coalesce(closed_until, 0), excluded.closed_until)`),
    /** The names on which other waiters may be granted when this session is gone. */
    waitedForBeside: query<NameKey>(`
      SELECT namespace, name FROM holders WHERE session = ?1 AND EXISTS (
        SELECT 1 FROM waiters
        WHERE waiters.namespace = holders.namespace AND waiters.name = holders.name AND waiters.session <> ?1)
      UNION
      SELECT namespace, name FROM waiters WHERE session = ?1`),
    deleteHoldersOf: query('DELETE FROM holders WHERE session = ?1'),
    deleteWaitersOf: query('DELETE FROM waiters WHERE session = ?1'),
    deleteMarksOf: query('DELETE FROM marks WHERE session = ?1'),
    deleteSession: query('DELETE FROM sessions WHERE no = ?1'),

    // --- one attempt ----------------------------------------------------------------------------------------
    situation: query<SituationRow>(`
      SELECT
        ${DUE} AS "dueMs",
        EXISTS (SELECT 1 FROM sessions WHERE no = ?3) AS "isAlive",
        EXISTS (SELECT 1 FROM marks WHERE session = ?3 AND attempt = ?4) AS "isMarked",
        EXISTS (SELECT 1 FROM holders WHERE namespace = ?1 AND name = ?2 AND attempt = ?4 AND session = ?3) AS holds,
        EXISTS (SELECT 1 FROM waiters WHERE session = ?3 AND attempt = ?4 AND namespace = ?1 AND name = ?2) AS waits,
        coalesce((SELECT sum(weight) FROM holders WHERE namespace = ?1 AND name = ?2), 0) AS held,
        coalesce(
          (SELECT capacity FROM holders WHERE namespace = ?1 AND name = ?2 LIMIT 1),
          (SELECT capacity FROM waiters WHERE namespace = ?1 AND name = ?2 LIMIT 1)) AS capacity,
        EXISTS (SELECT 1 FROM waiters WHERE namespace = ?1 AND name = ?2) AS "isWaitedFor",
        names.closed_until AS "closedUntilMs",
        names.data,
        next_token AS next,
        reserved_token AS reserved
      FROM meta LEFT JOIN names ON names.namespace = ?1 AND names.name = ?2`),
    insertHolder: query(
      'INSERT INTO holders VALUES (?1, ?2, ?3, ?4, ?11, ?5, ?6, ?7, ?8, ?9, ?10, ?12, ?13)',
    ),
    insertWaiter: query(`
      INSERT INTO waiters SELECT ?1, ?2,
        1 + coalesce((SELECT max(place) FROM waiters WHERE namespace = ?1 AND name = ?2), 0),
        ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12`),
    /** Whether there are more waiters than so many. */
    hasMoreWaiters: query('SELECT 1 FROM waiters WHERE namespace = ?1 AND name = ?2 LIMIT 1 OFFSET ?3'),
    grantOf: query<{ token: number; data: string | null }>(`
      SELECT token, previous_data AS data FROM holders
      WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4`),
    release: query<{ capacity: number; isWaitedFor: 0 | 1 }>(`
      DELETE FROM holders
      WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4 AND token = ?6
        AND (SELECT expires_at FROM sessions WHERE no = ?4) > ?5
      RETURNING capacity, EXISTS (SELECT 1 FROM waiters WHERE namespace = ?1 AND name = ?2) AS "isWaitedFor"`),
    close: query(`
      INSERT INTO names (namespace, name, capacity, closed_until) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT DO UPDATE SET closed_until = max(coalesce(closed_until, 0), excluded.closed_until)`),
    markAbandoned: query(`
      INSERT INTO marks VALUES (?1, ?2, 'abandoned', NULL)
      ON CONFLICT DO UPDATE SET kind = excluded.kind, detail = excluded.detail`),
    forcedBecause: query<{ detail: string }>(
      "SELECT detail FROM marks WHERE session = ?1 AND attempt = ?2 AND kind = 'force-released'",
    ),
    deleteHolder: query(
      'DELETE FROM holders WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4',
    ),
    deleteWaiter: query(
      'DELETE FROM waiters WHERE session = ?4 AND attempt = ?3 AND namespace = ?1 AND name = ?2',
    ),
    setData: query(`
      INSERT INTO names (namespace, name, capacity, data)
      SELECT namespace, name, capacity, ?6 FROM holders
      WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4 AND token = ?7
        AND (SELECT expires_at FROM sessions WHERE no = ?4) > ?5
      ON CONFLICT DO UPDATE SET data = excluded.data`),
    logData: query(`
      INSERT INTO events (kind, namespace, name, id, holder, owner, token)
      SELECT 'data', ?1, ?2, ${PUBLIC_ID}, holder, owner, token FROM holders CROSS JOIN sessions ON no = session
      WHERE holders.namespace = ?1 AND name = ?2 AND attempt = ?3 AND (SELECT log_id FROM meta) IS NOT NULL`),

    // --- queues ---------------------------------------------------------------------------------------------
    firstWaiter: query<WaiterRow>(`
      SELECT place, attempt, session, weight, address FROM waiters
      WHERE namespace = ?1 AND name = ?2 ORDER BY place LIMIT 1`),
    promote: query(`
      INSERT INTO holders
      SELECT namespace, name, attempt, session, ?4, mode, weight, capacity, lock_delay_ms, ?5, note, ?6, owner
      FROM waiters WHERE namespace = ?1 AND name = ?2 AND place = ?3`),
    heaviestWaiter: query<{ weight: number | null }>(
      'SELECT max(weight) AS weight FROM waiters WHERE namespace = ?1 AND name = ?2',
    ),
    deleteOpened: query<NameKey>(
      'DELETE FROM names WHERE closed_until <= ?1 AND data IS NULL RETURNING namespace, name',
    ),
    openNames: query<NameKey>(
      'UPDATE names SET closed_until = NULL WHERE closed_until <= ?1 RETURNING namespace, name',
    ),
    /** The fate of waiters of this process. Those that are still queued are left out. */
    outcomes: query<{
      index: number
      alive: 0 | 1 | null
      token: number | null
      data: string | null
      mark: string | null
    }>(`
      SELECT asked.key AS "index", sessions.expires_at > ?3 AS alive, holders.token, holders.previous_data AS data,
        marks.kind AS mark
      FROM json_each(?1) AS asked
      LEFT JOIN sessions ON sessions.no = asked.value ->> 0
      LEFT JOIN holders ON holders.namespace = ?2 AND holders.name = asked.value ->> 1
        AND holders.attempt = asked.value ->> 2 AND holders.session = sessions.no
      LEFT JOIN marks ON marks.session = sessions.no AND marks.attempt = asked.value ->> 2
      WHERE NOT EXISTS (
        SELECT 1 FROM waiters WHERE waiters.session = sessions.no AND waiters.attempt = asked.value ->> 2)`),

    // --- operators ------------------------------------------------------------------------------------------
    /** The names in use from one name on, in byte order; some of them may have expired. */
    namesFrom: query<{ name: string }>(`
      SELECT name FROM (SELECT DISTINCT name FROM holders WHERE namespace = ?1 AND name >= ?2 AND name < ?3 ORDER BY name LIMIT ?4)
      UNION
      SELECT name FROM (SELECT DISTINCT name FROM waiters WHERE namespace = ?1 AND name >= ?2 AND name < ?3 ORDER BY name LIMIT ?4)
      UNION
      SELECT name FROM (SELECT name FROM names WHERE namespace = ?1 AND name >= ?2 AND name < ?3 ORDER BY name LIMIT ?4)
      ORDER BY name LIMIT ?4`),
    holders: query<ClaimRow>(`
      SELECT ${CLAIM_COLUMNS}, token, held_since AS since FROM holders JOIN sessions ON sessions.no = holders.session
      WHERE holders.namespace = ?1 AND name BETWEEN ?2 AND ?3 ORDER BY name, token`),
    waiters: query<ClaimRow>(`
      SELECT ${CLAIM_COLUMNS}, NULL AS token, waiting_since AS since FROM waiters JOIN sessions ON sessions.no = waiters.session
      WHERE waiters.namespace = ?1 AND name BETWEEN ?2 AND ?3 AND expires_at > ?4 ORDER BY name, place`),
    names: query<NameRow>(
      'SELECT * FROM names WHERE namespace = ?1 AND name BETWEEN ?2 AND ?3 ORDER BY name',
    ),
    /** By the public half of the id, which is where a page goes on. */
    sessions: query<Omit<SessionState, 'expiresInMs'> & { expires_at: number }>(`
      SELECT substr(id, 1, ${ID_LENGTH}) AS id, holder, ttl_ms AS ttlMs, expires_at FROM sessions
      WHERE sessions.id > ?2 AND namespace = ?1 AND expires_at > ?3 ORDER BY sessions.id LIMIT ?4`),
    check: query(`
      SELECT 1 FROM holders JOIN sessions ON sessions.no = holders.session
      WHERE holders.namespace = ?1 AND name = ?2 AND token = ?3 AND ${PUBLIC_ID} = ?4 AND expires_at > ?5`),
    markForced: query(`
      INSERT INTO marks SELECT session, attempt, 'force-released', ?4 FROM holders
      WHERE namespace = ?1 AND name = ?2 AND ${PUBLIC_ID} IN (SELECT value FROM json_each(?3))
      ON CONFLICT DO UPDATE SET kind = excluded.kind, detail = excluded.detail`),
    deleteForced: query(`
      DELETE FROM holders WHERE namespace = ?1 AND name = ?2 AND ${PUBLIC_ID} IN (SELECT value FROM json_each(?3))`),
    resizeHolders: query('UPDATE holders SET capacity = ?3 WHERE namespace = ?1 AND name = ?2'),
    resizeWaiters: query('UPDATE waiters SET capacity = ?3 WHERE namespace = ?1 AND name = ?2'),
    forgetClosed: query(
      'UPDATE names SET data = NULL WHERE namespace = ?1 AND name = ?2 AND closed_until IS NOT NULL',
    ),
    forget: query('DELETE FROM names WHERE namespace = ?1 AND name = ?2'),

    // --- the log of events ----------------------------------------------------------------------------------
    openLog: query(`
      UPDATE meta SET log_id = coalesce(log_id, ?1), watched_until = max(coalesce(watched_until, 0), ?2)`),
    closeLog: query('UPDATE meta SET log_id = NULL, watched_until = NULL WHERE watched_until <= ?1'),
    emptyLog: query('DELETE FROM events'),
    logHead: query<{ log_id: string | null; next_token: number; last: number }>(`
      SELECT log_id, next_token, coalesce((SELECT max(no) FROM events), 0) AS last FROM meta`),
    /** At least one row, which has no event if there is none. */
    eventsFrom: query<EventRow>(`
      SELECT log_id, events.* FROM meta LEFT JOIN events ON no >= ?1 WHERE meta.id = 1 ORDER BY no LIMIT ?2`),
  }
}
