import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, test, vi } from 'vitest'
import { Lateness } from './lateness.ts'

/** More than any machine is late, so that a test does not depend on it. */
const NEVER_LATE = 60_000

const failing = (failures: number) => {
  const played = { tries: 0 }
  const play = async () => {
    await sleep(250)
    if (++played.tries <= failures) throw new Error('it failed')
  }
  return { played, play }
}

describe('a case that fails', () => {
  test('while the engine keeps up fails at once', async () => {
    using lateness = new Lateness(NEVER_LATE, async () => {})
    const { played, play } = failing(1)
    await assert.rejects(lateness.play(play), /it failed/)
    assert.equal(played.tries, 1)
  })

  test('while the engine is late is played again, and not for ever', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    let lateMs = 0
    using lateness = new Lateness(300, () => sleep(lateMs))
    const late = (play: () => Promise<void>) => async () => {
      lateMs = 600
      await sleep(1_000)
      lateMs = 0
      await play()
    }
    const once = failing(1)
    await lateness.play(late(once.play))
    assert.equal(once.played.tries, 2)
    const always = failing(Number.POSITIVE_INFINITY)
    await assert.rejects(lateness.play(late(always.play)), /it failed/)
    assert.equal(always.played.tries, 5)
  })

  test('is not excused by what was late before it began', async () => {
    let lateMs = 500
    using lateness = new Lateness(NEVER_LATE, () => sleep(lateMs))
    await sleep(700)
    lateMs = 0
    await sleep(700)
    const fromMs = performance.now()
    await sleep(300)
    assert(lateness.since(fromMs) < lateness.since(0))
  })
})

test('cases begin one by one, in their order, and not while the engine is late', async () => {
  let answer = Promise.withResolvers<void>()
  answer.resolve()
  using lateness = new Lateness(NEVER_LATE, () => answer.promise)
  await lateness.turn()
  answer = Promise.withResolvers<void>()
  const begun: string[] = []
  const turns = ['a', 'b', 'c'].map((name) => lateness.turn().then(() => begun.push(name)))
  // The request before this one may still be answered, once.
  await sleep(300)
  assert(begun.length <= 1, begun.join())
  answer.resolve()
  await Promise.all(turns)
  assert.deepEqual(begun, ['a', 'b', 'c'])
})
