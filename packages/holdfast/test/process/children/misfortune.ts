/** Everything that can fail fails, late and early; the process must see it in events and answers, and nowhere else. */
import { isHoldfastError } from '../../../src/base/errors.ts'
import { onEvent } from '../../../src/base/events.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { faultyBackend } from '../../../src/testing/faulty-backend.ts'
import { openBackend } from './backends.ts'

process.on('unhandledRejection', (reason) => console.log('unhandled rejection', reason))
process.on('uncaughtException', (error) => console.log('uncaught exception', error))
let rotten = false
let calls = 0
const backend = faultyBackend(openBackend(), {
  plan: ({ kind }) => {
    if (!rotten) return null
    const error = new Error(`${kind} failed`)
    return (
      [{ kind: 'error-before', error } as const, { kind: 'error-after', error } as const][calls++ % 2] ?? null
    )
  },
})
const locker = createLocker(backend, { ttlMs: 1_000, callTimeoutMs: 200 })
const lost = Promise.withResolvers<string>()
onEvent('lost', ({ reason }) => lost.resolve(reason))
const lease = await locker.acquire('n')
const other = await locker.acquire('m')
rotten = true
const alive = setInterval(() => {}, 1_000)
const answers = await Promise.allSettled([
  other.release(),
  lease.renew(),
  lease.setData('x'),
  locker.tryAcquire('o'),
  locker.acquire('p', { waitMs: 100 }),
  locker.inspect('n'),
])
const bad = answers.filter((answer) => answer.status === 'rejected' && !isHoldfastError(answer.reason))
console.log('untyped', bad.length)
// Which of the two it is depends on how busy the machine is.
console.log(['unreachable', 'expired'].includes(await lost.promise) ? 'lost' : await lost.promise)
await locker.close({ graceMs: 0 })
clearInterval(alive)
console.log('closed')
