/** Leftovers: claims that the engine still has when all clients have closed. */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker } from '../../packages/holdfast/src/locker/locker.ts'
import type { BackendInfo } from '../../packages/holdfast/src/spi.ts'
import { waitFor } from '../servers/wait.ts'
import type { Engine, RunningEngine } from './engines/engine.ts'
import { lockName, type Note } from './messages.ts'
import { nowMs } from './observer.ts'

/** Looks at once and, should there be anything, when it has to be gone. */
export async function lookAtTheEnd(
  engine: Engine,
  { addresses }: RunningEngine,
  ttlMs: number,
): Promise<{ readonly notes: Note[]; readonly info: BackendInfo }> {
  const { backend, close } = await engine.open(addresses, ttlMs)
  const locker = createLocker(backend, { holder: 'observer' })
  try {
    const notes: Note[] = [{ kind: 'quiet', at: nowMs(), name: lockName }]
    for (let looks = 0; looks < 2; looks++) {
      const { askedAt, state } = await waitFor('the engine to be looked at', async () => ({
        askedAt: nowMs(),
        state: await locker.inspect(lockName),
      }))
      const holders = (state?.holders ?? []).map(({ id, holder }) => ({ leaseId: id, process: holder }))
      const waiters = (state?.waiters ?? []).map(({ id, holder }) => ({ leaseId: id, process: holder }))
      notes.push({ kind: 'snapshot', at: nowMs(), name: lockName, askedAt, holders, waiters })
      if (holders.length + waiters.length === 0) break
      await sleep(ttlMs + locker.info.expirySlackMs(ttlMs))
    }
    return { notes, info: locker.info }
  } finally {
    await locker.close()
    await close()
  }
}
