/**
 * The last unit is sold once: ten buyers want it at the same moment.
 *
 *     node examples/last-unit/main.ts
 */
import { createLocker } from 'holdfast'
import { postgres } from 'holdfast/postgres'
import { runExample } from '../support/example.ts'
import { rushHour } from './rush-hour.ts'
import { inOneStatement, naively, optimistically, underLease, withLockedRow } from './ways.ts'

const buyers = Array.from({ length: 10 }, (_, index) => `buyer-${index + 1}`)

await runExample({
  name: 'last-unit',
  about: `Ten buyers, one unit. First a shop that looks and then sells, which sells it to all of them. Then four ways that
sell it once: under a lease with a guard, with a locked row, optimistically, and in one statement.`,
  async play({ pool, say, check, mustLose }) {
    await pool.query('CREATE TABLE stock (sku int PRIMARY KEY, units int NOT NULL, version bigint NOT NULL)')
    await pool.query('CREATE TABLE sales (sku int NOT NULL, buyer text NOT NULL)')
    await using locker = createLocker(await postgres({ client: pool, issuer: 'shop' }))

    async function sellTheLastOne(way: typeof naively, patienceMs = 200) {
      await pool.query('TRUNCATE stock, sales')
      await pool.query('INSERT INTO stock VALUES (42, 1, 1)')
      const sell = way({ pool, locker, checkout: rushHour(buyers.length, patienceMs) })
      const answers = await Promise.all(buyers.map((buyer) => sell(buyer)))
      const { rows } = await pool.query(
        'SELECT (SELECT units FROM stock), (SELECT count(*)::int FROM sales) sold',
      )
      return { promised: answers.filter(Boolean).length, sold: rows[0].sold, units: rows[0].units }
    }

    say('Ten buyers, one unit.\n')
    // Nothing keeps the buyers of the control out, so all ten will be at the checkout together.
    const control = await sellTheLastOne(naively, 20_000)
    mustLose(`without protection it is sold ${control.sold} times`, control.sold > 1)

    for (const [how, way] of [
      ['under a lease, with a guard', underLease],
      ['with a locked row', withLockedRow],
      ['optimistically', optimistically],
      ['in one statement', inOneStatement],
    ] as const) {
      const { promised, sold, units } = await sellTheLastOne(way)
      check(
        `${how}: ${sold} sold, ${promised} promised, ${units} left`,
        promised === 1 && sold === 1 && units === 0,
      )
    }
  },
})
