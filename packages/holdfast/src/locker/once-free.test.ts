import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { createRig, peek } from '../../test/rig.ts'
import { defaults } from '../base/defaults.ts'
import type { Backend } from '../spi.ts'
import { replace } from '../testing/conformance/wrapping.ts'
import { weakenWaiting } from '../testing/weaken-waiting.ts'

/** A locker whose engine has no queue and tells when a name may be free, and what it was asked. */
function setUp() {
  const { clock, locker: lockerOn } = createRig()
  const told = new Map<() => void, string>()
  let tries = 0
  const wrap = (backend: Backend<'fenced'>) =>
    replace<'fenced'>(weakenWaiting(backend), {
      session: (inner) => ({
        tryAcquire: (request, call) => {
          tries++
          return inner.tryAcquire(request, call)
        },
        onceFree: (name, tell) => {
          told.set(tell, name)
          return () => void told.delete(tell)
        },
      }),
    })
  return { clock, told, rival: lockerOn(), locker: lockerOn({ wrap }), tries: () => tries }
}

describe('an engine without a queue that tells when a name may be free', () => {
  test('a waiter that is told tries at once, and no more often than it is told', async () => {
    const { clock, told, rival, locker, tries } = setUp()
    const held = await rival.acquire('n')
    const waiting = peek(locker.acquire('n'))
    await clock.settle()
    assert.deepEqual([[...told.values()], tries()], [['n'], 1])
    const [tellForNothing] = told.keys()
    tellForNothing?.()
    tellForNothing?.()
    await clock.settle()
    assert.deepEqual([waiting.status, tries(), told.size], ['pending', 2, 1])
    await held.release()
    const [tell] = told.keys()
    tell?.()
    await clock.settle()
    assert.deepEqual([waiting.status, tries(), told.size], ['fulfilled', 3, 0])
  })

  test('T19 a hint that gets lost costs one poll', async () => {
    const { clock, rival, locker } = setUp()
    const held = await rival.acquire('n')
    const waiting = peek(locker.acquire('n'))
    await clock.settle()
    await held.release()
    await clock.advance(defaults.pollMs + defaults.pollJitterMs)
    assert.equal(waiting.status, 'fulfilled')
  })

  test('T20 a waiter that gives up takes it back, and a late hint makes no try', async () => {
    const { clock, told, rival, locker, tries } = setUp()
    await rival.acquire('n')
    const caller = new AbortController()
    const waiting = peek(locker.acquire('n', { signal: caller.signal }))
    await clock.settle()
    const [tell] = told.keys()
    caller.abort(new Error('enough'))
    await clock.settle()
    assert.deepEqual([waiting.status, told.size], ['rejected', 0])
    tell?.()
    await clock.settle()
    assert.equal(tries(), 1)
  })
})
