/** A signal often lives as long as the program: a call that has ended leaves no listener on it. */
import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { createRig } from '../../test/rig.ts'

test('no call leaves a listener on the signal of its caller, whether it succeeds or fails', async () => {
  const { clock, locker } = createRig()
  const { signal } = new AbortController()
  const [ada, bob] = [locker(), locker()]
  const listeners = () => getEventListeners(signal, 'abort').length

  const lease = await ada.acquire('a', { signal })
  expect(listeners()).toBe(0)
  const waiting = bob.acquire('a', { signal, waitMs: 1_000 })
  const failed = expect(waiting).rejects.toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
  await clock.settle()
  expect(listeners()).toBeGreaterThan(0)
  await clock.advance(2_000)
  await failed
  expect(listeners()).toBe(0)

  await lease.renew({ signal })
  await lease.ensure(1, { signal })
  await lease.setData('note', { signal })
  await ada.check(lease.fence, { signal })
  await ada.inspect('a', { signal })
  await ada.list('', { signal })
  await ada.withLease('b', { signal }, () => {})
  const set = await ada.acquireAll(['c', 'd'], { signal })
  await set.release()
  await ada.forceRelease('a', { all: true, reason: 'a test', signal })
  await lease.release({ signal })
  await clock.settle()
  expect(listeners()).toBe(0)
})
