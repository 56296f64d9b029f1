/** Idempotency keys in PostgreSQL. Each step is one statement, so it works behind a pooler in transaction mode. */

import type { Clock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { outcomeOf } from '../../../base/errors.ts'
import { withLimit } from '../../../base/within.ts'
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
  quoteIdentifier,
  type Row,
  type SqlTransaction,
  serverStateOf,
  sqlRunnerOf,
} from '../client/index.ts'
import { keyStatements, keyTables } from './keys-sql.ts'
import { type Home, Part } from './part.ts'

/** The server has waited for a lock for as long as `lock_timeout` allows, and undone the statement. */
const LOCK_NOT_AVAILABLE = '55P03'

export class PostgresKeys implements KeyStore<SqlTransaction> {
  readonly #part: Part
  readonly #sql: ReturnType<typeof keyStatements>
  readonly #clock: Clock

  constructor(home: Home) {
    this.#clock = home.clock
    this.#part = new Part(keyTables, home)
    this.#sql = keyStatements(quoteIdentifier(home.schema))
  }

  async issuer(): Promise<string> {
    return `idempotency:${await this.#part.origin()}`
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const { scope, key, payload, attempt, ttlMs, keepMs } = request
    const parameters = [scope, key, payload, attempt, String(ttlMs), String(keepMs)]
    // The server waits less long for a lock. So no connection is free, or the server does not answer: the next look has
    // another connection, and this one is given up where the client can do that.
    await this.#part.origin()
    const rows = await withLimit(this.#clock, defaults.callTimeoutMs, async (limit) => {
      try {
        return await this.#part.query(this.#sql.claim, parameters, undefined, { signal: limit.signal })
      } catch (error) {
        if (serverStateOf(error) === LOCK_NOT_AVAILABLE) return null
        if (limit.cancelled && outcomeOf(error) === 'not-applied') return null
        throw error
      }
    })
    if (rows === null) return { kind: 'blocked' }
    const [row = []] = rows
    const [kind, token, body, leftMs] = row
    switch (kind) {
      case 'claimed':
      case 'taken-over':
        return { kind: 'claimed', token: BigInt(String(token)), isTakeover: kind === 'taken-over' }
      case 'done':
      case 'failed':
        return { kind, body: String(body) }
      case 'reused':
        return { kind }
      default:
        return { kind: 'busy', leftMs: Number(leftMs) }
    }
  }

  async extend({ scope, key, attempt }: Claimed, ttlMs: number, keepMs: number): Promise<boolean> {
    const parameters = [scope, key, attempt, String(ttlMs), String(keepMs)]
    return (await this.#part.query(this.#sql.extend, parameters)).length === 1
  }

  async settle(
    { scope, key, attempt }: Claimed,
    { kind, body, keepMs }: Outcome,
    tx?: SqlTransaction,
  ): Promise<Standing> {
    const runner = tx === undefined ? undefined : sqlRunnerOf(tx)
    const parameters = [scope, key, attempt, kind, body, String(keepMs)]
    return standingOf(await this.#part.query(this.#sql.settle, parameters, runner))
  }

  async abandon({ scope, key, attempt }: Claimed, { begun, keepMs }: Abandoned): Promise<Standing> {
    const parameters = [scope, key, attempt, String(begun), String(keepMs)]
    return standingOf(await this.#part.query(this.#sql.abandon, parameters))
  }

  async prune(): Promise<number> {
    const [row] = await this.#part.query(this.#sql.prune, [])
    return Number(row?.[0])
  }

  async close(): Promise<void> {
    // The client is the user's.
  }
}

/** The attempt's row after a statement, as its state and body; no row if another has the claim. */
function standingOf([row]: readonly Row[]): Standing {
  if (row === undefined) return { kind: 'lost' }
  const [state, body] = row
  return state === 'done' || state === 'failed' ? { kind: state, body: String(body) } : { kind: 'none' }
}
