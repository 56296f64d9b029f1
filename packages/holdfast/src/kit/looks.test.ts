import assert from 'node:assert/strict'
import { test } from 'vitest'
import { systemRandom } from '../base/ids.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { Looks } from './looks.ts'

function stage({ isTold = true } = {}) {
  const clock = createFakeClock()
  const made: { readonly names: readonly string[]; readonly isForAll: boolean }[] = []
  const state = { isTold, isNeeded: true, answer: async () => {} }
  const looks = new Looks({
    clock,
    random: { ...systemRandom, fraction: () => 0.5 },
    pollMs: 100,
    isTold: () => state.isTold,
    isNeeded: () => state.isNeeded,
    look: (names, isForAll) => {
      made.push({ names: [...names], isForAll })
      return state.answer()
    },
  })
  return { clock, looks, made, state }
}

test('names are looked at when they are due, several of one moment together, with one timer', async () => {
  const { clock, looks, made } = stage()
  looks.due('late', 50)
  looks.due('a', 20)
  looks.due('b', 20)
  looks.due('a', 30)
  assert.equal(clock.pendingTimers, 1)
  await clock.advance(19)
  assert.equal(made.length, 0)
  await clock.advance(1)
  assert.deepEqual(made, [{ names: ['a', 'b'], isForAll: false }])
  await clock.advance(30)
  assert.deepEqual(made[1], { names: ['late'], isForAll: false })
  await clock.advance(1_000)
  assert.equal(made.length, 2, 'what is not due again is not looked at again')
})

test('without news all look at intervals; with news only when some may have been missed', async () => {
  const { clock, looks, made, state } = stage({ isTold: false })
  looks.expectNews()
  await clock.advance(300)
  assert.deepEqual(made, [
    { names: [], isForAll: true },
    { names: [], isForAll: true },
  ])
  state.isTold = true
  await clock.advance(150)
  assert.equal(made.length, 3, 'the poll that was due')
  await clock.advance(1_000)
  assert.equal(made.length, 3)
  looks.lookAtAll()
  await clock.advance(0)
  assert.equal(made.length, 4)
})

test('a look that failed is made again, one poll later', async () => {
  const { clock, looks, made, state } = stage()
  state.answer = () => Promise.reject(new Error('away'))
  looks.due('a', 10)
  await clock.advance(10)
  looks.lookAtAll()
  await clock.advance(1)
  assert.equal(made.length, 2)
  state.answer = async () => {}
  await clock.advance(200)
  assert.deepEqual(
    made.slice(2).flatMap(({ names }) => names),
    ['a'],
  )
  assert(made.slice(2).some(({ isForAll }) => isForAll))
})

test('one look at a time; what becomes due meanwhile follows', async () => {
  const { clock, looks, made, state } = stage()
  const answer = Promise.withResolvers<void>()
  state.answer = () => answer.promise
  looks.due('a', 10)
  await clock.advance(10)
  looks.due('b', 10)
  await clock.advance(50)
  assert.equal(made.length, 1)
  answer.resolve()
  await clock.advance(1)
  assert.deepEqual(made[1]?.names, ['b'])
})

test('without waiters, and after the end, no timer is left', async () => {
  const { clock, looks, state } = stage()
  looks.due('a', 10)
  looks.stop()
  assert.equal(clock.pendingTimers, 0)
  state.isNeeded = false
  looks.due('a', 10)
  assert.equal(clock.pendingTimers, 0)
  state.isNeeded = true
  looks.close()
  looks.due('a', 10)
  assert.equal(clock.pendingTimers, 0)
})
