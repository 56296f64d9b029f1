import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { createRig, peek } from '../../test/rig.ts'
import { BackendUnavailableError, isHoldfastError } from '../base/errors.ts'
import { weakenWaiting } from '../testing/weaken-waiting.ts'

describe('maxWaiters', () => {
  test('a call that finds the queue full fails at once, says so, and leaves nothing', async () => {
    const { clock, locker, engine } = createRig()
    const held = await locker().acquire('x')
    const first = peek(locker().acquire('x', { maxWaiters: 1 }))
    await clock.settle()
    const second = peek(locker().acquire('x', { maxWaiters: 1 }))
    await clock.settle()
    assert.equal(first.status, 'pending')
    assert.equal(second.status, 'rejected')
    assert.ok(isHoldfastError(second.reason, 'QUEUE_FULL'))
    assert.deepEqual([second.reason.resource, second.reason.maxWaiters], ['x', 1])
    assert.equal(engine.stats().waiters, 1)
    await held.release()
    await clock.settle()
    assert.equal(first.status, 'fulfilled')
  })

  test('acquireAll gives back what it has when one queue is full', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('b')
    await assert.rejects(locker().acquireAll(['a', 'b'], { maxWaiters: 0 }), { code: 'QUEUE_FULL' })
    await clock.settle()
    assert.notEqual(await locker().tryAcquire('a'), null)
  })

  test('an engine without a queue refuses it, and so does a call that does not wait', async () => {
    const { locker } = createRig()
    await assert.rejects(locker({ wrap: weakenWaiting }).acquire('x', { maxWaiters: 1 }), {
      code: 'UNSUPPORTED',
    })
    const options = { maxWaiters: 1 } as object
    await assert.rejects(locker().tryAcquire('x', options), { code: 'INVALID_ARGUMENT' })
  })

  test.each([-1, 0.5, '1', 2 ** 31])('%s is not a number of waiters', async (maxWaiters) => {
    await assert.rejects(
      createRig()
        .locker()
        .acquire('x', { maxWaiters: maxWaiters as number }),
      {
        code: 'INVALID_ARGUMENT',
        argument: 'maxWaiters',
      },
    )
  })
})

test('an engine is told how long the caller still waits, also when it is asked again', async () => {
  const { clock, locker } = createRig()
  const asked: (number | undefined)[] = []
  await locker().acquire('x')
  const waiting = locker({
    wrap: (backend) => {
      const openSession = backend.openSession.bind(backend)
      return Object.assign(backend, {
        async openSession(...args: Parameters<typeof openSession>) {
          const session = await openSession(...args)
          const { enqueue } = session
          session.enqueue = (request, attempt) => {
            asked.push(request.waitMs)
            if (request.name === 'x' && asked.length === 1)
              attempt.fail(new BackendUnavailableError('memory', 'it is busy', 'not-applied'))
            else enqueue?.call(session, request, attempt)
          }
          return session
        },
      })
    },
  })
  await (await waiting.acquire('y')).release()
  asked.length = 0
  const first = peek(waiting.acquire('x', { waitMs: 10_000 }))
  await clock.settle()
  assert.deepEqual(asked, [10_000])
  await clock.advance(3_000)
  assert.equal(asked.length, 2)
  assert.ok(Number(asked[1]) < 10_000 && Number(asked[1]) >= 7_000, `${asked[1]} ms are left`)
  await clock.advance(7_000)
  assert.equal(first.status, 'rejected')
  asked.length = 0
  peek(waiting.acquire('x', { waitMs: Number.POSITIVE_INFINITY }))
  await clock.settle()
  assert.equal(asked[0], undefined)
})

test('an owner is shown beside the holder', async () => {
  const { clock, locker } = createRig()
  const ada = locker({ holder: 'ada' })
  await ada.acquire('x', { owner: 'order 7' })
  peek(ada.acquire('x', { owner: 'order 8' }))
  await clock.settle()
  const found = await ada.inspect('x')
  assert.deepEqual(
    [...(found?.holders ?? []), ...(found?.waiters ?? [])].map(({ holder, owner }) => [holder, owner]),
    [
      ['ada', 'order 7'],
      ['ada', 'order 8'],
    ],
  )
})

test('a holder that is released by force learns what the operator said', async () => {
  const { clock, locker } = createRig()
  const lease = await locker().acquire('x', { ttlMs: 3_000 })
  await locker().forceRelease('x', { all: true, reason: 'stuck since noon' })
  await clock.advance(2_000)
  const { reason } = lease.signal
  assert.ok(isHoldfastError(reason, 'LEASE_LOST'))
  assert.deepEqual([reason.reason, reason.detail], ['force-released', 'stuck since noon'])
  assert.match(reason.message, /an operator released it \("stuck since noon"\)/)
})
