/** A bad day at the desk: for each layer, something that the others let through. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { isHoldfastError, onEvent } from 'holdfast'
import type pg from 'pg'
import { openBank } from './bank.ts'
import { type Answer, type Desk, type Layer, openDesk, type PayoutRequest } from './desk.ts'

export const earned: Record<string, number> = { Ada: 100, Ben: 300, Cleo: 100, Dan: 100, Eve: 100 }

export interface Day {
  readonly caught: Readonly<Record<Layer, number>>
  readonly damage: readonly string[]
}

export async function liveThrough(url: string, pool: pg.Pool, without?: Layer): Promise<Day> {
  await pool.query('TRUNCATE sellers, payouts, bank.transfers')
  await pool.query('INSERT INTO sellers SELECT key, value::int FROM json_each_text($1)', [
    JSON.stringify(earned),
  ])
  const request = (seller: string, which = ''): PayoutRequest => ({
    key: `${without ?? 'all layers'}/${seller}${which}`,
    seller,
    cents: 100,
  })

  // A risk check lasts until something has happened meanwhile.
  const meanwhile: Record<string, () => Promise<unknown>> = {}
  await using desk = await openDesk({
    pool,
    bank: openBank(pool),
    checkRisk: async ({ key }) => void (await meanwhile[key]?.()),
    ...(without !== undefined && { without }),
  })

  // Cleo has earned one payout and asks for two. While the check for the first one hangs, an operator takes it for dead
  // and gives her name to the second. Then it goes on.
  const hanging = request('Cleo', ' 1')
  meanwhile[hanging.key] = async () => {
    delete meanwhile[hanging.key]
    await desk.locker.forceRelease('seller/Cleo', { all: true, reason: 'the check hangs' })
    await desk.pay(request('Cleo', ' 2'))
  }
  await payAndAskAgain(desk, hanging)

  // Ada has earned one payout, and asks for two at the same moment.
  const both = [request('Ada', ' 1'), request('Ada', ' 2')]
  const together = meeting(both.length)
  for (const { key } of both) meanwhile[key] = together.arrive
  await Promise.all(both.map((each) => desk.pay(each)))
  together.end()

  // Ben has earned three payouts and asks for one, but his client sends the request five times.
  await Promise.all(Array.from({ length: 5 }, () => desk.pay(request('Ben'))))

  // A process dies with two payouts in flight: the bank has made Dan's transfer, and Eve's not yet.
  const program = join(import.meta.dirname, 'crash.ts')
  const child = fork(program, [url, JSON.stringify([request('Dan'), request('Eve')])])
  const [, signal] = await once(child, 'exit')
  if (signal !== 'SIGKILL') throw new Error('The process that should have died in the middle did not.')
  for (const seller of ['Dan', 'Eve'])
    await desk.locker.forceRelease(`seller/${seller}`, { all: true, reason: 'its process is gone' })

  await desk.reconcile()
  return { caught: desk.caught, damage: await damageIn(pool) }
}

/** A caller that was overtaken is told so, and may ask again. */
async function payAndAskAgain(desk: Desk, request: PayoutRequest): Promise<Answer> {
  try {
    return await desk.pay(request)
  } catch (error) {
    if (!isHoldfastError(error, 'FENCE_STALE') && !isHoldfastError(error, 'LEASE_LOST')) throw error
    return desk.pay(request)
  }
}

/** Lasts until all are there, or until one of them is seen waiting outside for its turn. */
function meeting(size: number): { arrive: () => Promise<void>; end: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>()
  let present = 0
  return {
    arrive() {
      if (++present === size) resolve()
      return promise
    },
    end: onEvent('waiting', () => resolve()),
  }
}

/** The audit: what the bank has paid, against what was earned, asked for, and written down. */
async function damageIn(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query(`
    SELECT seller, balance,
           (SELECT coalesce(sum(cents), 0)::int FROM bank.transfers t WHERE t.seller = s.seller) AS paid,
           (SELECT count(*)::int FROM payouts p WHERE p.seller = s.seller AND state = 'pending') AS pending,
           (SELECT coalesce(max(n), 0)::int FROM (
              SELECT count(*) AS n FROM payouts p WHERE p.seller = s.seller AND state = 'sent' GROUP BY key) k) AS repeated
      FROM sellers s ORDER BY seller`)
  return rows.flatMap(({ seller, balance, paid, pending, repeated }) => {
    const due = earned[seller] ?? 0
    return [
      paid > due && `${seller} has earned ${due} and was paid ${paid}`,
      repeated > 1 && `${seller} was paid ${repeated} times for one request`,
      paid <= due && balance !== due - paid && `${seller} misses ${due - paid - balance} in the ledger`,
      pending > 0 && `nobody knows whether ${seller} was paid`,
    ].filter((line) => line !== false)
  })
}
