/**
 * An Express service that a stale client cannot pass. A client is stopped after it has read the stock, is overtaken, and sends its
 * write when it goes on.
 *
 *     node examples/guarded-service/main.ts
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Children } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import { overtake } from '../support/late-writer.ts'
import { createService } from './service.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

const folder = mkdtempSync(join(tmpdir(), 'holdfast-service-'))
const secret = randomBytes(32)
const { app, guard, units } = createService(join(folder, 'stock.db'), { id: 'example', secret })
const server = app.listen(0, '127.0.0.1')
try {
  using children = new Children()
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  const sell = (path: string) =>
    overtake(children, join(import.meta.dirname, 'client.ts'), [
      join(folder, `locks-${path}.db`),
      `http://127.0.0.1:${port}/${path}/42`,
      secret.toString('base64'),
    ])

  say('Two clients sell one unit each, of ten. The first one is stopped between its read and its write.')
  const unguarded = await sell('unguarded')
  mustLose(
    `the late write is answered ${unguarded.late}, and one sale is lost`,
    unguarded.late === '204' && units('unguarded') === 9,
  )

  say('\nWith fences:')
  const { newer, late } = await sell('stock')
  check('the client that overtook it has sold a unit', newer === '204')
  check('the late write gets 409', late === '409')
  check('and has changed nothing', units('stock') === 9)
  const refused = await fetch(`http://127.0.0.1:${port}/stock/42`, { method: 'PUT', body: '100' })
  check('a request without a fence gets 428', refused.status === 428)
} finally {
  server.closeAllConnections()
  server.close()
  await guard.close()
  rmSync(folder, { recursive: true, force: true })
}
finish()
