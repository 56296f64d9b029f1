import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { callWith } from '../../base/aborting.ts'
import { isHoldfastError } from '../../base/errors.ts'
import type { Call } from '../../spi.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import type { Answer } from './answers.ts'
import { Lane, type Request } from './lane.ts'
import { Letter } from './scripts/letters.ts'

const request = (key: string): Request => ({ key, letter: Letter.look, who: 'a|s', args: [] })
const call = (signal?: AbortSignal) => callWith(signal)

/** A lane whose calls are answered when the test says so. */
function stage({ writesOncePerTurn = false } = {}) {
  const clock = createFakeClock()
  const client = { isConnected: true }
  const calls: { requests: readonly Request[]; answer(): void; fail(error: Error): void }[] = []
  const lane = new Lane({
    clock,
    writesOncePerTurn,
    isConnected: () => client.isConnected,
    send: (requests) =>
      new Promise<readonly Answer[]>((resolve, reject) => {
        const answers = requests.map(({ key }): Answer => ({ kind: 'granted', grantId: key }))
        calls.push({ requests, answer: () => resolve(answers), fail: reject })
      }),
  })
  const add = (request: Request, call: Call) =>
    new Promise<Answer>((answered, failed) => lane.add(request, call, { answered, failed }))
  return { clock, client, lane: { add, close: () => lane.close() }, calls }
}

const isOutcome = (outcome: string) => (error: unknown) =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === outcome

describe('requests that leave together', () => {
  test('a single request leaves at once, and those that come meanwhile leave together, each with its own answer', async () => {
    const { clock, lane, calls } = stage()
    const first = lane.add(request('1'), call())
    await clock.settle()
    const others = [lane.add(request('2'), call()), lane.add(request('3'), call())]
    await clock.settle()
    assert.deepEqual(
      calls.map(({ requests }) => requests.length),
      [1],
    )
    calls[0]?.answer()
    await first
    await clock.settle()
    assert.deepEqual(
      calls.map(({ requests }) => requests.length),
      [1, 2],
    )
    calls[1]?.answer()
    assert.deepEqual(await Promise.all(others), [
      { kind: 'granted', grantId: '2' },
      { kind: 'granted', grantId: '3' },
    ])
  })

  test('when many wait, a second call leaves beside the first, and no third', async () => {
    const { clock, lane, calls } = stage()
    const answers = [lane.add(request('0'), call())]
    await clock.settle()
    for (let index = 1; index <= 40; index++) answers.push(lane.add(request(String(index)), call()))
    await clock.settle()
    assert.equal(calls.length, 2)
    for (let index = 41; index <= 80; index++) answers.push(lane.add(request(String(index)), call()))
    await clock.settle()
    assert.equal(calls.length, 2)
    calls[0]?.answer()
    await clock.settle()
    for (let index = 1; index < 6; index++) {
      calls[index]?.answer()
      await clock.settle()
    }
    assert.equal((await Promise.all(answers)).length, 81)
  })

  test('many who come at once leave in two halves, so that server and client can work at the same time', async () => {
    const { clock, lane, calls } = stage()
    const answers = Array.from({ length: 64 }, (_, index) => lane.add(request(String(index)), call()))
    await clock.settle()
    assert.deepEqual(
      calls.map(({ requests }) => requests.length),
      [32, 32],
    )
    for (const each of calls) each.answer()
    assert.deepEqual(
      await Promise.all(answers),
      Array.from({ length: 64 }, (_, index) => ({ kind: 'granted', grantId: String(index) })),
    )
  })

  test('where a turn of the event loop is one write, the second half leaves in the next turn', async () => {
    const { lane, calls } = stage({ writesOncePerTurn: true })
    const answers = Array.from({ length: 64 }, (_, index) => lane.add(request(String(index)), call()))
    await Promise.resolve()
    assert.deepEqual(
      calls.map(({ requests }) => requests.length),
      [32],
    )
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(
      calls.map(({ requests }) => requests.length),
      [32, 32],
    )
    for (const each of calls) each.answer()
    await Promise.all(answers)
  })

  test('T16 who is cancelled while it waits behind slow calls is told that nothing was sent, and is not sent', async () => {
    const { clock, lane, calls } = stage()
    const first = lane.add(request('1'), call())
    await clock.settle()
    const controller = new AbortController()
    const waiting = lane.add(request('2'), call(controller.signal))
    await clock.advance(1_000)
    controller.abort()
    await assert.rejects(
      waiting,
      (error: unknown) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied',
    )
    calls[0]?.answer()
    await first
    await clock.settle()
    assert.equal(calls.length, 1)
  })

  test('G11 a call that fails fails for all in it, and for nobody else', async () => {
    const { clock, lane, calls } = stage()
    const lost = Promise.allSettled([lane.add(request('1'), call()), lane.add(request('2'), call())])
    await clock.settle()
    const next = lane.add(request('3'), call())
    calls[0]?.fail(new Error('the connection broke'))
    assert((await lost).every(({ status }) => status === 'rejected'))
    await clock.settle()
    calls[1]?.answer()
    assert.deepEqual(await next, { kind: 'granted', grantId: '3' })
  })

  test('T16 whoever is cancelled is answered soon: not applied before it was sent, unknown after', async () => {
    const { clock, lane, calls } = stage()
    await assert.rejects(lane.add(request('1'), call(AbortSignal.abort())), isOutcome('not-applied'))
    const controller = new AbortController()
    const waiting = lane.add(request('2'), call(controller.signal))
    await clock.advance(1_000)
    controller.abort()
    await assert.rejects(waiting, isOutcome('unknown'))
    calls[0]?.answer()
  })

  test('G11 closing answers everybody at once, also whoever comes later: unknown if it was sent, otherwise not applied', async () => {
    const { clock, lane, calls } = stage()
    const sent = lane.add(request('1'), call())
    await clock.settle()
    const waiting = lane.add(request('2'), call())
    const told = Promise.all([
      assert.rejects(sent, isOutcome('unknown')),
      assert.rejects(waiting, isOutcome('not-applied')),
    ])
    lane.close()
    await told
    let later: unknown
    lane.add(request('3'), call()).catch((error: unknown) => {
      later = error
    })
    await clock.settle()
    assert(isOutcome('not-applied')(later), 'it is told without anything having to happen')
    assert.equal(calls.length, 1, 'nothing is sent any more')
  })

  test('T76 calls that are never answered stop counting as in flight when they were cancelled', async () => {
    const { clock, lane, calls } = stage()
    const controller = new AbortController()
    const lost = lane.add(request('1'), call(controller.signal))
    await clock.settle()
    const lostBeside = Promise.allSettled(
      Array.from({ length: 16 }, () => lane.add(request('2'), call(controller.signal))),
    )
    await clock.settle()
    assert.equal(calls.length, 2, 'both places are taken')
    await clock.advance(1_000)
    const next = lane.add(request('3'), call())
    controller.abort()
    await assert.rejects(lost, isOutcome('unknown'))
    await lostBeside
    await clock.advance(1_000)
    assert.equal(calls.length, 3)
    calls[2]?.answer()
    assert.deepEqual(await next, { kind: 'granted', grantId: '3' })
    // An answer that comes after all changes nothing.
    calls[0]?.answer()
    calls[1]?.fail(new Error('late'))
    await clock.settle()
    const last = lane.add(request('4'), call())
    await clock.settle()
    calls[3]?.answer()
    assert.deepEqual(await last, { kind: 'granted', grantId: '4' })
    await clock.advance(1_000)
    assert.equal(clock.pendingTimers, 0)
  })

  test('T76 while the client is not connected, cancelled calls are in its queue, and no more are added', async () => {
    const { clock, client, lane, calls } = stage()
    client.isConnected = false
    const controller = new AbortController()
    const queued = lane.add(request('1'), call(controller.signal))
    await clock.advance(1_000)
    controller.abort()
    await assert.rejects(queued, isOutcome('unknown'))
    const next = lane.add(request('2'), call())
    await clock.advance(10_000)
    assert.equal(calls.length, 1)
    client.isConnected = true
    await clock.advance(1_000)
    assert.equal(calls.length, 2)
    calls[1]?.answer()
    await next
  })
})
