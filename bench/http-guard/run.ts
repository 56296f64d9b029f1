/**
 * `npm run bench -- http-guard`: what fences cost a service, in CPU time of its process. Contenders take turns in nine rounds, and each
 * ratio is of two neighbours in one round, because a busy machine disturbs CPU time less than the time of a request.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { createLocker, formatFence } from 'holdfast'
import { memory } from 'holdfast/memory'
import { median } from '../measure.ts'

const ROUNDS = 9
const REQUESTS = 1_500
const AT_ONCE = 16

/** What each is compared with, and the least that it should reach. */
const comparisons = [
  { path: '/read', with: '/bare', least: 0.9, what: 'reading the header, next to a bare handler' },
  {
    path: '/memory',
    with: '/bare',
    least: 0.5,
    what: 'a write behind a memory guard, next to a bare handler',
  },
  {
    path: '/sqlite-guarded',
    with: '/sqlite',
    least: 0.5,
    what: 'a write in SQLite behind its guard, next to the same without',
  },
] as const

export async function runHttpGuard(say: (line: string) => void): Promise<void> {
  const secret = randomBytes(32)
  const child = fork(join(import.meta.dirname, 'service.ts'), [secret.toString('base64')], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
  })
  try {
    const [{ port }] = (await once(child, 'message')) as [{ port: number }]
    await using locker = createLocker(memory())
    await using lease = await locker.acquire('stock')
    const headers = {
      'holdfast-fence': formatFence(lease.fence, { signWith: { id: 'bench', secret } }),
      'content-type': 'text/plain',
    }
    const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
    const put = (path: string) =>
      new Promise<void>((resolve, reject) => {
        const sent = request({ port, path, agent, method: 'PUT', headers }, (answer) => {
          if (answer.statusCode !== 204) reject(new Error(`${path} answered ${answer.statusCode}`))
          answer.resume().on('end', () => resolve())
        })
        sent.on('error', reject).end('7')
      })
    const cpuOf = async (path: string, requests = REQUESTS) => {
      const beforeUs = await cpuUs(child)
      let left = requests
      const work = async () => {
        while (left-- > 0) await put(path)
      }
      await Promise.all(Array.from({ length: AT_ONCE }, work))
      return ((await cpuUs(child)) - beforeUs) / requests
    }
    for (const { path, with: other } of comparisons) for (const each of [path, other]) await cpuOf(each, 500)
    const ratios = comparisons.map((): number[] => [])
    const costs = comparisons.map((): number[] => [])
    for (let round = 0; round < ROUNDS; round++)
      for (const [index, { path, with: other }] of comparisons.entries()) {
        // The order changes from round to round.
        const first = await cpuOf(round % 2 === 0 ? other : path)
        const second = await cpuOf(round % 2 === 0 ? path : other)
        const [base, own] = round % 2 === 0 ? [first, second] : [second, first]
        ratios[index]?.push(base / own)
        costs[index]?.push(own)
      }
    agent.destroy()
    say(`CPU time of the service, ${ROUNDS} rounds of ${REQUESTS} requests, ${AT_ONCE} at once; medians`)
    for (const [index, { what, least }] of comparisons.entries()) {
      const ratio = median(ratios[index] ?? [])
      const range = [Math.min(...(ratios[index] ?? [])), Math.max(...(ratios[index] ?? []))]
        .map((each) => each.toFixed(2))
        .join('–')
      say(
        `  ${ratio.toFixed(2)} (${range}; wanted: ${least})  ${what}, ${median(costs[index] ?? []).toFixed(0)} µs a request`,
      )
      if (ratio < least) process.exitCode = 1
    }
  } finally {
    child.kill()
  }
}

async function cpuUs(child: ChildProcess): Promise<number> {
  const answer = once(child, 'message')
  child.send('cpu')
  const [{ cpuUs }] = (await answer) as [{ cpuUs: number }]
  return cpuUs
}
