/**
 * Events of one account are booked in order, by three workers of which one is killed.
 *
 *     node examples/jobs-in-order/main.ts
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { postgresJobs } from 'holdfast/lockfree/postgres'
import { inTransaction } from '../support/database.ts'
import { runExample } from '../support/example.ts'
import type { Booking, Said } from './worker.ts'

const accounts = ['ada', 'bob', 'cleo', 'dan']
const eventsPerAccount = 10
/** A worker dies with it at the first start. */
const fatal = { account: 'ada', seq: 4 }
/** No worker ever succeeds with it. */
const poison = { account: 'bob', seq: 3 }

await runExample({
  name: 'jobs-in-order',
  about: `Events of four accounts are booked by three workers. Without an ordering key, events of one account overtake each
other. With it they are booked in order, although a worker is killed in the middle, and a poison event is set aside.`,
  async play({ url, pool, say, check, mustLose }) {
    await pool.query(
      'CREATE TABLE events (queue text, account text, seq int, PRIMARY KEY (queue, account, seq))',
    )
    await pool.query('CREATE TABLE bookings (no serial, queue text, account text, seq int)')

    /** Adds the events, lets the workers book them, and returns what each account's book says. */
    async function book(queue: string, isOrdered: boolean) {
      const jobs = postgresJobs<Booking>({ client: pool, queue })
      await jobs.ready()
      const add = async (account: string) => {
        for (let seq = 1; seq <= eventsPerAccount; seq++)
          await inTransaction(pool, async (tx) => {
            await tx.query('INSERT INTO events VALUES ($1, $2, $3)', [queue, account, seq])
            const order = isOrdered ? { orderingKey: account } : {}
            await jobs.add({ account, seq }, { ...order, maxStarts: 3, tx })
          })
      }
      await Promise.all(accounts.map(add))
      const story = isOrdered ? { fatal, poison } : {}
      const workers = [1, 2, 3].map(() =>
        fork(join(import.meta.dirname, 'worker.ts'), [url, queue, JSON.stringify(story)]),
      )
      let killed = 0
      for (const worker of workers)
        worker.on('message', (said: Said) => {
          if (said.kind === 'at the fatal one' && worker.kill('SIGKILL')) killed++
        })
      const ended = workers.map((worker) => once(worker, 'exit'))
      for (;;) {
        const { ready, hidden } = await jobs.count()
        if (ready + hidden === 0) break
        await sleep(50)
      }
      for (const worker of workers) if (worker.connected) worker.disconnect()
      await Promise.all(ended)
      const { rows } = await pool.query<Booking>(
        'SELECT account, seq FROM bookings WHERE queue = $1 ORDER BY no',
        [queue],
      )
      const seqs = accounts.map((account) =>
        rows.filter((row) => row.account === account).map((row) => row.seq),
      )
      return { seqs, killed, setAside: await jobs.listSetAside() }
    }

    const isSorted = (seqs: readonly number[]) =>
      seqs.every((seq, at) => at === 0 || seq > (seqs[at - 1] ?? 0))

    say('Forty events of four accounts, three workers, no ordering key.')
    // On a busy machine one worker may do all of it, and then nothing is overtaken.
    let overtaken = 0
    for (let tries = 1; overtaken === 0 && tries <= 10; tries++) {
      const { seqs } = await book(`free-${tries}`, false)
      overtaken = seqs.filter((each) => !isSorted(each)).length
    }
    mustLose(`events overtake each other in ${overtaken} of ${accounts.length} accounts`, overtaken > 0)

    say(
      '\nWith the account as ordering key. A worker is killed with an event in hand, and one event is poison.',
    )
    const ordered = await book('ordered', true)
    check(`${ordered.killed} worker was killed`, ordered.killed === 1)
    check('the events of every account are booked in order', ordered.seqs.every(isSorted))
    const expected = accounts.length * eventsPerAccount - 1
    const booked = ordered.seqs.flat().length
    check(`${booked} of ${expected} good events are booked, each once`, booked === expected)
    const [aside] = ordered.setAside
    check(
      `the poison event is set aside after ${aside?.starts} starts, and the account goes on without it`,
      ordered.setAside.length === 1 && JSON.stringify(aside?.payload) === JSON.stringify(poison),
    )
  },
})
