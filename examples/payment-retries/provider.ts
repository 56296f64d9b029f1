/**
 * A payment provider. It stands for a system elsewhere: what it has charged stays charged, whatever becomes of us, and no
 * transaction of ours includes it. This one knows no idempotency keys; it only lets us look what has been charged.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'

export interface Charge {
  readonly id: string
}

export class Provider {
  static readonly tables = `
    CREATE SCHEMA provider;
    CREATE TABLE provider.charges (
      id text PRIMARY KEY DEFAULT gen_random_uuid(), reference text NOT NULL, cents int NOT NULL)`

  readonly #pool: pg.Pool

  constructor(pool: pg.Pool) {
    this.#pool = pool
  }

  async charge(reference: string, cents: number): Promise<Charge> {
    await sleep(100)
    const { rows } = await this.#pool.query(
      'INSERT INTO provider.charges (reference, cents) VALUES ($1, $2) RETURNING id',
      [reference, cents],
    )
    return rows[0]
  }

  async find(reference: string): Promise<Charge | undefined> {
    const { rows } = await this.#pool.query('SELECT id FROM provider.charges WHERE reference = $1', [
      reference,
    ])
    return rows[0]
  }
}
