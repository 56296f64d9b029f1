/**
 * Ways to sell from a stock of which little is left. Each is a function that answers whether this buyer has got one.
 *
 * All of them look whether there is a unit, go through a checkout that takes time, and then take the unit.
 */
import type { Locker } from 'holdfast'
import { postgresGuard } from 'holdfast/guards/postgres'
import { optimisticUpdate } from 'holdfast/lockfree'
import { lockRow } from 'holdfast/postgres/advisory'
import type pg from 'pg'
import { inTransaction } from '../support/database.ts'

export type Sell = (buyer: string) => Promise<boolean>

interface Shop {
  readonly pool: pg.Pool
  readonly locker: Locker<'fenced'>
  readonly checkout: () => Promise<void>
}

type Connection = Pick<pg.PoolClient, 'query'>

/** The way of many programs: look, then write. Between the two, all other buyers look, too. */
export function naively({ pool, checkout }: Shop): Sell {
  return async (buyer) => {
    const units = await unitsLeft(pool)
    if (units < 1) return false
    await checkout()
    await take(pool, buyer, units)
    return true
  }
}

/** One buyer at a time, also when the checkout is long or calls other systems. The guard refuses who was overtaken. */
export function underLease({ pool, locker, checkout }: Shop): Sell {
  const guard = postgresGuard({ client: pool, issuers: ['shop'] })
  return (buyer) =>
    locker.withLease('sku:42', async (lease) => {
      const units = await guard.run(lease, (tx) => unitsLeft(tx))
      if (units < 1) return false
      await checkout()
      await guard.run(lease, (tx) => take(tx, buyer, units))
      return true
    })
}

/** For a short checkout, and everything in one database: the transaction keeps the row to itself. */
export function withLockedRow({ pool, checkout }: Shop): Sell {
  return (buyer) =>
    inTransaction(pool, async (tx) => {
      const found = await lockRow(tx, { table: 'stock', where: { sku: 42 }, columns: ['units'] })
      if (found.kind === 'not-found' || Number(found.row.units) < 1) return false
      await checkout()
      await take(tx, buyer, Number(found.row.units))
      return true
    })
}

/** No buyer waits. Of the buyers that looked at the same version one can write; the others look again. */
export function optimistically({ pool, checkout }: Shop): Sell {
  return async (buyer) => {
    const outcome = await optimisticUpdate(
      async () => {
        const { rows } = await pool.query('SELECT units, version FROM stock WHERE sku = 42 AND units > 0')
        return rows[0]
      },
      async ({ units, version }) => {
        await checkout()
        return inTransaction(pool, async (tx) => {
          const write = 'UPDATE stock SET units = $1, version = version + 1 WHERE sku = 42 AND version = $2'
          const { rowCount } = await tx.query(write, [units - 1, version])
          if (rowCount === 1) await recordSale(tx, buyer)
          return rowCount === 1
        })
      },
    )
    return outcome.kind === 'updated'
  }
}

/** Where the decision fits into one statement, nothing else is needed. */
export function inOneStatement({ pool, checkout }: Shop): Sell {
  return async (buyer) => {
    await checkout()
    return inTransaction(pool, async (tx) => {
      const { rowCount } = await tx.query('UPDATE stock SET units = units - 1 WHERE sku = 42 AND units > 0')
      if (rowCount === 1) await recordSale(tx, buyer)
      return rowCount === 1
    })
  }
}

async function unitsLeft(connection: Connection): Promise<number> {
  const { rows } = await connection.query('SELECT units FROM stock WHERE sku = 42')
  return rows[0].units
}

async function take(connection: Connection, buyer: string, unitsSeen: number): Promise<void> {
  await connection.query('UPDATE stock SET units = $1 WHERE sku = 42', [unitsSeen - 1])
  await recordSale(connection, buyer)
}

async function recordSale(connection: Connection, buyer: string): Promise<void> {
  await connection.query('INSERT INTO sales (sku, buyer) VALUES (42, $1)', [buyer])
}
