import assert from 'node:assert/strict'
import { setImmediate as nextTick } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { SerialQueue } from './serial-queue.ts'

test('a call inside a call of its own is refused, also further in; one of another queue is not', async () => {
  const [one, other] = [new SerialQueue(), new SerialQueue()]
  const inside = await one.run(async () => {
    expect([one.inside !== undefined, other.inside !== undefined]).toEqual([true, false])
    await expect(one.run(async () => 'never')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    return other.run(async () => {
      await expect(one.run(async () => 'never')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      return 'of the other'
    })
  })
  expect(inside).toBe('of the other')
  expect(one.inside).toBe(undefined)
})

test('what a call has left behind may make another when the call is over', async () => {
  const queue = new SerialQueue()
  const gate = Promise.withResolvers<void>()
  const later = await queue.run(async () => ({
    promise: gate.promise.then(() => queue.run(async () => 'later')),
  }))
  gate.resolve()
  expect(await later.promise).toBe('later')
})

describe('with keys', () => {
  /** Functions that wait to be answered, by the order in which they began. */
  function stage() {
    const queue = new SerialQueue()
    const begun: string[] = []
    const answers = new Map<string, PromiseWithResolvers<string>>()
    const run = (keys: readonly string[], name: string, signal?: AbortSignal) => {
      const running = queue.run(
        () => {
          begun.push(name)
          const answer = Promise.withResolvers<string>()
          answers.set(name, answer)
          return answer.promise
        },
        { keys, signal },
      )
      running.catch(() => {})
      return running
    }
    return { begun, answers, run }
  }

  test('T21 those with one key begin one after the other, also after one that failed; those with another key do not wait', async () => {
    const { begun, answers, run } = stage()
    const [one, two, three] = ['one', 'two', 'three'].map((name) => run(['k'], name))
    const other = run(['other'], 'of another key')
    await nextTick()
    assert.deepEqual(begun, ['one', 'of another key'])
    answers.get('one')?.reject(new Error('planted'))
    await assert.rejects(one as Promise<string>, /planted/)
    await nextTick()
    assert.deepEqual(begun.slice(2), ['two'])
    answers.get('two')?.resolve('second')
    assert.equal(await two, 'second')
    await nextTick()
    assert.deepEqual(begun.slice(3), ['three'])
    answers.get('three')?.resolve('third')
    assert.equal(await three, 'third')
    answers.get('of another key')?.resolve('other')
    assert.equal(await other, 'other')
    run(['k'], 'four')
    await nextTick()
    assert.deepEqual(begun.slice(4), ['four'], 'the queue was empty')
  })

  test('one that is cancelled before it begins is not begun, and one that has begun holds up the next until it ends', async () => {
    const { begun, answers, run } = stage()
    const stop = new AbortController()
    const first = run(['k'], 'first', stop.signal)
    const left = run(['k'], 'left', stop.signal)
    await nextTick()
    stop.abort(new Error('cancelled'))
    await assert.rejects(left, /cancelled/)
    run(['k'], 'last')
    await nextTick()
    assert.deepEqual(begun, ['first'])
    answers.get('first')?.resolve('done')
    assert.equal(await first, 'done')
    await nextTick()
    assert.deepEqual(begun, ['first', 'last'])
  })

  test('T21 of two that have several keys, in any order, none waits for ever', async () => {
    const { begun, answers, run } = stage()
    const [one, two] = [run(['a', 'b'], 'one'), run(['b', 'a'], 'two')]
    await nextTick()
    assert.deepEqual(begun, ['one'])
    answers.get('one')?.resolve('1')
    assert.equal(await one, '1')
    await nextTick()
    answers.get('two')?.resolve('2')
    assert.equal(await two, '2')
  })
})
