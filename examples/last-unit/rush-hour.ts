/** The worst moment for a checkout: it lasts until all buyers are in it, or a while if they cannot all be there. */
import { setTimeout as sleep } from 'node:timers/promises'

export function rushHour(buyers: number, patienceMs: number): () => Promise<void> {
  const everybody = Promise.withResolvers<void>()
  let present = 0
  return async () => {
    if (++present === buyers) everybody.resolve()
    await Promise.race([everybody.promise, sleep(patienceMs, undefined, { ref: false })])
  }
}
