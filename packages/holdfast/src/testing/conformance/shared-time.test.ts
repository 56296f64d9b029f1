import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { SharedTime } from './shared-time.ts'

const quiet = () => ({ inFlight: 0, sent: 0 })

describe('shared time', () => {
  test('stands still while a player is at work, and moves for clients and server when all wait', async () => {
    let serverMs = 0
    const moveServer = (ms: number) => {
      serverMs += ms
    }
    const time = new SharedTime({ moveServer, traffic: quiet })
    const [one, other] = [time.enter(), time.enter()]
    const startMs = time.clock.monotonicMs()
    let isOver = false
    const first = one.passTime(1_000).then(() => {
      isOver = true
    })
    await new Promise(setImmediate)
    assert.deepEqual([isOver, serverMs], [false, 0])
    const second = other.passTime(3_000)
    await first
    assert.deepEqual([time.clock.monotonicMs() - startMs, serverMs], [1_000, 1_000])
    one.leave()
    await second
    assert.equal(serverMs, 3_000)
    other.leave()
  })

  test('moves on without a player that is at work for too long, and that one is told', async () => {
    const time = new SharedTime({ moveServer: () => {}, traffic: quiet, longestWorkMs: 50 })
    const [hanging, other] = [time.enter(), time.enter()]
    await other.passTime(1_000)
    await assert.rejects(hanging.passTime(1_000), /at work for more than 50 ms/)
    other.leave()
  })

  test('a player that waits meanwhile is not at work, and stays', async () => {
    const time = new SharedTime({ moveServer: () => {}, traffic: quiet, longestWorkMs: 50 })
    const [patient, hanging] = [time.enter(), time.enter()]
    const waits = [patient.passTime(10), patient.passTime(1_000)]
    await hanging.passTime(20)
    await Promise.all(waits)
    await patient.passTime(1_000)
    patient.leave()
  })
})
