/**
 * One worker process: it takes turns with the others and adds to the ledger until all of its entries are in. It is
 * as careful as a program can be: right before it writes, it makes sure that its lease lasts.
 */
import { readSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker, type FencedLease, isHoldfastError } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { sqlite } from 'holdfast/sqlite'
import { type Entry, nowMs, type Orders, type Report } from './events.ts'
import { type Connection, nextEntry, openLedger, putEntry } from './ledger.ts'

const thinkMs = 200
/** Ten times what a write needs. */
const enoughMs = 500
const worker = process.argv[2] ?? ''

/** One turn with the ledger, under its lease. */
type OnLedger = <T>(lease: FencedLease, effect: (database: Connection) => T) => Promise<T>

process.on('disconnect', () => process.exit())
process.on('message', (orders) => void serve(orders as Orders))
report({ kind: 'ready' })

async function serve({ locks, ledger, guarded, ttlMs, entries }: Orders): Promise<void> {
  const locker = createLocker(sqlite({ path: locks }), { ttlMs, holder: worker })
  const database = openLedger(ledger)
  const guard = sqliteGuard({ database })
  // The only difference between the rounds. With the lease itself as proof, this process would notice by its own
  // clock that it is late; its bare fence is what a resource elsewhere sees, and the ledger needs no more than that.
  const onLedger: OnLedger = guarded
    ? (lease, effect) => guard.run(lease.fence, effect)
    : async (_, effect) => effect(database)

  for (let done = 0; done < entries; ) {
    report({ kind: 'waiting' })
    const lease = await locker.acquire('ledger')
    const isWritten = await takeTurn(lease, `${worker} ${done + 1}`, onLedger)
    if (isWritten) done++
  }
  await locker.close()
  database.close()
  report({ kind: 'done' })
}

async function takeTurn(lease: FencedLease, id: string, onLedger: OnLedger): Promise<boolean> {
  const token = lease.fence.token.toString()
  report({ kind: 'acquired', token })
  let planned: Entry | undefined
  try {
    const entry = await onLedger(lease, (database) => nextEntry(database, id))
    planned = entry
    await sleep(thinkMs)
    await lease.ensure(enoughMs)
    report({ kind: 'about-to-write', token, entry })
    holdBreath()
    await onLedger(lease, (database) => putEntry(database, entry, token))
    report({ kind: 'written', token, entry })
    return true
  } catch (error) {
    const isStale = isHoldfastError(error, 'FENCE_STALE')
    if (isStale && planned)
      report({ kind: 'refused', token, highest: error.highest.toString(), entry: planned })
    else if (isStale || isHoldfastError(error, 'LEASE_LOST')) report({ kind: 'gave-up', token })
    else throw error
    return false
  } finally {
    await lease.release()
    report({ kind: 'released', token })
  }
}

/**
 * The instant between the last look at the lease and the write, in which nothing else runs in this process. It lasts
 * until the conductor answers; where it wants the worst to happen, it stops the process first and answers then.
 */
function holdBreath(): void {
  const isAnswered = readSync(0, new Uint8Array(1)) === 1
  if (!isAnswered) process.exit()
}

function report(what: Report): void {
  process.send?.({ atMs: nowMs(), worker, ...what })
}
