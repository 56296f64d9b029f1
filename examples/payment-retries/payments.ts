/** Payments of a shop: one way that charges once, and two that do not. */
import type { IdempotentOptions } from 'holdfast/lockfree'
import { postgresIdempotent } from 'holdfast/lockfree/postgres'
import type pg from 'pg'
import { inTransaction } from '../support/database.ts'
import type { Charge, Provider } from './provider.ts'

export interface Order {
  readonly id: string
  readonly cents: number
}

export interface Receipt {
  readonly order: string
  readonly charge: string
}

/** `key` comes from the client, which sends the same one again when it repeats a request. */
export type Pay = (key: string, order: Order) => Promise<Receipt>

/** How to do it. */
export function payOnce(pool: pg.Pool, provider: Provider, options: IdempotentOptions = {}): Pay {
  const idempotent = postgresIdempotent({ client: pool })
  return (key, order) =>
    idempotent(
      { scope: 'payments', key, payload: order },
      async ({ isTakeover, store }) => {
        // Another caller has begun this before, and died, or was too slow, or could not write it into our books: the money may
        // have moved. (A provider that takes idempotency keys makes this simpler, and covers the case that the other one
        // is still at it: hand the key on.)
        const begun = isTakeover ? await provider.find(key) : undefined
        const charge = begun ?? (await provider.charge(key, order.cents))

        // The entry in our books and the answer for later callers are one transaction.
        return inTransaction(pool, async (tx) => {
          const receipt = await book(tx, order, charge)
          await store(tx, receipt)
          return receipt
        })
      },
      options,
    )
}

/** A takeover done wrong: it takes for granted that nothing has happened yet. */
export function payWithoutLooking(pool: pg.Pool, provider: Provider, options: IdempotentOptions = {}): Pay {
  const idempotent = postgresIdempotent({ client: pool })
  return (key, order) =>
    idempotent(
      { scope: 'payments', key, payload: order },
      async () => book(pool, order, await provider.charge(key, order.cents)),
      options,
    )
}

export function payNaively(pool: pg.Pool, provider: Provider): Pay {
  return async (key, order) => book(pool, order, await provider.charge(key, order.cents))
}

async function book(tx: Pick<pg.PoolClient, 'query'>, order: Order, charge: Charge): Promise<Receipt> {
  await tx.query('INSERT INTO payments (order_id, cents, charge) VALUES ($1, $2, $3)', [
    order.id,
    order.cents,
    charge.id,
  ])
  return { order: order.id, charge: charge.id }
}
