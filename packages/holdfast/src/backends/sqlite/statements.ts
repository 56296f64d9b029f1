/** Every statement, prepared once. Parameters are numbered, so that one value can stand in several places. */
import { ID_LENGTH } from '../../base/ids.ts'
import type { Mode, WatchEventKind } from '../../spi.ts'
import type { Database } from './database.ts'

/** All that decides about one attempt on one name. */
export interface Situation {
  /** Null: there is no such session. */
  readonly alive_until: number | null
  /** When the first of all sessions expires. */
  readonly first_expiry: number | null
  /** An operator or an abandon has ended this attempt for good. */
  readonly ended: 0 | 1
  readonly holds: 0 | 1
  readonly position: number | null
  readonly held: number
  readonly capacity: number | null
  readonly waited_for: 0 | 1
  readonly closed_until: number | null
  readonly data: string | null
  /** The count of tokens; the engine's own numbers stay below 2^53. */
  readonly next_token: number
  readonly reserved_token: number
  /** Null: there is no watcher. */
  readonly watched_until: number | null
}

/** What identifies a name in the file. */
export interface NameKey {
  readonly namespace: string
  readonly name: string
}

export interface FirstWaiter {
  readonly position: number
  readonly attempt: string
  readonly session: number
  readonly weight: number
  readonly capacity: number
  readonly address: string | null
  readonly owner: string | null
}

/** Of a session only the public half of its id. */
interface ClaimRow extends NameKey {
  readonly id: string
  readonly holder: string
  readonly owner: string | null
  readonly mode: Mode
  readonly note: string | null
  readonly session: string
  readonly ttl_ms: number
}

export interface HolderRow extends ClaimRow {
  readonly weight: bigint
  readonly capacity: bigint
  readonly token: bigint
  readonly held_since: number
  readonly lock_delay_ms: number
  readonly expires_at: number
}

export interface WaiterRow extends ClaimRow {
  readonly weight: number
  readonly capacity: number
  readonly waiting_since: number
}

export interface NameRow extends NameKey {
  readonly capacity: number
  readonly data: string | null
  readonly closed_until: number | null
}

export interface LogHead {
  /** Null: it is closed. */
  readonly log_id: string | null
  readonly next_token: bigint
  readonly last: bigint
}

/** What is told of a claim. */
interface Told {
  readonly name: string
  readonly id: string
  readonly holder: string
  readonly owner: string | null
  readonly token: bigint | null
}

export interface EventRow extends Told {
  readonly log_id: string
  readonly no: bigint
  readonly kind: WatchEventKind
  readonly namespace: string
}

export interface NoEventRow {
  readonly log_id: string | null
  readonly no: null
}

export interface WatchedHolder extends Told {
  readonly attempt: string
}

const CLAIM_COLUMNS = `name, substr(attempt, 1, ${ID_LENGTH}) AS id, holder, owner, mode, weight, capacity, note,
        substr(sessions.id, 1, ${ID_LENGTH}) AS session, ttl_ms`

export type Statements = ReturnType<typeof prepareStatements>

export function prepareStatements(database: Database) {
  const query = <Row = never>(sql: string) => database.query<Row>(sql)
  const bigQuery = <Row = never>(sql: string) => database.bigQuery<Row>(sql)
  return {
    // --- the file -------------------------------------------------------------------------------------------
    readMachine: query<{ boot_id: string; time_namespace: string }>(
      'SELECT boot_id, time_namespace FROM meta',
    ),
    readTokens: bigQuery<{ next: bigint; reserved: bigint }>(
      'SELECT next_token AS next, reserved_token AS reserved FROM meta',
    ),
    writeNextToken: query('UPDATE meta SET next_token = ?1'),
    /** Whatever is left stays: a transaction that needs more than that must find more after every reservation. */
    reserveTokens: query('UPDATE meta SET reserved_token = reserved_token + ?1'),
    sqliteVersion: query<{ version: string }>('SELECT sqlite_version() AS version'),
    /** Changes when, and only when, another connection has committed. */
    dataVersion: query<{ data_version: number }>('PRAGMA data_version'),

    // --- sessions -------------------------------------------------------------------------------------------
    openSession: query<{ no: number; ttl_ms: number }>(`
      INSERT INTO sessions (id, namespace, holder, ttl_ms, expires_at, boot_id)
      VALUES (?1, ?2, ?3, ?4, ?5 + ?4, ?6)
      ON CONFLICT (id) DO UPDATE SET expires_at = ?5 + ttl_ms WHERE namespace = ?2
      RETURNING no, ttl_ms`),
    findSession: query<{ no: number; ttl_ms: number; holder: string; expires_at: number }>(
      'SELECT no, ttl_ms, holder, expires_at FROM sessions WHERE id = ?1 AND namespace = ?2 AND expires_at > ?3',
    ),
    /**
     * Prolongs, and says how many claims the session has and which of the listed, by number, it has not. Listed is name,
     * attempt, and the token, which a waiter does not have.
     */
    keepAlive: query<{ missing: string; claims: number }>(`
      UPDATE sessions SET expires_at = ?2 + ttl_ms WHERE no = ?1 AND expires_at > ?2
      RETURNING (
        SELECT json_group_array(listed.key) FROM json_each(?3) AS listed
        WHERE NOT EXISTS (
            SELECT 1 FROM holders WHERE namespace = ?4 AND name = listed.value ->> 0
              AND attempt = listed.value ->> 1 AND session = ?1
              AND (listed.value ->> 2 IS NULL OR token = CAST(listed.value ->> 2 AS INTEGER)))
          AND (listed.value ->> 2 IS NOT NULL
            OR NOT EXISTS (SELECT 1 FROM waiters WHERE session = ?1 AND attempt = listed.value ->> 1))
      ) AS missing,
        (SELECT count(*) FROM holders WHERE session = ?1) + (SELECT count(*) FROM waiters WHERE session = ?1) AS claims`),
    unlisted: query<{ name: string; attempt: string }>(`
      SELECT name, attempt FROM holders WHERE session = ?1 AND attempt NOT IN (SELECT value FROM json_each(?2))
      UNION ALL
      SELECT name, attempt FROM waiters WHERE session = ?1 AND attempt NOT IN (SELECT value FROM json_each(?2))`),
    isAlive: query('SELECT 1 FROM sessions WHERE no = ?1 AND expires_at > ?2'),
    expired: query<{ no: number; expires_at: number }>(
      'SELECT no, expires_at FROM sessions WHERE expires_at <= ?1',
    ),
    deleteSession: query('DELETE FROM sessions WHERE no = ?1'),
    deleteHoldersOf: query('DELETE FROM holders WHERE session = ?1'),
    deleteWaitersOf: query('DELETE FROM waiters WHERE session = ?1'),
    deleteMarksOf: query('DELETE FROM marks WHERE session = ?1'),
    /** The names on which other waiters may be granted when this session is gone. */
    waitedForBeside: query<NameKey>(`
      SELECT namespace, name FROM holders WHERE session = ?1 AND EXISTS (
        SELECT 1 FROM waiters
        WHERE waiters.namespace = holders.namespace AND waiters.name = holders.name AND waiters.session <> ?1)
      UNION
      SELECT namespace, name FROM waiters WHERE session = ?1`),
    closeByLockDelay: query(`
      INSERT INTO names (namespace, name, capacity, closed_until)
      SELECT namespace, name, capacity, ?2 + max(lock_delay_ms) FROM holders
      WHERE session = ?1 AND lock_delay_ms > 0 AND ?2 + lock_delay_ms > ?3
      GROUP BY namespace, name
      ON CONFLICT DO UPDATE SET closed_until = max(coalesce(closed_until, 0), excluded.closed_until)`),

    // --- one attempt ----------------------------------------------------------------------------------------
    situation: query<Situation>(`
      SELECT
        (SELECT expires_at FROM sessions WHERE no = ?3) AS alive_until,
        (SELECT min(expires_at) FROM sessions) AS first_expiry,
        EXISTS (SELECT 1 FROM marks WHERE session = ?3 AND attempt = ?4) AS ended,
        EXISTS (SELECT 1 FROM holders WHERE namespace = ?1 AND name = ?2 AND attempt = ?4 AND session = ?3) AS holds,
        (SELECT place FROM waiters WHERE session = ?3 AND attempt = ?4 AND namespace = ?1 AND name = ?2) AS position,
        coalesce((SELECT sum(weight) FROM holders WHERE namespace = ?1 AND name = ?2), 0) AS held,
        coalesce(
          (SELECT capacity FROM holders WHERE namespace = ?1 AND name = ?2 LIMIT 1),
          (SELECT capacity FROM waiters WHERE namespace = ?1 AND name = ?2 LIMIT 1)) AS capacity,
        EXISTS (SELECT 1 FROM waiters WHERE namespace = ?1 AND name = ?2) AS waited_for,
        names.closed_until,
        names.data,
        meta.next_token,
        meta.reserved_token,
        meta.watched_until
      FROM meta LEFT JOIN names ON names.namespace = ?1 AND names.name = ?2`),
    insertHolder: query(
      'INSERT INTO holders VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)',
    ),
    insertWaiter: query(`
      INSERT INTO waiters SELECT ?1, ?2,
        1 + coalesce((SELECT max(place) FROM waiters WHERE namespace = ?1 AND name = ?2), 0),
        ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12`),
    /** Whether there are more waiters than so many. */
    hasMoreWaiters: query('SELECT 1 FROM waiters WHERE namespace = ?1 AND name = ?2 LIMIT 1 OFFSET ?3'),
    grantOf: bigQuery<{ token: bigint; data: string | null }>(`
      SELECT token, previous_data AS data FROM holders
      WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4`),
    turns: bigQuery<{ name: string; attempt: string; token: bigint; data: string | null }>(`
      SELECT name, attempt, token, previous_data AS data
      FROM json_each(?3) AS asked
      CROSS JOIN holders ON namespace = ?1 AND name = asked.value ->> 0 AND attempt = asked.value ->> 1 AND session = ?2`),
    release: query<{
      capacity: number
      waited_for: 0 | 1
      owner: string | null
      watched_until: number | null
    }>(`
      DELETE FROM holders
      WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4 AND token = ?6
        AND (SELECT expires_at FROM sessions WHERE no = ?4) > ?5
      RETURNING capacity, EXISTS (SELECT 1 FROM waiters WHERE namespace = ?1 AND name = ?2) AS waited_for, owner,
        (SELECT watched_until FROM meta) AS watched_until`),
    close: query(`
      INSERT INTO names (namespace, name, capacity, closed_until) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT DO UPDATE SET closed_until = max(coalesce(closed_until, 0), excluded.closed_until)`),
    mark: query(`
      INSERT INTO marks VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT DO UPDATE SET kind = excluded.kind, detail = excluded.detail`),
    markOf: query<{ kind: string; detail: string | null }>(
      'SELECT kind, detail FROM marks WHERE session = ?1 AND attempt = ?2',
    ),
    deleteHolder: bigQuery<{ token: bigint; owner: string | null }>(`
      DELETE FROM holders WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4 RETURNING token, owner`),
    deleteWaiter: query<{ owner: string | null }>(`
      DELETE FROM waiters WHERE session = ?4 AND attempt = ?3 AND namespace = ?1 AND name = ?2 RETURNING owner`),
    setData: query<{ owner: string | null; watched_until: number | null }>(`
      INSERT INTO names (namespace, name, capacity, data)
      SELECT namespace, name, capacity, ?6 FROM holders
      WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4 AND token = ?7
        AND (SELECT expires_at FROM sessions WHERE no = ?4) > ?5
      ON CONFLICT DO UPDATE SET data = excluded.data
      RETURNING (SELECT watched_until FROM meta) AS watched_until,
        (SELECT owner FROM holders WHERE namespace = ?1 AND name = ?2 AND attempt = ?3 AND session = ?4) AS owner`),

    // --- lines ----------------------------------------------------------------------------------------------
    firstWaiter: query<FirstWaiter>(`
      SELECT place AS position, attempt, session, weight, capacity, address, owner FROM waiters
      WHERE namespace = ?1 AND name = ?2 ORDER BY place LIMIT 1`),
    promote: query(`
      INSERT INTO holders
      SELECT namespace, name, attempt, session, ?4, mode, weight, capacity, lock_delay_ms, ?5, note, ?6, owner
      FROM waiters WHERE namespace = ?1 AND name = ?2 AND place = ?3`),
    deletePosition: query('DELETE FROM waiters WHERE namespace = ?1 AND name = ?2 AND place = ?3'),
    nameRow: query<NameRow>('SELECT * FROM names WHERE namespace = ?1 AND name = ?2'),
    heldWeight: query<{ held: number; capacity: number | null }>(
      'SELECT coalesce(sum(weight), 0) AS held, min(capacity) AS capacity FROM holders WHERE namespace = ?1 AND name = ?2',
    ),
    heaviestWaiter: query<{ weight: number | null; capacity: number | null }>(
      'SELECT max(weight) AS weight, min(capacity) AS capacity FROM waiters WHERE namespace = ?1 AND name = ?2',
    ),
    /** When time alone will next change something. */
    nextDue: query<{ expiry: number | null; opening: number | null }>(`
      SELECT (SELECT min(expires_at) FROM sessions) AS expiry,
        (SELECT min(closed_until) FROM names WHERE closed_until IS NOT NULL) AS opening`),
    opened: query<NameKey>('SELECT namespace, name FROM names WHERE closed_until <= ?1'),
    deleteOpened: query('DELETE FROM names WHERE closed_until <= ?1 AND data IS NULL'),
    openNames: query('UPDATE names SET closed_until = NULL WHERE closed_until <= ?1'),
    /** What has become of waiters of this process. Those that are still queued are left out. */
    outcomes: bigQuery<{
      index: bigint
      alive: bigint | null
      token: bigint | null
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
    holders: bigQuery<HolderRow>(`
      SELECT holders.namespace, ${CLAIM_COLUMNS}, token, held_since, lock_delay_ms, expires_at
      FROM holders JOIN sessions ON sessions.no = holders.session
      WHERE holders.namespace = ?1 AND name BETWEEN ?2 AND ?3 ORDER BY name, token`),
    waiters: query<WaiterRow>(`
      SELECT waiters.namespace, ${CLAIM_COLUMNS}, waiting_since
      FROM waiters JOIN sessions ON sessions.no = waiters.session
      WHERE waiters.namespace = ?1 AND name BETWEEN ?2 AND ?3 AND expires_at > ?4 ORDER BY name, place`),
    names: query<NameRow>(
      'SELECT * FROM names WHERE namespace = ?1 AND name BETWEEN ?2 AND ?3 ORDER BY name',
    ),
    /** By the public half of the id, which is where a page goes on. */
    sessions: query<{ id: string; holder: string; ttl_ms: number; expires_at: number }>(`
      SELECT substr(id, 1, ${ID_LENGTH}) AS id, holder, ttl_ms, expires_at FROM sessions
      WHERE sessions.id > ?2 AND namespace = ?1 AND expires_at > ?3 ORDER BY sessions.id LIMIT ?4`),
    check: query(`
      SELECT 1 FROM holders JOIN sessions ON sessions.no = holders.session
      WHERE holders.namespace = ?1 AND name = ?2 AND token = ?3 AND substr(attempt, 1, ${ID_LENGTH}) = ?4 AND expires_at > ?5`),
    holdersById: bigQuery<{ attempt: string; session: bigint }>(`
      SELECT attempt, session FROM holders
      WHERE namespace = ?1 AND name = ?2 AND substr(attempt, 1, ${ID_LENGTH}) IN (SELECT value FROM json_each(?3))`),
    resizeHolders: query('UPDATE holders SET capacity = ?3 WHERE namespace = ?1 AND name = ?2'),
    resizeWaiters: query('UPDATE waiters SET capacity = ?3 WHERE namespace = ?1 AND name = ?2'),
    forgetClosed: query(
      'UPDATE names SET data = NULL WHERE namespace = ?1 AND name = ?2 AND closed_until IS NOT NULL',
    ),
    forget: query('DELETE FROM names WHERE namespace = ?1 AND name = ?2'),

    // --- the log of events ----------------------------------------------------------------------------------
    watchedUntil: query<{ watched_until: number | null }>('SELECT watched_until FROM meta'),
    openLog: query(`
      UPDATE meta SET log_id = coalesce(log_id, ?1), watched_until = max(coalesce(watched_until, 0), ?2)`),
    closeLog: query('UPDATE meta SET log_id = NULL, watched_until = NULL'),
    emptyLog: query('DELETE FROM events'),
    logEvent: query(`
      INSERT INTO events (kind, namespace, name, id, holder, owner, token)
      SELECT ?1, ?2, ?3, ?4, holder, ?6, ?7 FROM sessions WHERE no = ?5`),
    logHoldersOf: query(`
      INSERT INTO events (kind, namespace, name, id, holder, owner, token)
      SELECT ?2, holders.namespace, name, substr(attempt, 1, ${ID_LENGTH}), holder, owner, token
      FROM sessions CROSS JOIN holders WHERE holders.session = ?1 AND sessions.no = ?1`),
    logWaitersOf: query(`
      INSERT INTO events (kind, namespace, name, id, holder, owner)
      SELECT 'gave-up', waiters.namespace, name, substr(attempt, 1, ${ID_LENGTH}), holder, owner
      FROM sessions CROSS JOIN waiters WHERE sessions.no = ?1 AND waiters.session = ?1`),
    shortenLog: query('DELETE FROM events WHERE no <= (SELECT max(no) FROM events) - ?1'),
    logHead: bigQuery<LogHead>(`
      SELECT log_id, next_token, coalesce((SELECT max(no) FROM events), 0) AS last FROM meta`),
    /** At least one row, which has no event if there is none. */
    eventsFrom: bigQuery<EventRow | NoEventRow>(`
      SELECT log_id, events.* FROM meta LEFT JOIN events ON no >= ?1 WHERE meta.id = 1 ORDER BY no LIMIT ?2`),
    holdersAfter: bigQuery<WatchedHolder>(`
      SELECT name, attempt, substr(attempt, 1, ${ID_LENGTH}) AS id, holder, owner, token
      FROM holders JOIN sessions ON sessions.no = holders.session
      WHERE holders.namespace = ?1 AND (name, attempt) > (?2, ?3) AND name < ?4 AND token < ?5 AND expires_at > ?6
      ORDER BY name, attempt LIMIT ?7`),
    beginReading: query('BEGIN'),
    endReading: query('COMMIT'),
  }
}
