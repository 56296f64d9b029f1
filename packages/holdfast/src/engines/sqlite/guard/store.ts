/**
 * A guard's memory, as rows. Every statement is parameterised, and integers are read as bigint: a token has
 * 63 bits, and a double only 53 (T42, tokens as doubles).
 */

import type { Clock } from '../../../base/clock.ts'
import { makeFence } from '../../../base/fence.ts'
import type { GuardMemory } from '../../../guards/checkpoint.ts'
import type { Floor, Remembered } from '../../../guards/rule.ts'
import { prepare, type SqliteDatabase, type SqliteStatement } from '../client/index.ts'

const statements = {
  pinned: 'SELECT issuer FROM holdfast_guard_issuers WHERE guard = ? AND pinned = 1',
  pin: `
    INSERT INTO holdfast_guard_issuers (guard, issuer, pinned) VALUES (?, ?, 1)
    ON CONFLICT (guard, issuer) DO UPDATE SET pinned = 1`,
  floor: `
    SELECT floor_token AS token, floor_grant AS "grant" FROM holdfast_guard_issuers
    WHERE guard = ? AND issuer = ? AND floor_token IS NOT NULL`,
  recall: `
    SELECT issuer, mode, token, grant_id AS "grant", exclusive_token AS exclusiveToken FROM holdfast_guard_names
    WHERE guard = ? AND name = ?`,
  remember: `
    INSERT INTO holdfast_guard_names (guard, name, issuer, mode, token, grant_id, exclusive_token, touched_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (guard, name) DO UPDATE SET
      mode = excluded.mode, token = excluded.token, grant_id = excluded.grant_id,
      exclusive_token = excluded.exclusive_token, touched_ms = excluded.touched_ms`,
  // With max(), SQLite takes the other columns from the row that has the maximum.
  raiseFloors: `
    INSERT INTO holdfast_guard_issuers (guard, issuer, floor_token, floor_grant)
    SELECT guard, issuer, max(token), grant_id FROM holdfast_guard_names
    WHERE guard = ? AND touched_ms <= ? GROUP BY issuer
    ON CONFLICT (guard, issuer) DO UPDATE SET
      floor_token = excluded.floor_token, floor_grant = excluded.floor_grant
    WHERE floor_token IS NULL OR excluded.floor_token > floor_token`,
  forget: 'DELETE FROM holdfast_guard_names WHERE guard = ? AND touched_ms <= ?',
}

type StatementName = keyof typeof statements

export class SqliteStore implements GuardMemory {
  readonly #database: SqliteDatabase
  readonly #guard: string
  readonly #clock: Clock
  readonly #prepared = new Map<StatementName, SqliteStatement>()

  constructor(database: SqliteDatabase, guard: string, clock: Clock) {
    this.#database = database
    this.#guard = guard
    this.#clock = clock
  }

  pinnedIssuer(): string | null {
    const row = this.#statement('pinned').get(this.#guard) as { issuer: string } | undefined
    return row?.issuer ?? null
  }

  pinIssuer(issuer: string): void {
    this.#statement('pin').run(this.#guard, issuer)
  }

  recall(name: string): Remembered | null {
    const row = this.#statement('recall').get(this.#guard, name) as NameRow | undefined
    if (row === undefined) return null
    const { issuer, mode, token, grant, exclusiveToken } = row
    return { highest: makeFence({ issuer, name, mode, token, grant }), exclusiveToken }
  }

  floorOf(issuer: string): Floor | null {
    const row = this.#statement('floor').get(this.#guard, issuer) as Floor | undefined
    return row ?? null
  }

  remember(name: string, { highest, exclusiveToken }: Remembered): void {
    const { issuer, mode, token, grant } = highest
    this.#statement('remember').run(
      this.#guard,
      name,
      issuer,
      mode,
      token,
      grant,
      exclusiveToken,
      this.#wallMs(),
    )
  }

  /** Only inside a transaction: between the two statements nothing may be remembered. */
  forget(untouchedForMs: number): number {
    const untilMs = this.#wallMs() - BigInt(Math.round(untouchedForMs))
    this.#statement('raiseFloors').run(this.#guard, untilMs)
    return Number(this.#statement('forget').run(this.#guard, untilMs).changes)
  }

  // The monotonic clock starts again with the machine. A stepped wall clock forgets too early or too late: both
  // are safe, because the floor takes the place of what was forgotten.
  #wallMs(): bigint {
    return BigInt(Math.round(this.#clock.wallMs()))
  }

  #statement(name: StatementName): SqliteStatement {
    let statement = this.#prepared.get(name)
    if (statement === undefined) {
      statement = prepare(this.#database, statements[name])
      this.#prepared.set(name, statement)
    }
    return statement
  }
}

interface NameRow {
  readonly issuer: string
  readonly mode: 'exclusive' | 'shared'
  readonly token: bigint
  readonly grant: string
  readonly exclusiveToken: bigint | null
}
