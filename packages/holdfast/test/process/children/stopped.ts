/** Holds a lease while it is stopped, or while its event loop is blocked, and then looks at it at once. */
import { openClient } from './backends.ts'

const how = process.argv[3]
const ttlMs = 1_000
const lease = await openClient().acquire('n', { ttlMs })
let last = performance.now()
console.log('holding')
if (how === 'blocked') {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * ttlMs)
} else {
  // A loop that never yields: no timer and no callback can come between the end of the stop and the look.
  for (let now = performance.now(); now - last < ttlMs; now = performance.now()) last = now
}
console.log(lease.state, lease.remainingMs, lease.signal.aborted)
