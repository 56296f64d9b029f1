/**
 * Holds a lease and counts what happens to it. It is stopped past the end of the lease, while another process has been at the
 * guard; then it shows its lease and its fence.
 */
import * as promClient from 'prom-client'
import { sqliteGuard } from '../../../src/engines/sqlite/guard/sqlite-guard.ts'
import { sqlite } from '../../../src/engines/sqlite/locks/index.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { prometheusMetrics } from '../../../src/telemetry/prometheus.ts'

const [locks = '', resource = '', ttlMs] = process.argv.slice(2)
prometheusMetrics({ client: promClient })
const print = async (word: string) => {
  for (const line of (await promClient.register.metrics()).split('\n'))
    if (/^holdfast_(lost|guard|paused_seconds_count|held)/.test(line)) console.log(`${word} ${line}`)
  console.log(word)
}

await using locker = createLocker(sqlite({ path: locks }), { ttlMs: Number(ttlMs) })
const guard = sqliteGuard({ path: resource, name: 'stock' })
const lease = await locker.acquire('x')
// Nothing of this may be collected before the end.
const alive = setInterval(() => {}, 60_000)
const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
await guard.run(lease, () => {})
await print('before')
await lost
for (const proof of [lease, lease.fence]) await guard.run(proof, () => {}).catch(() => {})
await print('after')
clearInterval(alive)
