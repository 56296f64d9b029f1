/** A listener that throws: the lease must not be affected, and the error must not be hidden. */
import { onEvent } from '../../../src/base/events.ts'
import { openClient } from './backends.ts'

process.on('uncaughtException', (error) => console.log('uncaught', error.message))
for (const kind of ['acquired', 'released'] as const)
  onEvent(kind, () => {
    throw new Error(`listener of ${kind}`)
  })
const locker = openClient()
const lease = await locker.acquire('n')
console.log(await lease.release())
console.log((await locker.tryAcquire('n')) === null ? 'still taken' : 'free again')
