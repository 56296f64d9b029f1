/** Asks an engine that never answers, with nothing else that would keep the process alive. */

import type { Locker } from '../../../src/base/types.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { faultyBackend } from '../../../src/testing/faulty-backend.ts'
import { openBackend } from './backends.ts'

type Ask = (locker: Locker<'fenced'>) => Promise<unknown>

const asks: Record<string, Ask> = {
  acquire: (locker) => locker.acquire('n', { waitMs: 500 }),
  tryAcquire: (locker) => locker.tryAcquire('n'),
  inspect: (locker) => locker.inspect('n'),
  forceRelease: (locker) => locker.forceRelease('n', { all: true, reason: 'stuck' }),
}
const backend = faultyBackend(openBackend())
const locker = createLocker(backend, { callTimeoutMs: 200 })
const lease = await locker.acquire('held')
const moreAsks: Record<string, Ask> = {
  release: () => lease.release(),
  setData: () => lease.setData('x'),
  renew: () => lease.renew(),
  close: () => locker.close({ graceMs: 0 }),
}
const ask = { ...asks, ...moreAsks }[process.argv[3] ?? '']
if (ask === undefined) throw new Error('unknown ask')
backend.freeze()
const answer = await ask(locker).catch((error: { code?: string }) => error.code)
console.log(answer ?? 'done')
