import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { describe, test } from 'vitest'
import { peek, raisedDuring } from '../../test/rig.ts'
import { Cancellation, unlessCancelled } from './cancellation.ts'

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('a cancellation', () => {
  test('is raised once, and keeps its first reason', () => {
    const cancellation = new Cancellation()
    assert.equal(cancellation.cancelled, false)
    assert.equal(cancellation.reason, undefined)
    cancellation.cancel('first')
    cancellation.cancel('second')
    assert.equal(cancellation.cancelled, true)
    assert.equal(cancellation.reason, 'first')
  })

  test('a reason may be anything, also nothing', () => {
    for (const reason of [undefined, null, 0, '', new Error('x')]) {
      const cancellation = new Cancellation()
      cancellation.cancel(reason)
      assert.equal(cancellation.cancelled, true)
      assert.equal(cancellation.reason, reason)
    }
  })

  test('calls every callback once, and sees itself as cancelled meanwhile', () => {
    const cancellation = new Cancellation()
    const calls: unknown[] = []
    cancellation.onCancel(() => calls.push('a', cancellation.cancelled, cancellation.reason))
    cancellation.onCancel(() => calls.push('b'))
    cancellation.cancel('why')
    cancellation.cancel('again')
    assert.deepEqual(calls, ['a', true, 'why', 'b'])
  })

  test('calls a callback that comes too late at once', () => {
    const cancellation = new Cancellation()
    cancellation.cancel('why')
    let calls = 0
    const untie = cancellation.onCancel(() => calls++)
    assert.equal(calls, 1)
    untie()
    assert.equal(calls, 1)
  })

  test('does not call what was taken back; taking back twice is harmless', () => {
    const cancellation = new Cancellation()
    const calls: string[] = []
    const untie = cancellation.onCancel(() => calls.push('taken back'))
    cancellation.onCancel(() => calls.push('kept'))
    untie()
    untie()
    cancellation.cancel('why')
    untie()
    assert.deepEqual(calls, ['kept'])
  })

  test('does not call what an earlier callback takes back', () => {
    const cancellation = new Cancellation()
    const calls: string[] = []
    cancellation.onCancel(() => {
      calls.push('first')
      untie()
    })
    const untie = cancellation.onCancel(() => calls.push('second'))
    cancellation.cancel('why')
    assert.deepEqual(calls, ['first'])
  })

  test('a callback may cancel again or add another', () => {
    const cancellation = new Cancellation()
    const calls: string[] = []
    cancellation.onCancel(() => {
      cancellation.cancel('again')
      cancellation.onCancel(() => calls.push('added'))
      calls.push('first')
    })
    cancellation.onCancel(() => calls.push('second'))
    cancellation.cancel('why')
    assert.deepEqual(calls, ['added', 'first', 'second'])
    assert.equal(cancellation.reason, 'why')
  })
})

describe('a callback that throws', () => {
  test.each([0, 1, 2])(
    'does not keep the others from being called, nor hides its error: number %d',
    async (bad) => {
      const cancellation = new Cancellation()
      const called: number[] = []
      for (const number of [0, 1, 2])
        cancellation.onCancel(() => {
          called.push(number)
          if (number === bad) throw new Error('planted')
        })
      const raised = await raisedDuring(async () => {
        cancellation.cancel('why')
        await turn()
      })
      assert.deepEqual(called.sort(), [0, 1, 2])
      assert.deepEqual(raised, ['planted'])
    },
  )

  test('does not stop who cancels, and is not called again', async () => {
    const cancellation = new Cancellation()
    let calls = 0
    cancellation.onCancel(() => {
      calls++
      throw new Error('planted')
    })
    await raisedDuring(async () => {
      assert.doesNotThrow(() => cancellation.cancel('why'))
      cancellation.cancel('again')
      await turn()
    })
    assert.equal(calls, 1)
  })
})

describe('its signal', () => {
  test('aborts with the reason, whether it was asked for before or after', () => {
    const reason = new Error('why')
    const before = new Cancellation()
    const { signal } = before
    assert.equal(signal.aborted, false)
    before.cancel(reason)
    assert.equal(signal.reason, reason)

    const after = new Cancellation()
    after.cancel(reason)
    assert.equal(after.signal.aborted, true)
    assert.equal(after.signal.reason, reason)
    assert.equal(after.signal, after.signal)
  })
})

describe('following a signal', () => {
  test("it is raised with the caller's own reason", () => {
    const controller = new AbortController()
    const cancellation = new Cancellation()
    cancellation.follow(controller.signal)
    assert.equal(cancellation.cancelled, false)
    controller.abort('mine')
    assert.equal(cancellation.reason, 'mine')
  })

  test('that has aborted already, it is raised at once', () => {
    const cancellation = new Cancellation()
    cancellation.follow(AbortSignal.abort('earlier'))()
    assert.equal(cancellation.reason, 'earlier')
  })

  test('untied, it is not raised, and the signal is left clean', () => {
    const controller = new AbortController()
    const cancellation = new Cancellation()
    const untie = cancellation.follow(controller.signal)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 1)
    untie()
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    controller.abort()
    assert.equal(cancellation.cancelled, false)
  })

  test('that does not exist, nothing happens', () => {
    const cancellation = new Cancellation()
    cancellation.follow(undefined)()
    assert.equal(cancellation.cancelled, false)
  })
})

describe('unlessCancelled', () => {
  test('gives what the promise gives, and lets go of the cancellation', async () => {
    const cancellation = new Cancellation()
    assert.equal(await unlessCancelled(Promise.resolve(5), cancellation), 5)
    const failure = new Error('no')
    await assert.rejects(unlessCancelled(Promise.reject(failure), cancellation), (error) => error === failure)
    cancellation.cancel('later')
  })

  test('T16 throws the reason at once, although the promise never settles', async () => {
    const cancellation = new Cancellation()
    const seen = peek(unlessCancelled(new Promise(() => {}), cancellation))
    await turn()
    assert.equal(seen.status, 'pending')
    cancellation.cancel('enough')
    await turn()
    assert.deepEqual(seen, { status: 'rejected', reason: 'enough' })
  })

  test('throws at once when it was cancelled before, also if the promise has a value', async () => {
    const cancellation = new Cancellation()
    cancellation.cancel('enough')
    await assert.rejects(unlessCancelled(Promise.resolve(5), cancellation), (error) => error === 'enough')
  })

  test('T30 a promise that fails after all is no unhandled rejection', async () => {
    const unhandled: unknown[] = []
    const listener = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', listener)
    const cancellation = new Cancellation()
    const late = Promise.withResolvers<void>()
    const seen = peek(unlessCancelled(late.promise, cancellation))
    cancellation.cancel('enough')
    late.reject(new Error('late'))
    await turn()
    await turn()
    process.off('unhandledRejection', listener)
    assert.deepEqual(unhandled, [])
    assert.deepEqual(seen, { status: 'rejected', reason: 'enough' })
  })
})
