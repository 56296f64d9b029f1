/** A worker that books events. Booking and completion are one transaction, so no event is booked twice. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type ClaimedJob, postgresJobs } from 'holdfast/lockfree/postgres'
import pg from 'pg'
import { inTransaction } from '../support/database.ts'

export interface Booking {
  readonly account: string
  readonly seq: number
}

export type Said = { readonly kind: 'at the fatal one' }

const [url = '', queue = '', story = '{}'] = process.argv.slice(2)
const { fatal, poison } = JSON.parse(story) as { fatal?: Booking; poison?: Booking }
const pool = new pg.Pool({ connectionString: url, max: 2 })
const jobs = postgresJobs<Booking>({ client: pool, queue })

let isOver = false
process.on('disconnect', () => {
  isOver = true
})

while (!isOver) {
  // A killed worker's job comes again after this time. By default it is 30 s; here the reader is watching.
  const [job] = await jobs.claimJobs({ visibilityMs: 1_000 })
  if (job === undefined) await sleep(10)
  else await work(job)
}
await pool.end()

async function work(job: ClaimedJob<Booking>): Promise<void> {
  const { account, seq } = job.payload
  try {
    // Some events take longer than others, so that they would overtake each other.
    await sleep(seq % 2 === 0 ? 2 : 15, undefined, { signal: job.signal })
    if (isSame(job.payload, poison)) throw new Error('this event cannot be booked')
    await inTransaction(pool, async (tx) => {
      await tx.query('INSERT INTO bookings (queue, account, seq) VALUES ($1, $2, $3)', [queue, account, seq])
      if (isSame(job.payload, fatal) && job.starts === 1) await die()
      await job.complete({ tx })
    })
  } catch (error) {
    await job.fail(error, { retryAfterMs: 20 })
  }
}

function isSame(one: Booking, other: Booking | undefined): boolean {
  return one.account === other?.account && one.seq === other.seq
}

/** The parent kills it. */
async function die(): Promise<never> {
  process.send?.({ kind: 'at the fatal one' } satisfies Said)
  return new Promise(() => {})
}
