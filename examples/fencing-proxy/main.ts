/**
 * A service that knows nothing of fences, behind a fencing proxy: a client that was stopped is refused, and a newer one waits for the
 * answer to an older request that the service is slow at.
 *
 *     node examples/fencing-proxy/main.ts
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLocker, formatFence } from 'holdfast'
import { fencingProxy } from 'holdfast/guards/proxy'
import { memory } from 'holdfast/memory'
import { Children } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import { overtake } from '../support/late-writer.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

/** The legacy service: a value that can be read and replaced. It takes its time for writes that say so. */
let value = 10
const slow = Promise.withResolvers<void>()
const slowArrived = Promise.withResolvers<void>()
const legacy = createServer(async (request, response) => {
  if (request.method === 'GET') return void response.end(String(value))
  let body = ''
  for await (const chunk of request) body += chunk
  if (request.headers['x-slow'] !== undefined) {
    slowArrived.resolve()
    await slow.promise
  }
  value = Number(body)
  response.writeHead(204).end()
}).listen(0, '127.0.0.1')
await once(legacy, 'listening')
const target = `http://127.0.0.1:${(legacy.address() as AddressInfo).port}`

const folder = mkdtempSync(join(tmpdir(), 'holdfast-proxy-'))
try {
  using children = new Children()
  // In production nobody but the proxy can reach the service. Here the control does.
  await using proxy = await fencingProxy({
    target,
    marks: join(folder, 'marks.db'),
    name: () => 'value',
    unsigned: true,
  })
  const sell = (url: string, locks: string) =>
    overtake(children, join(import.meta.dirname, 'client.ts'), [join(folder, locks), url])

  say(
    'Two clients take one from the value, which is 10. The first one is stopped between its read and its write.',
  )
  const straight = await sell(target, 'straight.db')
  mustLose(
    `the late write is answered ${straight.late}, and the value is ${value}`,
    straight.late === '204' && value === 9,
  )

  say('\nThrough the proxy:')
  value = 10
  const { newer, late } = await sell(proxy.url, 'locks.db')
  check('the client that overtook it has written', newer === '204')
  check('the late write gets 409', late === '409')
  check('and has changed nothing', value === 9)

  say('\nThe service is slow at a write; meanwhile the lease changes hands.')
  await using locker = createLocker(memory())
  await using second = await fencingProxy({
    target,
    marks: join(folder, 'slow.db'),
    name: () => 'value',
    unsigned: true,
  })
  const put = async (body: string, headers: Record<string, string> = {}) => {
    const lease = await locker.acquire('value')
    const fence = formatFence(lease.fence)
    await lease.release()
    return fetch(second.url, { method: 'PUT', body, headers: { 'holdfast-fence': fence, ...headers } })
  }
  const older = put('1', { 'x-slow': 'yes' })
  await slowArrived.promise
  const order: string[] = []
  void older.then(() => order.push('older'))
  const next = put('2').then((response) => {
    order.push('newer')
    return response
  })
  setTimeout(slow.resolve, 300)
  const answers = await Promise.all([older, next])
  check(
    'both were written',
    answers.every(({ status }) => status === 204),
  )
  check('the newer one after the older one', order.join() === 'older,newer')
  check('and its value stands', value === 2)
} finally {
  legacy.closeAllConnections()
  legacy.close()
  rmSync(folder, { recursive: true, force: true })
}
finish()
