/** Leads for ever, and does not stop when the locker is closed. */
import { openClient } from './backends.ts'

const locker = openClient({ ttlMs: 60_000 })
await new Promise<void>((resolve) => {
  locker
    .withLease('leader', () => {
      resolve()
      return new Promise(() => {})
    })
    .catch(() => {})
})
await locker.close({ graceMs: 10 })
console.log('closed')
