/**
 * Run a scheduled job once, not on every replica: twenty processes wake up to write the invoices of the month.
 *
 *     node examples/monthly-invoice/main.ts
 */
import { runExample } from '../support/example.ts'
import type { Protection } from './messages.ts'
import { type Misfortune, Replicas } from './replicas.ts'

const replicaCount = 20
const customers = ['Ada', 'Ben', 'Cleo', 'Dan', 'Eve']

await runExample({
  name: 'monthly-invoice',
  about: `Twenty processes wake up to write the invoices of the month. Without a lock, and with a lock that is not checked
where the invoices are, customers are billed more than once. With a lease and a guard each month is billed once: when
nothing happens, when the process at it is killed, and when it freezes, is overtaken, and goes on.`,
  async play({ url, pool, say, check, mustLose }) {
    await pool.query('CREATE TABLE contracts (customer text PRIMARY KEY, cents int NOT NULL)')
    await pool.query('INSERT INTO contracts SELECT unnest($1::text[]), 4200', [customers])
    // No unique key on purpose: if the job ran twice, the table would show it.
    await pool.query('CREATE TABLE invoices (month text, customer text, cents int, replica text)')

    say(`Starting ${replicaCount} replicas …\n`)
    using replicas = await Replicas.start(replicaCount, url)

    async function bill(month: string, protection: Protection, misfortune: Misfortune) {
      const ended = await replicas.wakeFor({ month, protection }, misfortune)
      const { rows } = await pool.query<{ bills: number }>(
        'SELECT count(invoices)::int AS bills FROM contracts LEFT JOIN invoices USING (customer) WHERE month = $1 GROUP BY customer',
        [month],
      )
      const found = [...ended.outcomes.values()].filter((outcome) => outcome === 'found it done').length
      const once = rows.length === customers.length && rows.every(({ bills }) => bills === 1)
      return { ...ended, found, once, bills: Math.max(...rows.map(({ bills }) => bills)) }
    }

    say('August, no lock: each replica looks whether the month is billed, and if not, bills it.')
    const august = await bill('2026-08', 'none', 'together')
    mustLose(`every customer got ${august.bills} bills`, august.bills > 1)

    say('\nSeptember, a lease but no guard: the replica at it freezes, is overtaken, and goes on.')
    const september = await bill('2026-09', 'lease', 'frozen')
    mustLose(`every customer got ${september.bills} bills`, september.bills > 1)

    say('\nOctober, a lease and a guard.')
    const october = await bill('2026-10', 'lease and guard', 'nothing')
    check('every customer got one bill', october.once)
    check(`one replica ran the job, ${october.found} found it done`, october.found === replicas.count - 1)

    say('\nNovember, the same: the replica at it is killed.')
    const november = await bill('2026-11', 'lease and guard', 'killed')
    check(`${november.victim} was killed, and every customer got one bill`, november.once)
    check(`one of the others ran it, ${november.found} found it done`, november.found === replicas.count - 1)

    say('\nDecember, the same: the replica at it freezes, is overtaken, and goes on.')
    const december = await bill('2026-12', 'lease and guard', 'frozen')
    check('every customer got one bill', december.once)
    check(
      `the database refused what ${december.victim} wrote too late`,
      december.victim !== undefined && december.refused.includes(december.victim),
    )
  },
})
