import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { peek } from '../../test/rig.ts'
import { callWith } from '../base/aborting.ts'
import { isHoldfastError } from '../base/errors.ts'
import type { Call } from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { Lane, type LaneOptions, type Sent } from './lane.ts'

interface Trip {
  readonly items: readonly number[]
  readonly call: Call
  answer(sent?: Sent<string>): void
  fail(error: unknown): void
}

/** A lane whose batches are answered when the test says so. */
function stage(options: Partial<LaneOptions<number, string>> = {}) {
  const trips: Trip[] = []
  const clock = createFakeClock()
  const lane = new Lane<number, string>({
    backend: 'test',
    clock,
    maxBatch: 100,
    send: (items, call) =>
      new Promise<Sent<string>>((resolve, fail) => {
        const echo = () => items.map((item) => `answer ${item}`)
        trips.push({ items, call, answer: (sent = echo()) => resolve(sent), fail })
      }),
    ...options,
  })
  const ask = (item: number, signal?: AbortSignal) => lane.ask(item, callWith(signal))
  return { lane, ask, trips, clock, sent: () => trips.map(({ items }) => items) }
}

const two = { maxInFlight: 2, minSplit: 8 }
const turn = () => new Promise((resolve) => setImmediate(resolve))
const turns = async (count: number) => {
  for (let index = 0; index < count; index++) await turn()
}
const numbers = (length: number) => Array.from({ length }, (_, index) => index)

const isOutcome = (outcome: string) => (error: unknown) =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === outcome

describe('when requests leave', () => {
  test('a single one does not wait for company, and is idle again afterwards', async () => {
    const { ask, trips, sent } = stage()
    for (const item of [1, 2, 3]) {
      const answer = ask(item)
      await Promise.resolve()
      assert.deepEqual(sent().at(-1), [item], 'it has left within a microtask')
      trips.at(-1)?.answer()
      assert.equal(await answer, `answer ${item}`)
    }
  })

  test('requests that come together leave together, each with its own answer', async () => {
    const { ask, trips, sent } = stage()
    const answers = [1, 2, 3].map((item) => ask(item))
    await turn()
    assert.deepEqual(sent(), [[1, 2, 3]])
    trips[0]?.answer()
    assert.deepEqual(await Promise.all(answers), ['answer 1', 'answer 2', 'answer 3'])
  })

  test('requests that come while a batch is in flight leave together in the next', async () => {
    const { ask, trips, sent } = stage()
    const first = ask(1)
    await turn()
    const later = [ask(2), ask(3)]
    await turn()
    later.push(ask(4))
    await turn()
    assert.deepEqual(sent(), [[1]], 'one batch at a time')
    trips[0]?.answer()
    await first
    await turn()
    assert.deepEqual(sent(), [[1], [2, 3, 4]])
    trips[1]?.answer()
    assert.deepEqual(await Promise.all(later), ['answer 2', 'answer 3', 'answer 4'])
  })

  test('no more than the limit leave together', async () => {
    const { ask, trips, sent } = stage({ maxBatch: 2 })
    const answers = [1, 2, 3, 4, 5].map((item) => ask(item))
    for (let trip = 0; trip < 3; trip++) {
      await turn()
      trips[trip]?.answer()
    }
    await Promise.all(answers)
    assert.deepEqual(sent(), [[1, 2], [3, 4], [5]])
  })

  test('an engine that answers without a promise is answered at once', async () => {
    const { ask } = stage({ send: (items) => items.map((item) => `now ${item}`) })
    assert.deepEqual(await Promise.all([ask(1), ask(2)]), ['now 1', 'now 2'])
  })

  test('a patient request leaves at the end of the turn, or with one that is not', async () => {
    const { ask, trips, sent } = stage({ isPatient: (item) => item >= 100 })
    const alone = ask(100)
    await Promise.resolve()
    assert.deepEqual(sent(), [])
    await turn()
    assert.deepEqual(sent(), [[100]])
    trips[0]?.answer()
    await alone
    const both = [ask(101), ask(1)]
    await Promise.resolve()
    assert.deepEqual(sent().at(-1), [101, 1])
    trips[1]?.answer()
    await Promise.all(both)
  })
})

describe('what comes in one turn of the event loop', () => {
  const perTurn = { gathersPerTurn: true, maxInFlight: 8, minSplit: 32 }

  test('leaves together at its end while something is in flight; what is alone leaves at once', async () => {
    const { ask, trips, sent } = stage(perTurn)
    const answers = [ask(1)]
    await Promise.resolve()
    assert.deepEqual(sent(), [[1]])
    for (const item of [2, 3]) {
      answers.push(ask(item))
      await Promise.resolve()
    }
    assert.deepEqual(sent(), [[1]])
    await turn()
    assert.deepEqual(sent(), [[1], [2, 3]])
    for (const trip of trips) trip.answer()
    await Promise.all(answers)
    answers.push(ask(4))
    await Promise.resolve()
    assert.equal(trips.length, 2, 'those of the last batch may come back in this turn, one after the other')
    answers.push(ask(5))
    await turn()
    trips[2]?.answer()
    await Promise.all(answers)
    assert.deepEqual(sent()[2], [4, 5])
  })

  test('does not leave early because an answer comes within the turn', async () => {
    const { ask, trips, sent } = stage(perTurn)
    const answers = [ask(1)]
    await turn()
    answers.push(ask(2))
    trips[0]?.answer()
    await answers[0]
    answers.push(ask(3))
    await turn()
    assert.deepEqual(sent(), [[1], [2, 3]])
    trips[1]?.answer()
    await Promise.all(answers)
  })

  test('T107 no batch waits for the answer to another, up to the limit', async () => {
    const { ask, trips, sent } = stage(perTurn)
    const answers: Promise<string>[] = []
    for (let item = 0; item < 10; item++) {
      answers.push(ask(item))
      await turn()
    }
    assert.deepEqual(
      sent(),
      numbers(8).map((item) => [item]),
    )
    trips[3]?.answer()
    await answers[3]
    await turn()
    assert.deepEqual(sent()[8], [8, 9])
    for (const trip of trips) trip.answer()
    await Promise.all(answers)
  })

  test('T76 while the client is not connected, one batch is in its queue; when it is again, the rest leaves', async () => {
    const client = { isConnected: false }
    const { ask, trips, sent } = stage({ ...perTurn, isConnected: () => client.isConnected })
    const answers = [ask(1)]
    await turn()
    for (const item of [2, 3]) {
      answers.push(ask(item))
      await turn()
    }
    assert.deepEqual(sent(), [[1]])
    client.isConnected = true
    trips[0]?.answer()
    await answers[0]
    await turn()
    assert.deepEqual(sent(), [[1], [2, 3]])
    trips[1]?.answer()
    await Promise.all(answers)
  })
})

describe('with two batches in flight', () => {
  test('many that come at once leave in two halves, and no third batch leaves', async () => {
    const { ask, trips, sent } = stage(two)
    const answers = numbers(20).map((item) => ask(item))
    await turn()
    assert.deepEqual(
      sent().map(({ length }) => length),
      [10, 10],
    )
    answers.push(ask(20), ask(21))
    await turn()
    assert.equal(trips.length, 2)
    trips[1]?.answer()
    await turn()
    assert.deepEqual(sent()[2], [20, 21])
    for (const trip of trips) trip.answer()
    assert.deepEqual(
      await Promise.all(answers),
      numbers(22).map((item) => `answer ${item}`),
    )
  })

  test('halves that have come apart become halves again', async () => {
    const { ask, trips, sent } = stage(two)
    const answers = [ask(0)]
    await turn()
    for (let item = 1; item < 20; item++) answers.push(ask(item))
    await turn()
    trips[0]?.answer()
    await turn()
    assert.deepEqual(
      sent().map(({ length }) => length),
      [1, 10, 9],
    )
    for (const trip of trips) trip.answer()
    await Promise.all(answers)
  })

  test('few wait for the batch in flight where a further one must be worth it', async () => {
    const { ask, trips } = stage({ ...two, minFurther: 16 })
    const answers = [ask(0)]
    await turn()
    for (let item = 1; item < 16; item++) answers.push(ask(item))
    await turn()
    assert.equal(trips.length, 1)
    answers.push(ask(16))
    await turn()
    assert.equal(trips.length, 2)
    for (const trip of trips) trip.answer()
    await turn()
    for (const trip of trips) trip.answer()
    await Promise.all(answers)
  })

  test('where a turn of the event loop is one write, the second half leaves in the next turn', async () => {
    const { ask, trips, sent } = stage({ ...two, oneBatchPerTurn: true })
    const answers = numbers(64).map((item) => ask(item))
    await Promise.resolve()
    assert.deepEqual(
      sent().map(({ length }) => length),
      [32],
    )
    await turn()
    assert.deepEqual(
      sent().map(({ length }) => length),
      [32, 32],
    )
    for (const trip of trips) trip.answer()
    await Promise.all(answers)
  })

  test('a request waits here while its name is in flight, and can be cancelled; others overtake', async () => {
    const { ask, trips, sent } = stage({
      ...two,
      nameOf: (item) => String(item % 10),
      overtakes: (item) => item >= 100,
    })
    const first = ask(1)
    await turn()
    const controller = new AbortController()
    const second = ask(11, controller.signal)
    const third = ask(21)
    await turn()
    assert.deepEqual(sent(), [[1]])
    controller.abort()
    await assert.rejects(second, isOutcome('not-applied'))
    const overtaking = ask(101)
    await turn()
    assert.deepEqual(sent(), [[1], [101]])
    trips[1]?.answer()
    await overtaking
    const other = ask(2)
    await turn()
    assert.deepEqual(sent().at(-1), [2])
    trips.at(-1)?.answer()
    await other
    trips[0]?.answer()
    await first
    await turn()
    assert.deepEqual(sent().at(-1), [21])
    trips.at(-1)?.answer()
    await third
  })

  test('requests with the same key leave in two batches', async () => {
    const { ask, trips, sent } = stage({ ...two, keyOf: (item) => String(item % 10) })
    const answers = [ask(1), ask(11), ask(2)]
    await turn()
    assert.deepEqual(sent(), [[1, 2], [11]])
    for (const trip of trips) trip.answer()
    await Promise.all(answers)
  })

  test('T81 what it costs that many come for one name in one turn follows their number', async () => {
    let looks = 0
    const nameOf = () => {
      looks++
      return 'hot'
    }
    const { ask, trips } = stage({ ...two, isPatient: () => true, nameOf })
    const answers = [ask(0)]
    await turn()
    for (let item = 1; item < 1_000; item++) answers.push(ask(item))
    await turn()
    // Once for each request. Gathered once for each request, it would be a thousand times as much.
    assert(looks <= 2 * 1_000, `${looks} looks`)
    for (let next = 0; next < trips.length; next++) {
      trips[next]?.answer()
      await turn()
    }
    await Promise.all(answers)
  })
})

describe('answers', () => {
  test("one request's failure is its own", async () => {
    const { ask, trips } = stage()
    const [good, bad, fine] = [ask(1), ask(2), ask(3)]
    const failure = new Error('no')
    await turn()
    trips[0]?.answer(['a', failure, 'c'])
    await assert.rejects(bad, (error) => error === failure)
    assert.deepEqual(await Promise.all([good, fine]), ['a', 'c'])
  })

  test('G11 a lost reply fails its own batch only', async () => {
    const { ask, trips } = stage()
    const batch = [ask(1), ask(2)]
    await turn()
    const next = ask(3)
    const lost = new Error('connection reset')
    trips[0]?.fail(lost)
    for (const answer of batch) await assert.rejects(answer, (error) => error === lost)
    await turn()
    trips[1]?.answer()
    assert.equal(await next, 'answer 3')
  })

  test('a send that throws is a lost reply', async () => {
    let calls = 0
    const { ask } = stage({
      send: () => {
        if (++calls === 1) throw new Error('thrown')
        return ['fine']
      },
    })
    await assert.rejects(ask(1), /thrown/)
    assert.equal(await ask(2), 'fine')
  })

  test('too few answers, or none, fail the requests that got none, and it goes on', async () => {
    const { ask, trips } = stage()
    const [first, second] = [ask(1), ask(2)]
    await turn()
    trips[0]?.answer(['only'])
    assert.equal(await first, 'only')
    await assert.rejects(second, /too few answers/)
    const third = ask(3)
    await turn()
    trips[1]?.answer(null as never)
    await assert.rejects(third)
    const fourth = ask(4)
    await turn()
    trips[2]?.answer()
    assert.equal(await fourth, 'answer 4')
  })

  test('requests that found the engine busy wait, leave after the pause with what came meanwhile, and can be cancelled', async () => {
    const { ask, trips, sent, clock } = stage()
    const controller = new AbortController()
    const [first, cancelled] = [ask(1), ask(2, controller.signal)]
    await turn()
    trips[0]?.answer({ retryInMs: 10 })
    await turn()
    const later = ask(3)
    await turn()
    controller.abort()
    await assert.rejects(cancelled, isOutcome('not-applied'))
    assert.deepEqual(sent(), [[1, 2]])
    await clock.advance(10)
    assert.deepEqual(sent(), [
      [1, 2],
      [1, 3],
    ])
    trips[1]?.answer()
    assert.deepEqual(await Promise.all([first, later]), ['answer 1', 'answer 3'])
  })

  test.each(['closed', 'cancelled'])(
    'an engine that was busy with requests which are %s by then is not waited for',
    async (ending) => {
      const { lane, ask, trips, clock } = stage()
      const controller = new AbortController()
      const asked = ask(1, controller.signal)
      await turn()
      if (ending === 'closed') lane.close()
      else controller.abort()
      await assert.rejects(asked, isOutcome('unknown'))
      trips[0]?.answer({ retryInMs: 10 })
      await turn()
      assert.equal(clock.pendingTimers, 0)
    },
  )

  test('a pause can be ended early', async () => {
    const { lane, ask, trips, clock } = stage()
    const answer = ask(1)
    await turn()
    trips[0]?.answer({ retryInMs: 10 })
    await turn()
    lane.resume()
    trips[1]?.answer()
    assert.equal(await answer, 'answer 1')
    assert.equal(clock.pendingTimers, 0)
  })
})

describe('cancelled requests', () => {
  test('T16 one that waits is not applied and never sent; one that is in flight is unknown', async () => {
    const { ask, trips, sent } = stage()
    await assert.rejects(ask(0, AbortSignal.abort()), isOutcome('not-applied'))
    const [slow, waiting] = [new AbortController(), new AbortController()]
    const first = ask(1, slow.signal)
    await turn()
    const [second, third] = [ask(2, waiting.signal), ask(3)]
    waiting.abort()
    await assert.rejects(second, isOutcome('not-applied'))
    slow.abort()
    await assert.rejects(first, isOutcome('unknown'))
    trips[0]?.answer()
    await turn()
    assert.deepEqual(sent(), [[1], [3]])
    trips[1]?.answer()
    await third
  })

  test('when all that wait are cancelled nothing is sent', async () => {
    const { ask, trips, sent } = stage()
    const controller = new AbortController()
    const cancelled = ask(1, controller.signal)
    controller.abort()
    await assert.rejects(cancelled)
    await turn()
    assert.deepEqual(sent(), [])
    const next = ask(2)
    await turn()
    trips[0]?.answer()
    await next
  })

  test('T76 a batch goes on for a while after its last caller has gone; then it is cancelled, and another can leave', async () => {
    const { ask, trips, clock } = stage()
    const controllers = [new AbortController(), new AbortController()]
    const lost = controllers.map(({ signal }, item) => ask(item, signal))
    await turn()
    const next = ask(3)
    for (const [index, controller] of controllers.entries()) {
      controller.abort()
      await assert.rejects(lost[index] as Promise<string>, isOutcome('unknown'))
    }
    await clock.advance(999)
    assert.equal(trips[0]?.call.cancelled, false)
    assert.equal(trips.length, 1)
    await clock.advance(1)
    assert.equal(trips[0]?.call.cancelled, true)
    assert.equal(trips.length, 2)
    trips[1]?.answer()
    assert.equal(await next, 'answer 3')
    trips[0]?.answer()
    await turn()
    const last = ask(4)
    await turn()
    trips[2]?.answer()
    assert.equal(await last, 'answer 4', 'a late answer changes nothing')
    assert.equal(clock.pendingTimers, 0)
  })

  test('the answer to a batch that no caller waits for is read', async () => {
    const { ask, trips, clock } = stage()
    const controller = new AbortController()
    const lost = ask(1, controller.signal)
    await turn()
    controller.abort()
    await assert.rejects(lost)
    trips[0]?.answer()
    await turn()
    await clock.advance(10_000)
    assert.equal(trips[0]?.call.cancelled, false)
  })

  test('T76 while the client is not connected, a cancelled batch is in its queue, and no more are added', async () => {
    const client = { isConnected: false }
    const { ask, trips, clock } = stage({ isConnected: () => client.isConnected })
    const controller = new AbortController()
    const queued = ask(1, controller.signal)
    await turn()
    controller.abort()
    await assert.rejects(queued, isOutcome('unknown'))
    const next = ask(2)
    await clock.advance(10_000)
    assert.equal(trips.length, 1)
    client.isConnected = true
    await clock.advance(1_000)
    assert.equal(trips.length, 2)
    trips[1]?.answer()
    await next
  })

  test('G11 closing settles everything at once, also what comes later: unknown if it was sent, else not applied', async () => {
    const { lane, ask, trips } = stage()
    const sent = ask(1)
    await turn()
    const waiting = ask(2)
    const told = Promise.all([
      assert.rejects(sent, isOutcome('unknown')),
      assert.rejects(waiting, isOutcome('not-applied')),
    ])
    lane.close()
    await told
    assert.equal(trips[0]?.call.cancelled, true)
    await assert.rejects(ask(3), isOutcome('not-applied'))
    assert.equal(trips.length, 1, 'nothing is sent any more')
  })
})

describe('in any order of events', () => {
  test('a request that comes from within a send that answers at once leaves, too', async () => {
    const fromWithin: Promise<string>[] = []
    const { ask } = stage({
      send: (items) => {
        if (items.includes(1)) fromWithin.push(ask(10))
        return items.map(String)
      },
    })
    assert.equal(await ask(1), '1')
    assert.deepEqual(await Promise.all(fromWithin), ['10'])
  })

  test('a request that comes from within a send or an answer is served in a later batch', async () => {
    const sent: (readonly number[])[] = []
    const fromWithin: Promise<string>[] = []
    const { ask } = stage({
      send: async (items) => {
        sent.push(items)
        if (items.includes(1)) fromWithin.push(ask(10))
        return items.map(String)
      },
    })
    assert.equal(await ask(1).then((answer) => ask(Number(answer) + 1)), '2')
    assert.deepEqual(await Promise.all(fromWithin), ['10'])
    assert.deepEqual(sent, [[1], [10], [2]])
  })

  test('each is sent once, in order, within the limits, each with its own answer', async () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.constant('add' as const) },
      { weight: 2, arbitrary: fc.constant('turn' as const) },
      { weight: 2, arbitrary: fc.constant('microtask' as const) },
      { weight: 2, arbitrary: fc.constant('answer' as const) },
      { weight: 1, arbitrary: fc.constant('fail' as const) },
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 60 }),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 3 }),
        fc.boolean(),
        async (steps, maxBatch, maxInFlight, gathersPerTurn) => {
          const { ask, trips, sent } = stage({ maxBatch, maxInFlight, gathersPerTurn })
          const added: ReturnType<typeof peek<string>>[] = []
          const failed = new Set<number>()
          let answered = 0
          for (const each of steps) {
            if (each === 'add') added.push(peek(ask(added.length)))
            if (each === 'microtask') await Promise.resolve()
            if (each === 'turn') await turn()
            const trip = trips[answered]
            if (trip === undefined || (each !== 'answer' && each !== 'fail')) continue
            if (each === 'answer') trip.answer()
            else trip.fail('lost')
            if (each === 'fail') for (const item of trip.items) failed.add(item)
            answered++
            await turn()
            assert(trips.length <= answered + maxInFlight, 'the limit of batches in flight')
          }
          // A batch that leaves at the end of a turn is sent before the end of the next.
          for (await turns(2); answered < trips.length; await turns(2)) trips[answered++]?.answer()
          assert.deepEqual(sent().flat(), [...added.keys()], 'each once, in order')
          assert(sent().every(({ length }) => length >= 1 && length <= maxBatch))
          for (const [item, seen] of added.entries())
            assert.deepEqual(
              seen,
              failed.has(item)
                ? { status: 'rejected', reason: 'lost' }
                : { status: 'fulfilled', value: `answer ${item}` },
            )
        },
      ),
      { numRuns: 300 },
    )
  })
})
