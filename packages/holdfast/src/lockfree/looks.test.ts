import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { describe, test } from 'vitest'
import { Looks } from './looks.ts'

describe('looks at keys', () => {
  /** Looks that wait to be answered, by the order in which they began. */
  function stage() {
    const looks = new Looks()
    const begun: string[] = []
    const answers = new Map<string, PromiseWithResolvers<string>>()
    const take = (key: string, name: string) =>
      looks.take(key, () => {
        begun.push(name)
        const answer = Promise.withResolvers<string>()
        answers.set(name, answer)
        return answer.promise
      })
    return { begun, answers, take }
  }

  test('T21 those at one key begin one after the other, also after one that failed; those at another key do not wait', async () => {
    const { begun, answers, take } = stage()
    const [one, two, three] = ['one', 'two', 'three'].map((name) => take('k', name))
    const other = take('other', 'of another key')
    assert.deepEqual(begun, ['one', 'of another key'])
    answers.get('one')?.reject(new Error('planted'))
    await assert.rejects(one?.answer as Promise<string>, /planted/)
    await turn()
    assert.deepEqual(begun.slice(2), ['two'])
    answers.get('two')?.resolve('second')
    assert.equal(await two?.answer, 'second')
    await turn()
    assert.deepEqual(begun.slice(3), ['three'])
    answers.get('three')?.resolve('third')
    assert.equal(await three?.answer, 'third')
    answers.get('of another key')?.resolve('other')
    assert.equal(await other.answer, 'other')
    await turn()
    take('k', 'four')
    assert.deepEqual(begun.slice(4), ['four'], 'the line was empty')
  })

  test('one that leaves before its turn is not begun, and one that leaves later holds up the next until it ends', async () => {
    const { begun, answers, take } = stage()
    const first = take('k', 'first')
    const left = take('k', 'left')
    take('k', 'last')
    left.leave()
    first.leave()
    assert.deepEqual(begun, ['first'])
    answers.get('first')?.resolve('done')
    assert.equal(await first.answer, 'done')
    await turn()
    assert.deepEqual(begun, ['first', 'last'])
  })
})
