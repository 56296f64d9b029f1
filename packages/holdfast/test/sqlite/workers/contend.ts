/** Takes turns with others for one lock, for as long as it was told, and notes each turn where all can see it. */
import { appendFileSync, closeSync, openSync, unlinkSync } from 'node:fs'
import { openSqlite } from '../../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { measureLag } from './lag.ts'

const [path = '', inside = '', turns = '', id = '', forMs = ''] = process.argv.slice(2)

const backend = openSqlite({ path })
const locker = createLocker(backend)
const { clock } = backend
const lag = measureLag()
const endMs = clock.monotonicMs() + Number(forMs)
let entries = 0

while (clock.monotonicMs() < endMs) {
  const lease = await locker.acquire('contended')
  // Fails if anybody else is inside.
  closeSync(openSync(inside, 'wx'))
  appendFileSync(turns, `${id} ${lease.fence.token} ${clock.monotonicMs()}\n`)
  if (entries % 3 === 0) await new Promise((resolve) => setImmediate(resolve))
  unlinkSync(inside)
  await lease.release()
  entries++
}

const { statistics } = backend
await locker.close()
console.log(JSON.stringify({ id, entries, statistics, lagMs: lag.stop() }))
