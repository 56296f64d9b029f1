/** Pushes and answers come over two connections: either may be the first. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { callWith } from '../../../base/aborting.ts'
import { instantOf } from '../../../base/clock.ts'
import { systemRandom } from '../../../base/ids.ts'
import type { EnqueueResult } from '../../../spi.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { LOOK_NOW, type Outlook, type ScriptAnswer } from './answers.ts'
import { type EnqueueHost, enqueueing } from './enqueueing.ts'
import { RedisWaitingRoom } from './waiting-room.ts'

const outlook: Outlook = { isFirst: false, dueMs: 60_000, isForeign: false }
const waiting: ScriptAnswer = { kind: 'waiting', outlook }

function stage(answerTo: () => ScriptAnswer | Error = () => ({ kind: 'granted', grantId: '9' })) {
  const clock = createFakeClock()
  const looked: string[] = []
  const room = new RedisWaitingRoom({
    clock,
    random: systemRandom,
    pollMs: 200,
    look: async (requests, onAnswered) => {
      for (const { who } of requests) looked.push(who)
      const answers = requests.map(answerTo)
      onAnswered([...answers.keys()], answers)
      return answers
    },
  })
  const session: EnqueueHost<'fenced'> = {
    room,
    handOut: ({ name, attempt }, { grantId, since }) => ({
      kind: 'granted',
      grant: { name, attempt, grantId, token: BigInt(grantId), since, ttlMs: 1_000 },
    }),
    forget: () => {},
    sinceOf: (sent) => sent,
  }
  const known = { name: 'n', isWaiting: true }
  const ask = (id: string, controller = new AbortController()) => {
    const sent = instantOf(clock)
    const exclusive = { mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY } as const
    const request = { name: 'n', attempt: id, lockDelayMs: 0, ...exclusive }
    let queued = 0
    const turn = Promise.withResolvers<EnqueueResult<'fenced'>>()
    const attempt = callWith(controller.signal, {
      queued: () => void queued++,
      answer: turn.resolve,
      fail: turn.reject,
    })
    const asked = { claim: { key: 'k', who: `${id}|s` }, known, isNew: true, sent }
    const waiter = enqueueing(session, request, asked, attempt)
    room.ask(waiter)
    const token = async () => {
      const result = await turn.promise
      return result.kind === 'granted' ? result.grant.token : result.kind
    }
    return { waiter, sent, turn, token, controller, queued: () => queued }
  }
  return { clock, room, ask, looked }
}

const newAttempt = () => `${systemRandom.id()}.${systemRandom.id()}`
const push = (attempt: string, token: bigint) => `g|${attempt.slice(0, 22)}|${token}|0`

describe('waiters on redis', () => {
  test('a call that is granted at once has never waited', async () => {
    const { room, ask } = stage()
    const { waiter, token, queued } = ask(newAttempt())
    waiter.answered({ kind: 'granted', grantId: '1' })
    assert.equal(await token(), 1n)
    assert.equal(queued(), 0)
    assert.equal(room.size, 0)
  })

  test('T65 a push that overtakes the answer grants, from the sending of the request, and the answer changes nothing', async () => {
    const { clock, room, ask } = stage()
    const attempt = newAttempt()
    const { waiter, sent, turn, queued } = ask(attempt)
    await clock.advance(50)
    room.receive(push(attempt, 5n))
    waiter.answered(waiting)
    const result = await turn.promise
    assert(result.kind === 'granted')
    assert.deepEqual([result.grant.token, result.grant.since], [5n, sent])
    assert.equal(queued(), 0)
    assert.equal(room.size, 0)
  })

  test('a push for another waiter, or for one that has gone, grants nothing', async () => {
    const { clock, room, ask } = stage()
    const attempt = newAttempt()
    const { waiter, turn, controller } = ask(attempt)
    room.receive(push(newAttempt(), 5n))
    waiter.answered(waiting)
    assert.equal(room.size, 1)
    controller.abort()
    await assert.rejects(turn.promise)
    assert.equal(room.size, 0)
    room.receive(push(attempt, 6n))
    await clock.settle()
  })

  test('G10 a hint that overtakes the answer is not forgotten when the answer comes', async () => {
    const { clock, room, ask, looked } = stage()
    const attempt = newAttempt()
    const { waiter, token, queued } = ask(attempt)
    room.receive(`h|${attempt.slice(0, 22)}|500|0`)
    waiter.answered(waiting)
    assert.equal(queued(), 1)
    await clock.advance(600)
    assert.deepEqual(looked, [`${attempt}|s`])
    assert.equal(await token(), 9n)
  })

  test('who asks twice and is handed over once looks for itself the second time', async () => {
    const { clock, room, ask } = stage()
    const attempt = newAttempt()
    const first = ask(attempt)
    first.waiter.answered(waiting)
    const second = ask(attempt)
    room.receive(push(attempt, 5n))
    second.waiter.answered(waiting)
    await clock.advance(10)
    assert.deepEqual([await first.token(), await second.token()], [5n, 9n])
  })

  test('G11 a look that fails is not taken for a lost position: it is made again soon', async () => {
    const failed = new Error('OOM command not allowed')
    const answers: (ScriptAnswer | Error)[] = [failed, failed, { kind: 'granted', grantId: '9' }]
    const { clock, room, ask, looked } = stage(() => answers.shift() ?? failed)
    const { waiter, turn, token } = ask(newAttempt())
    turn.promise.catch(() => {})
    waiter.answered({ kind: 'waiting', outlook: LOOK_NOW })
    await clock.advance(10)
    assert.deepEqual([looked.length, room.size], [1, 1])
    await clock.advance(2_000)
    assert.equal(await token(), 9n)
    assert.equal(looked.length, 3)
  })
})
