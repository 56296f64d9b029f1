/** Leads until its lease is lost, with nothing else that would keep the process alive. */
import { openClient } from './backends.ts'

const leads = openClient({ ttlMs: 60_000 }).withLease('leader', { maxHoldMs: 500 }, async (lease) => {
  console.log('leading')
  await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
  console.log('stopped')
})
leads.catch((error: unknown) => console.log((error as { reason?: string }).reason))
