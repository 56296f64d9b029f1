import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { peek } from '../../test/rig.ts'
import { Background } from './background.ts'

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('work in the background', () => {
  test('starts at once', () => {
    let started = false
    new Background().run(async () => {
      started = true
    })
    assert.equal(started, true)
  })

  test('idle waits for all of it, also for what is started meanwhile', async () => {
    const background = new Background()
    const first = Promise.withResolvers<void>()
    const second = Promise.withResolvers<void>()
    background.run(async () => {
      await first.promise
      background.run(() => second.promise)
    })
    const idle = peek(background.idle())
    first.resolve()
    await turn()
    assert.equal(idle.status, 'pending')
    second.resolve()
    await turn()
    assert.equal(idle.status, 'fulfilled')
  })

  test('idle is immediate when there is nothing, and again when all has ended', async () => {
    const background = new Background()
    await background.idle()
    background.run(() => Promise.resolve())
    await background.idle()
    await background.idle()
  })

  test('T14 T30 what fails stops neither the rest nor the process', async () => {
    const unhandled: unknown[] = []
    const listener = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', listener)
    const background = new Background()
    let finished = false
    background.run(() => Promise.reject(new Error('cleanup failed')))
    background.run(async () => {
      await turn()
      finished = true
    })
    await background.idle()
    await turn()
    process.off('unhandledRejection', listener)
    assert.equal(finished, true)
    assert.deepEqual(unhandled, [])
  })
})
