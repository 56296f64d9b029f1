/** Holds a Web Lock by a callback that never settles, as programs do that hold it until they end. */
import { memory } from '../../../src/engines/memory/index.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { webLocks } from '../../../src/web-locks.ts'

const locker = createLocker(memory())
const request = webLocks(locker).request('leader', () => {
  console.log('held')
  return new Promise<never>(() => {})
})
process.once('SIGTERM', () => locker.close({ graceMs: 0 }))
await request.catch((error: Error) => console.log(error.name))
