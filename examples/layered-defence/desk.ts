/**
 * The desk of a marketplace that pays out what its sellers have earned, with one layer of defence upon the other:
 *
 *   idempotency      a request that comes twice is answered with what came of it the first time
 *   lock             one payout of a seller at a time, although it is longer than a transaction
 *   guard            a holder that was overtaken changes nothing in the ledger
 *   reconciliation   what was begun and not finished is compared with the bank, and settled
 *
 * Each can be left out, to see what it is for.
 */
import { createLocker, type Locker, onEvent } from 'holdfast'
import { postgresGuard } from 'holdfast/guards/postgres'
import { postgresIdempotent } from 'holdfast/lockfree/postgres'
import { postgres } from 'holdfast/postgres'
import type pg from 'pg'
import { inTransaction } from '../support/database.ts'
import type { Bank } from './bank.ts'

export const layers = ['idempotency', 'lock', 'guard', 'reconciliation'] as const
export type Layer = (typeof layers)[number]

export interface PayoutRequest {
  readonly key: string
  readonly seller: string
  readonly cents: number
}

export type Answer = 'paid' | 'declined'

export interface DeskParts {
  readonly pool: pg.Pool
  readonly bank: Bank
  /** Asks another system whether all is well with the seller, which takes its time. */
  readonly checkRisk: (request: PayoutRequest) => Promise<void>
  readonly without?: Layer
  readonly holder?: string
}

type Connection = Pick<pg.PoolClient, 'query'>
type OnLedger = <T>(effect: (tx: Connection) => Promise<T>) => Promise<T>

export const deskTables = `
  CREATE TABLE sellers (seller text PRIMARY KEY, balance int NOT NULL);
  CREATE TABLE payouts (
    id text PRIMARY KEY DEFAULT gen_random_uuid(), key text NOT NULL, seller text NOT NULL, cents int NOT NULL,
    state text NOT NULL DEFAULT 'pending')`

export async function openDesk(parts: DeskParts): Promise<Desk> {
  const backend = await postgres({ client: parts.pool, issuer: 'payouts' })
  return new Desk(parts, createLocker(backend, { ttlMs: 60_000, holder: parts.holder ?? 'desk' }))
}

export class Desk implements AsyncDisposable {
  readonly caught: Record<Layer, number> = { idempotency: 0, lock: 0, guard: 0, reconciliation: 0 }
  readonly locker: Locker<'fenced'>
  readonly #parts: DeskParts
  readonly #idempotent
  readonly #guard
  readonly #listening = [
    onEvent('waiting', () => void this.caught.lock++),
    onEvent('guard-refused', () => void this.caught.guard++),
  ]

  constructor(parts: DeskParts, locker: Locker<'fenced'>) {
    this.#parts = parts
    this.locker = locker
    this.#idempotent = postgresIdempotent({ client: parts.pool })
    this.#guard = postgresGuard({ client: parts.pool, issuers: ['payouts'] })
  }

  async pay(request: PayoutRequest): Promise<Answer> {
    const work = () => this.#alone(request.seller, (onLedger) => this.#payOut(request, onLedger))
    if (this.#parts.without === 'idempotency') return work()
    let isFirst = false
    const answer = await this.#idempotent({ scope: 'payouts', key: request.key, payload: request }, () => {
      isFirst = true
      return work()
    })
    if (!isFirst) this.caught.idempotency++
    return answer
  }

  async #payOut(request: PayoutRequest, onLedger: OnLedger): Promise<Answer> {
    const { bank, pool, checkRisk } = this.#parts
    const { key, seller, cents } = request
    const balance = await onLedger(async (tx) => {
      const { rows } = await tx.query('SELECT balance FROM sellers WHERE seller = $1', [seller])
      return Number(rows[0].balance)
    })
    if (balance < cents) return 'declined'
    await checkRisk(request)

    // The money leaves the ledger before it leaves the bank: a crash in between can be settled by looking at both.
    const payout = await onLedger(async (tx) => {
      await tx.query('UPDATE sellers SET balance = $2 WHERE seller = $1', [seller, balance - cents])
      const { rows } = await tx.query(
        'INSERT INTO payouts (key, seller, cents) VALUES ($1, $2, $3) RETURNING id',
        [key, seller, cents],
      )
      return String(rows[0].id)
    })
    await bank.transfer(payout, seller, cents)
    await pool.query(`UPDATE payouts SET state = 'sent' WHERE id = $1`, [payout])
    return 'paid'
  }

  /**
   * Settles what was begun and not finished. It takes its turn, so it does not meddle with what is in flight. The bank
   * has no guard: if a process may be frozen rather than dead, wait with the cancelling until the bank can no longer get
   * its transfer.
   */
  async reconcile(): Promise<void> {
    const { pool, bank, without } = this.#parts
    if (without === 'reconciliation') return
    const { rows: begun } = await pool.query(`SELECT id, seller, cents FROM payouts WHERE state = 'pending'`)
    for (const { id, seller, cents } of begun) {
      await this.#alone(seller, async (onLedger) => {
        const state = (await bank.hasTransferred(id)) ? 'sent' : 'cancelled'
        await onLedger(async (tx) => {
          const { rowCount } = await tx.query(
            `UPDATE payouts SET state = $2 WHERE id = $1 AND state = 'pending'`,
            [id, state],
          )
          if (rowCount !== 1) return
          this.caught.reconciliation++
          if (state === 'cancelled')
            await tx.query('UPDATE sellers SET balance = balance + $2 WHERE seller = $1', [seller, cents])
        })
      })
    }
  }

  /** One at a time for each seller, and the ledger refuses holders that were overtaken. */
  #alone<T>(seller: string, work: (onLedger: OnLedger) => Promise<T>): Promise<T> {
    const { pool, without } = this.#parts
    const unguarded: OnLedger = (effect) => inTransaction(pool, effect)
    if (without === 'lock') return work(unguarded)
    return this.locker.withLease(`seller/${seller}`, (lease) =>
      work(without === 'guard' ? unguarded : (effect) => this.#guard.run(lease, effect)),
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stop of this.#listening) stop()
    await this.locker.close()
  }
}
