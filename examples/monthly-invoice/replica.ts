/** One replica of a billing service. Its clock strikes at the same time as that of the nineteen others. */
import { readSync } from 'node:fs'
import { createLocker, isHoldfastError } from 'holdfast'
import { postgresGuard } from 'holdfast/guards/postgres'
import { postgres } from 'holdfast/postgres'
import pg from 'pg'
import type { Order, Outcome, Protection, Report } from './messages.ts'

const [replica = '', url = ''] = process.argv.slice(2)

const pool = new pg.Pool({ connectionString: url, max: 2 })
const backend = await postgres({ client: pool, issuer: 'billing' })
// A service would leave the TTL at 15 s. Here the reader waits until the frozen replica is given up.
const locker = createLocker(backend, { holder: replica, ttlMs: 1_000 })
const guard = postgresGuard({ client: pool, issuers: ['billing'] })

type Connection = Pick<pg.PoolClient, 'query'>
type OnDatabase = <T>(effect: (connection: Connection) => Promise<T>) => Promise<T>

const unguarded: OnDatabase = (effect) => effect(pool)

/** The last is how to do it; the others are there to lose. */
const monthEnd: Record<Protection, (month: string) => Promise<Outcome>> = {
  none: (month) => runOnce(month, unguarded),
  lease: (month) => locker.withLease(`invoices/${month}`, () => runOnce(month, unguarded)),
  'lease and guard': (month) =>
    locker.withLease(`invoices/${month}`, (lease) =>
      // `guard.run(lease, …)` also asks the lease, and this process would notice by its own clock that it is late. The
      // bare fence leaves it to the database, as if the freeze came after that last look at the clock.
      runOnce(month, (effect) => guard.run(lease.fence, effect)),
    ),
}

async function runOnce(month: string, onDatabase: OnDatabase): Promise<Outcome> {
  // Under the lease, not before it: a replica that waited for the lease finds what its predecessor has left.
  const isDone = await onDatabase(async (tx) => {
    const { rowCount } = await tx.query('SELECT FROM invoices WHERE month = $1 LIMIT 1', [month])
    return rowCount === 1
  })
  if (isDone) return 'found it done'
  holdBreath()
  // All invoices of the month in one statement: there are all of them or none.
  await onDatabase((tx) =>
    tx.query(
      'INSERT INTO invoices (month, customer, cents, replica) SELECT $1, customer, cents, $2 FROM contracts',
      [month, replica],
    ),
  )
  return 'ran'
}

/** A replica that loses its lease, or is refused, begins again, and finds what has been done meanwhile. */
async function runUntilDone({ month, protection }: Order): Promise<Outcome> {
  for (;;) {
    try {
      return await monthEnd[protection](month)
    } catch (error) {
      const isLost = isHoldfastError(error, 'LEASE_LOST')
      // It was lost when the work had been done already: what is written is written.
      if (isLost && error.body?.status === 'fulfilled') return error.body.value as Outcome
      const isStale = isHoldfastError(isLost ? error.cause : error, 'FENCE_STALE')
      if (!isLost && !isStale) throw error
      if (isStale) report({ kind: 'refused' })
    }
  }
}

/** Nothing runs in this process until it is answered: the conductor may let it hang here, or kill it. */
function holdBreath(): void {
  report({ kind: 'about-to-write' })
  const isAnswered = readSync(0, new Uint8Array(1)) === 1
  if (!isAnswered) process.exit()
}

function report(what: Report): void {
  process.send?.(what)
}

process.on('disconnect', () => process.exit())
process.on('message', async (order: Order) => {
  report({ kind: 'finished', outcome: await runUntilDone(order) })
})
report({ kind: 'ready' })
