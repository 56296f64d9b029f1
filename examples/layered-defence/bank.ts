/** A bank: a system elsewhere. What it has transferred is gone, and no transaction of ours includes it. */
import type pg from 'pg'

export interface Bank {
  transfer(reference: string, seller: string, cents: number): Promise<void>
  hasTransferred(reference: string): Promise<boolean>
}

export const bankTables = `
  CREATE SCHEMA bank;
  CREATE TABLE bank.transfers (reference text NOT NULL, seller text NOT NULL, cents int NOT NULL)`

export function openBank(pool: pg.Pool): Bank {
  return {
    async transfer(reference, seller, cents) {
      await pool.query('INSERT INTO bank.transfers VALUES ($1, $2, $3)', [reference, seller, cents])
    },
    async hasTransferred(reference) {
      const { rowCount } = await pool.query('SELECT FROM bank.transfers WHERE reference = $1', [reference])
      return rowCount !== 0
    },
  }
}
