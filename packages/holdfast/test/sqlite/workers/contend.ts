/** Takes turns with others for one lock, as often as it was told, and notes each turn where all can see it. */
import { subscribe } from 'node:diagnostics_channel'
import { appendFileSync, closeSync, openSync, statSync, unlinkSync } from 'node:fs'
import { openSqlite } from '../../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../../src/locker/locker.ts'

const [path = '', inside = '', turns = '', id = '', count = ''] = process.argv.slice(2)

const backend = openSqlite({ path })
const locker = createLocker(backend)
let entries = 0

/** How long the file of turns was when this process knew that it was queued. */
let queuedAt: number | undefined
const sizeNow = () => statSync(turns, { throwIfNoEntry: false })?.size ?? 0
subscribe('holdfast:waiting', () => {
  queuedAt = sizeNow()
})

while (entries < Number(count)) {
  queuedAt = undefined
  const lease = await locker.acquire('contended')
  // Fails if anybody else is inside.
  closeSync(openSync(inside, 'wx'))
  appendFileSync(turns, `${id} ${lease.fence.token} ${queuedAt ?? sizeNow()}\n`)
  if (entries % 3 === 0) await new Promise((resolve) => setImmediate(resolve))
  unlinkSync(inside)
  await lease.release()
  entries++
}

const { statistics } = backend
await locker.close()
console.log(JSON.stringify({ id, entries, statistics }))
