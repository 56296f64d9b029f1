import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { peek } from '../../test/rig.ts'
import { Coalescer, type Settled } from './coalescer.ts'

/** A coalescer whose round trips end when the test says so. */
function create(maxBatch = 100) {
  const trips: {
    items: number[]
    answer: (settled?: Settled<string>[]) => void
    fail: (error: unknown) => void
  }[] = []
  const coalescer = new Coalescer<number, string>(
    (items) =>
      new Promise((resolve, reject) => {
        const echo = () => items.map((item) => ({ ok: true, answer: `answer ${item}` }) as const)
        trips.push({ items: [...items], answer: (settled = echo()) => resolve(settled), fail: reject })
      }),
    { maxBatch },
  )
  return { coalescer, trips, sent: () => trips.map(({ items }) => items) }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('when requests leave', () => {
  test('a single one never waits for company', async () => {
    const { coalescer, trips, sent } = create()
    const answer = coalescer.add(1)
    await Promise.resolve()
    assert.deepEqual(sent(), [[1]], 'it has left within a microtask')
    trips[0]?.answer()
    assert.equal(await answer, 'answer 1')
  })

  test('a burst leaves together', async () => {
    const { coalescer, trips, sent } = create()
    const answers = [1, 2, 3].map((item) => coalescer.add(item))
    await turn()
    assert.deepEqual(sent(), [[1, 2, 3]])
    trips[0]?.answer()
    assert.deepEqual(await Promise.all(answers), ['answer 1', 'answer 2', 'answer 3'])
  })

  test('what arrives during a round trip leaves together in the next', async () => {
    const { coalescer, trips, sent } = create()
    const first = coalescer.add(1)
    await turn()
    const later = [coalescer.add(2), coalescer.add(3)]
    await turn()
    const latest = coalescer.add(4)
    await turn()
    assert.deepEqual(sent(), [[1]], 'one round trip at a time')
    trips[0]?.answer()
    await first
    await turn()
    assert.deepEqual(sent(), [[1], [2, 3, 4]])
    trips[1]?.answer()
    assert.deepEqual(await Promise.all([...later, latest]), ['answer 2', 'answer 3', 'answer 4'])
  })

  test('it is idle again afterwards: the next single one leaves at once', async () => {
    const { coalescer, trips, sent } = create()
    for (const item of [1, 2, 3]) {
      const answer = coalescer.add(item)
      await Promise.resolve()
      assert.deepEqual(sent().at(-1), [item])
      trips.at(-1)?.answer()
      await answer
    }
  })

  test('no more than the limit leave together', async () => {
    const { coalescer, trips, sent } = create(2)
    const answers = [1, 2, 3, 4, 5].map((item) => coalescer.add(item))
    for (let trip = 0; trip < 3; trip++) {
      await turn()
      trips[trip]?.answer()
    }
    await Promise.all(answers)
    assert.deepEqual(sent(), [[1, 2], [3, 4], [5]])
  })
})

describe('answers', () => {
  test("one item's failure is its own", async () => {
    const { coalescer, trips } = create()
    const [good, bad, fine] = [coalescer.add(1), coalescer.add(2), coalescer.add(3)]
    const failure = new Error('no')
    await turn()
    trips[0]?.answer([
      { ok: true, answer: 'a' },
      { ok: false, error: failure },
      { ok: true, answer: 'c' },
    ])
    await assert.rejects(bad, (error) => error === failure)
    assert.deepEqual(await Promise.all([good, fine]), ['a', 'c'])
  })

  test('a lost reply fails all of its batch, and nobody else', async () => {
    const { coalescer, trips } = create()
    const batch = [1, 2].map((item) => coalescer.add(item))
    await turn()
    const next = coalescer.add(3)
    const lost = new Error('connection reset')
    trips[0]?.fail(lost)
    for (const answer of batch) await assert.rejects(answer, (error) => error === lost)
    await turn()
    trips[1]?.answer()
    assert.equal(await next, 'answer 3')
  })

  test('a send that throws at once is a lost reply', async () => {
    let calls = 0
    const coalescer = new Coalescer<number, string>(
      () => {
        if (++calls === 1) throw new Error('thrown')
        return Promise.resolve([{ ok: true, answer: 'fine' }])
      },
      { maxBatch: 10 },
    )
    await assert.rejects(coalescer.add(1), /thrown/)
    assert.equal(await coalescer.add(2), 'fine')
  })

  test('too few answers fail those who got none', async () => {
    const { coalescer, trips } = create()
    const [first, second] = [coalescer.add(1), coalescer.add(2)]
    await turn()
    trips[0]?.answer([{ ok: true, answer: 'only' }])
    assert.equal(await first, 'only')
    await assert.rejects(second, /too few answers/)
  })

  test('no answers at all fail everybody, and it goes on', async () => {
    const { coalescer, trips } = create()
    const first = coalescer.add(1)
    await turn()
    trips[0]?.answer(null as never)
    await assert.rejects(first)
    const second = coalescer.add(2)
    await turn()
    trips[1]?.answer()
    assert.equal(await second, 'answer 2')
  })
})

describe('taking back', () => {
  test('what has not left is rejected and never sent; the rest stays', async () => {
    const { coalescer, trips, sent } = create()
    const first = coalescer.add(1)
    await turn()
    const [second, third, fourth] = [coalescer.add(2), coalescer.add(3), coalescer.add(4)]
    const reason = new Error('cancelled')
    coalescer.withdraw((item) => item === 2, reason)
    await assert.rejects(second, (error) => error === reason)
    trips[0]?.answer()
    await first
    await turn()
    trips[1]?.answer()
    assert.deepEqual(await Promise.all([third, fourth]), ['answer 3', 'answer 4'])
    assert.deepEqual(sent(), [[1], [3, 4]])
  })

  test('what has left is not touched', async () => {
    const { coalescer, trips } = create()
    const answer = coalescer.add(1)
    await turn()
    coalescer.withdraw(() => true, new Error('too late'))
    const seen = peek(answer)
    await turn()
    assert.equal(seen.status, 'pending')
    trips[0]?.answer()
    assert.equal(await answer, 'answer 1')
  })

  test('when everything is taken back nothing is sent, and it goes on', async () => {
    const { coalescer, trips, sent } = create()
    const first = coalescer.add(1)
    coalescer.withdraw(() => true, new Error('cancelled'))
    await assert.rejects(first, /cancelled/)
    await turn()
    assert.deepEqual(sent(), [])
    const second = coalescer.add(2)
    await turn()
    trips[0]?.answer()
    assert.equal(await second, 'answer 2')
  })
})

describe('in the thick of it', () => {
  test('whoever adds from within a send or an answer is served in a later one', async () => {
    const sent: number[][] = []
    const fromWithin: Promise<number>[] = []
    const coalescer: Coalescer<number, number> = new Coalescer(
      async (items) => {
        sent.push([...items])
        if (items.includes(1)) fromWithin.push(coalescer.add(10))
        return items.map((item) => ({ ok: true, answer: item }))
      },
      { maxBatch: 10 },
    )
    const chained = coalescer.add(1).then((answer) => coalescer.add(answer + 1))
    assert.equal(await chained, 2)
    assert.deepEqual(await Promise.all(fromWithin), [10])
    assert.deepEqual(sent, [[1], [10], [2]])
  })

  test('any history: each sent once, in order, one trip at a time, each with its own answer', async () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.constant('add' as const) },
      { weight: 2, arbitrary: fc.constant('turn' as const) },
      { weight: 2, arbitrary: fc.constant('answer' as const) },
      { weight: 1, arbitrary: fc.constant('fail' as const) },
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 60 }),
        fc.integer({ min: 1, max: 5 }),
        async (steps, maxBatch) => {
          const { coalescer, trips, sent } = create(maxBatch)
          const added: ReturnType<typeof peek<string>>[] = []
          const failed = new Set<number>()
          let answered = 0
          for (const each of steps) {
            if (each === 'add') added.push(peek(coalescer.add(added.length)))
            if (each === 'turn') await turn()
            const trip = trips[answered]
            if (trip === undefined || (each !== 'answer' && each !== 'fail')) continue
            if (each === 'answer') trip.answer()
            else trip.fail('lost')
            if (each === 'fail') for (const item of trip.items) failed.add(item)
            answered++
            await turn()
            assert.ok(trips.length <= answered + 1, 'one round trip at a time')
          }
          for (await turn(); answered < trips.length; await turn()) trips[answered++]?.answer()
          assert.deepEqual(sent().flat(), [...added.keys()], 'each once, in order')
          assert.ok(sent().every((items) => items.length >= 1 && items.length <= maxBatch))
          for (const [item, seen] of added.entries())
            assert.deepEqual(
              seen,
              failed.has(item)
                ? { status: 'rejected', reason: 'lost' }
                : { status: 'fulfilled', value: `answer ${item}` },
            )
        },
      ),
      { numRuns: 150 },
    )
  })
})
