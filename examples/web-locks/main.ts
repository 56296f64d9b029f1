/**
 * A program for `worker_threads.locks`, unchanged: in one process, in several, and in several with Holdfast.
 *
 *     node examples/web-locks/main.ts
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { locks } from 'node:worker_threads'
import { Children, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import { type Day, workDay } from './seller.ts'

export type Told = { readonly kind: 'ready' } | { readonly kind: 'done'; readonly day: Day }

const { say, check, mustLose, finish } = startClaims()
limitTime()

const STOCK = 100
const UNITS = 20
const sellers = ['ada', 'bob', 'cleo']

const folder = mkdtempSync(join(tmpdir(), 'holdfast-web-locks-'))
try {
  using children = new Children()

  say(`Three sellers in one process sell ${UNITS} units each, with the locks of Node:`)
  const alone = await open('alone', (shop) =>
    Promise.all(sellers.map((seller) => workDay(locks, seller, shop, UNITS))),
  )
  checkDay(alone)

  say('\nEach in a process of its own, with the locks of Node:')
  const apart = await open('apart', (shop) => inProcesses('process', shop))
  const lost = apart.sold - apart.gone
  mustLose(`${lost} of ${apart.sold} sales are missing from the stock`, lost > 0)

  say('\nEach in a process of its own, with webLocks(locker):')
  checkDay(await open('fleet', (shop) => inProcesses('fleet', shop)))

  async function inProcesses(reach: 'process' | 'fleet', shop: string): Promise<Day[]> {
    const program = join(import.meta.dirname, 'process.ts')
    const started = sellers.map((seller) => children.start(program, [reach, seller, shop, String(UNITS)]))
    await Promise.all(started.map((each) => heard<Told, 'ready'>(each, 'ready')))
    const days = started.map(async (each) => (await heard<Told, 'done'>(each, 'done')).day)
    for (const each of started) each.send('open')
    return Promise.all(days)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()

async function open(name: string, work: (shop: string) => Promise<Day[]>) {
  const shop = join(folder, name)
  mkdirSync(shop)
  writeFileSync(join(shop, 'stock'), String(STOCK))
  const days = await work(shop)
  return {
    days,
    sold: days.reduce((sum, { sold }) => sum + sold, 0),
    gone: STOCK - Number(readFileSync(join(shop, 'stock'), 'utf8')),
  }
}

function checkDay({ days, sold, gone }: Awaited<ReturnType<typeof open>>): void {
  check(`${sold} units are sold, and ${gone} are gone from the stock`, sold === gone)
  check('one of them wrote the report', days.filter(({ reported }) => reported).length === 1)
  check(
    'customers who would not wait left',
    days.every(({ left }) => left === 'AbortError'),
  )
}
