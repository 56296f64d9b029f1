/**
 * Idempotency keys in a SQLite file, between all processes of one machine. Every step is one transaction that has the
 * file for itself (BEGIN IMMEDIATE), so it needs no locks of its own.
 *
 * Claims run by the monotonic clock, which all processes of a machine share and which cannot be set. It starts again with the
 * machine: a claim that lies in the future is of before a reboot, and over. Outcomes are kept by the wall clock; a step of
 * it can only make them last longer or shorter.
 */

import type { Clock } from '../../../base/clock.ts'
import { ClosedError, InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import type {
  Abandoned,
  ClaimAnswer,
  Claimed,
  ClaimRequest,
  KeyStore,
  Outcome,
  Standing,
} from '../../../lockfree/key-store.ts'
import {
  fileOf,
  isInTransaction,
  isSqliteDatabase,
  ownStep,
  prepare,
  type SqliteDatabase,
  transact,
} from '../client/index.ts'

const LAYOUT_VERSION = 1n
const WHO = 'store of idempotency keys'

const tables = `
  CREATE TABLE IF NOT EXISTS holdfast_idempotency_layout (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    version    INTEGER NOT NULL,
    origin     TEXT NOT NULL,
    last_token INTEGER NOT NULL
  ) STRICT;

  CREATE TABLE IF NOT EXISTS holdfast_idempotency (
    scope          TEXT NOT NULL,
    key            TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('working', 'done', 'failed')),
    attempt        TEXT NOT NULL,
    payload        TEXT,
    body           TEXT,
    lease_from_ms  INTEGER,
    lease_until_ms INTEGER,
    expires_ms     INTEGER NOT NULL,
    begun_before   INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
  ) STRICT, WITHOUT ROWID;

  CREATE INDEX IF NOT EXISTS holdfast_idempotency_by_expiry ON holdfast_idempotency (expires_ms);
`

// Without numbered parameters: Node 22.13 gives them no value.
const statements = {
  layout: 'SELECT version, origin FROM holdfast_idempotency_layout',
  begin:
    'INSERT OR IGNORE INTO holdfast_idempotency_layout (only_row, version, origin, last_token) VALUES (1, ?, ?, 0)',
  draw: 'UPDATE holdfast_idempotency_layout SET last_token = last_token + 1 RETURNING last_token AS token',
  find: `
    SELECT state, attempt, payload, body, lease_from_ms AS fromMs, lease_until_ms AS untilMs, expires_ms AS expiresMs,
      begun_before AS begunBefore
    FROM holdfast_idempotency WHERE scope = ? AND key = ?`,
  claim: `
    INSERT INTO holdfast_idempotency
      (scope, key, state, attempt, payload, body, lease_from_ms, lease_until_ms, expires_ms, begun_before)
    VALUES (?, ?, 'working', ?, ?, NULL, ?, ?, ?, ?)
    ON CONFLICT (scope, key) DO UPDATE SET state = 'working', attempt = excluded.attempt, payload = excluded.payload,
      body = NULL, lease_from_ms = excluded.lease_from_ms, lease_until_ms = excluded.lease_until_ms,
      expires_ms = excluded.expires_ms, begun_before = excluded.begun_before`,
  extend: `
    UPDATE holdfast_idempotency SET lease_from_ms = ?, lease_until_ms = ?, expires_ms = max(expires_ms, ?)
    WHERE scope = ? AND key = ? AND attempt = ? AND state = 'working' AND lease_from_ms <= ? AND lease_until_ms > ?`,
  own: `SELECT state, body FROM holdfast_idempotency WHERE scope = ? AND key = ? AND attempt = ?`,
  settle: `
    UPDATE holdfast_idempotency SET state = ?, body = ?, lease_from_ms = NULL, lease_until_ms = NULL, expires_ms = ?
    WHERE scope = ? AND key = ? AND attempt = ? AND state = 'working'`,
  forget: `
    DELETE FROM holdfast_idempotency
    WHERE scope = ? AND key = ? AND attempt = ? AND state = 'working' AND begun_before = 0`,
  endLease: `
    UPDATE holdfast_idempotency SET lease_until_ms = lease_from_ms, expires_ms = max(expires_ms, ?)
    WHERE scope = ? AND key = ? AND attempt = ? AND state = 'working'`,
  prune: `
    DELETE FROM holdfast_idempotency WHERE (scope, key) IN (
      SELECT scope, key FROM holdfast_idempotency
      WHERE expires_ms <= ? AND (lease_until_ms IS NULL OR NOT (lease_from_ms <= ? AND lease_until_ms > ?))
      ORDER BY expires_ms LIMIT 1000)`,
}

interface FoundRow {
  readonly state: 'working' | 'done' | 'failed'
  readonly attempt: string
  readonly payload: string | null
  readonly body: string | null
  readonly fromMs: bigint | null
  readonly untilMs: bigint | null
  readonly expiresMs: bigint
  /** Whether another caller may have begun the work under an earlier claim. */
  readonly begunBefore: bigint
}

export class SqliteKeys implements KeyStore<SqliteDatabase> {
  readonly #database: SqliteDatabase & { close(): void }
  readonly #clock: Clock
  readonly #random: Random
  readonly #queue = new SerialQueue()
  #origin: string | undefined
  #closed = false

  /** The connection is this store's own: no statements of others come between. */
  constructor(database: SqliteDatabase & { close(): void }, clock: Clock, random: Random) {
    this.#database = database
    this.#clock = clock
    this.#random = random
  }

  async issuer(): Promise<string> {
    if (this.#origin === undefined) await this.#step(() => {})
    return `idempotency:${this.#origin}`
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const { scope, key, payload, attempt, ttlMs, keepMs } = request
    return this.#step((database) => {
      const found = prepare(database, statements.find).get(scope, key) as FoundRow | undefined
      const nowMs = this.#monotonicMs()
      const wallMs = this.#wallMs()
      const isAlive =
        found?.state === 'working' && (found.fromMs ?? 0n) <= nowMs && (found.untilMs ?? 0n) > nowMs
      const isKept = found !== undefined && found.expiresMs > wallMs
      if (found !== undefined && (isAlive || isKept)) {
        if (found.payload !== payload) return { kind: 'reused' }
        if (found.state !== 'working') return { kind: found.state, body: String(found.body) }
        if (isAlive && found.attempt !== attempt)
          return { kind: 'busy', leftMs: Number((found.untilMs ?? 0n) - nowMs) }
      }
      const { token } = prepare(database, statements.draw).get() as { token: bigint }
      const ttl = BigInt(Math.round(ttlMs))
      const expiresMs = wallMs + ttl + BigInt(Math.round(keepMs))
      const isTakeover = found?.state === 'working' && (found.attempt !== attempt || found.begunBefore === 1n)
      prepare(database, statements.claim).run(
        scope,
        key,
        attempt,
        payload,
        nowMs,
        nowMs + ttl,
        expiresMs,
        isTakeover ? 1n : 0n,
      )
      return { kind: 'claimed', token, isTakeover }
    })
  }

  extend(claimed: Claimed, ttlMs: number, keepMs: number): Promise<boolean> {
    const { scope, key, attempt } = claimed
    return this.#step((database) => {
      const nowMs = this.#monotonicMs()
      const untilMs = nowMs + BigInt(Math.round(ttlMs))
      const keptUntilMs = this.#wallMs() + BigInt(Math.round(ttlMs)) + BigInt(Math.round(keepMs))
      const parameters = [nowMs, untilMs, keptUntilMs, scope, key, attempt, nowMs, nowMs]
      if (isOne(prepare(database, statements.extend).run(...parameters))) return true
      return standingOf(database, claimed).kind === 'done'
    })
  }

  async settle(claimed: Claimed, outcome: Outcome, tx?: SqliteDatabase): Promise<Standing> {
    if (tx === undefined) return this.#step((database) => this.#settle(database, claimed, outcome))
    if (!isSqliteDatabase(tx) || !isInTransaction(tx))
      throw new InvalidArgumentError('tx', 'must be a connection of node:sqlite inside a transaction.')
    if (fileOf(tx) === '' || fileOf(tx) !== fileOf(this.#database))
      throw new InvalidArgumentError('tx', 'must be a connection to the file in which the keys are.')
    return ownStep(tx, () => this.#settle(tx, claimed, outcome), WHO)
  }

  async abandon(claimed: Claimed, { begun, keepMs }: Abandoned): Promise<Standing> {
    const { scope, key, attempt } = claimed
    return this.#step((database) => {
      if (!begun) prepare(database, statements.forget).run(scope, key, attempt)
      // A row that is still there was begun, now or before.
      const expiresMs = this.#wallMs() + BigInt(Math.round(keepMs))
      prepare(database, statements.endLease).run(expiresMs, scope, key, attempt)
      return standingOf(database, claimed)
    })
  }

  prune(): Promise<number> {
    return this.#step((database) => {
      const nowMs = this.#monotonicMs()
      return Number(prepare(database, statements.prune).run(this.#wallMs(), nowMs, nowMs).changes)
    })
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.#queue.run(async () => this.#database.close())
  }

  #settle(database: SqliteDatabase, claimed: Claimed, outcome: Outcome): Standing {
    const { scope, key, attempt } = claimed
    const { kind, body, keepMs } = outcome
    const expiresMs = this.#wallMs() + BigInt(Math.round(keepMs))
    prepare(database, statements.settle).run(kind, body, expiresMs, scope, key, attempt)
    return standingOf(database, claimed)
  }

  async #step<T>(body: (database: SqliteDatabase) => T): Promise<T> {
    if (this.#closed) throw new ClosedError('The store of idempotency keys')
    const database = this.#database
    const terms = { database, clock: this.#clock, signal: undefined, who: WHO }
    return this.#queue.run(async () => {
      let origin = this.#origin
      const work = () => {
        origin ??= this.#ensureLayout(database)
        return body(database)
      }
      const result = await transact(terms, async () => ownStep(database, work, WHO))
      // The origin is kept from here on, not before: a transaction that fails undoes the tables.
      this.#origin = origin
      return result
    })
  }

  #ensureLayout(database: SqliteDatabase): string {
    database.exec(tables)
    prepare(database, statements.begin).run(LAYOUT_VERSION, this.#random.id())
    const { version, origin } = prepare(database, statements.layout).get() as {
      version: bigint
      origin: string
    }
    if (version !== LAYOUT_VERSION)
      throw new UnsupportedError(
        `The idempotency keys in this file have layout ${version}, and this release of Holdfast knows ` +
          `${LAYOUT_VERSION}. Update Holdfast in every process that uses the file.`,
      )
    return origin
  }

  #monotonicMs(): bigint {
    return BigInt(Math.round(this.#clock.monotonicMs()))
  }

  #wallMs(): bigint {
    return BigInt(Math.round(this.#clock.wallMs()))
  }
}

function standingOf(database: SqliteDatabase, { scope, key, attempt }: Claimed): Standing {
  const row = prepare(database, statements.own).get(scope, key, attempt) as
    | Pick<FoundRow, 'state' | 'body'>
    | undefined
  if (row === undefined) return { kind: 'lost' }
  return row.state === 'working' ? { kind: 'none' } : { kind: row.state, body: String(row.body) }
}

function isOne({ changes }: { readonly changes: number | bigint }): boolean {
  return Number(changes) === 1
}
