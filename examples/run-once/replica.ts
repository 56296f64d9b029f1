/** One replica of a service. Its clock strikes at the same time as that of all others. */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker, type FencedLease } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { sqlite } from 'holdfast/sqlite'

const [replica = '', locks = '', data = '', ...dates] = process.argv.slice(2)

await using locker = createLocker(sqlite({ path: locks }), { holder: replica })
await using guard = sqliteGuard({ path: data })

for (const date of dates) {
  const outcome = await locker.withLease(`nightly-report/${date}`, (lease) => runOnce(lease, date))
  console.log(`${date} ${outcome}`)
}

async function runOnce(lease: FencedLease, date: string): Promise<'ran' | 'found it done'> {
  // Under the lease, not before it: a replica that waited for the lease finds what its predecessor has left.
  const done = await guard.run(lease, (tx) => tx.prepare('SELECT 1 FROM runs WHERE date = ?').get(date))
  if (done !== undefined) return 'found it done'

  // The long part needs no transaction. The signal ends it early if the lease is lost meanwhile.
  await sleep(100, undefined, { signal: lease.signal })

  // A replica that was frozen in the long part, and overtaken, is refused here.
  await guard.run(lease, (tx) =>
    tx
      .prepare('INSERT INTO runs (date, replica, token) VALUES (?, ?, ?)')
      .run(date, replica, lease.fence.token),
  )
  return 'ran'
}
