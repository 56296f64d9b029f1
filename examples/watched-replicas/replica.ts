/** A replica that counts a stock up under a lease and a guard, and shows its metrics to whoever scrapes them. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { createLocker } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { sqlite } from 'holdfast/sqlite'
import { prometheusMetrics } from 'holdfast/telemetry/prometheus'
import * as promClient from 'prom-client'

export type Told = { readonly kind: 'listens'; readonly port: number } | { readonly kind: 'inside' }

const [locks = '', stock = '', lingers] = process.argv.slice(2)
const tell = (told: Told) => process.send?.(told)

prometheusMetrics({ client: promClient, group: (name) => name.split('/')[0] ?? '' })
const server = createServer(async (_, response) => {
  response.setHeader('content-type', promClient.register.contentType)
  response.end(await promClient.register.metrics())
}).listen(0, '127.0.0.1', () => tell({ kind: 'listens', port: (server.address() as AddressInfo).port }))

const locker = createLocker(sqlite({ path: locks }), { ttlMs: 1_500 })
const guard = sqliteGuard({ path: stock, name: 'stock' })
await guard.run(await locker.acquire('set-up'), (tx) => tx.exec('CREATE TABLE IF NOT EXISTS stock (units)'))

let mayLinger = false
process.on('message', () => {
  mayLinger = lingers === 'lingers'
})
// Until it is killed.
for (;;) {
  await locker
    .withLease('stock/42', async ({ fence }) => {
      if (mayLinger) {
        mayLinger = false
        tell({ kind: 'inside' })
        await pause(50)
      }
      // With the fence alone, as a service would that is called by the holder.
      await guard.run(fence, (tx) => tx.exec('INSERT INTO stock VALUES (1)'))
    })
    .catch(() => {})
  await pause(20)
}
