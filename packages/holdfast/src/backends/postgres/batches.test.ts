import { describe, expect, test } from 'vitest'
import { BackendUnavailableError } from '../../base/errors.ts'
import type { Parameter, Row } from '../../clients/postgres/index.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { Batches, type BatchStatement, type Handed, type Item } from './batches.ts'

const never = new AbortController().signal

describe('requests that leave together', () => {
  test('one that comes alone leaves at once, by the shorter way', async () => {
    const { batches, sent } = stand()
    const granted = batches.add(wanting('a'), never)
    await microtasks()
    expect(sent).toMatchObject([{ statement: 'take', attempts: ['a'] }])
    sent[0]?.answer([['+17 left behind']])
    expect(await granted).toEqual({ kind: 'granted', token: '17', data: 'left behind', ms: null })
  })

  test('many who come at once leave in two halves, and who comes meanwhile leaves with the next', async () => {
    const { batches, sent } = stand()
    const all = Array.from({ length: 20 }, (_, index) => batches.add(wanting(`a${index}`), never))
    await microtasks()
    expect(sent.map(({ attempts }) => attempts.length)).toEqual([10, 10])
    const later = ['x', 'y', 'z'].map((attempt) => batches.add(wanting(attempt), never))
    await microtasks()
    expect(sent).toHaveLength(2)
    sent[1]?.answerAll()
    await microtasks()
    expect(sent[2]?.attempts).toEqual(['x', 'y', 'z'])
    sent[0]?.answerAll()
    sent[2]?.answerAll()
    const tokens = (await Promise.all([...all, ...later])).map(({ token }) => token)
    expect(new Set(tokens).size).toBe(23)
  })

  test('halves that have come apart become halves again', async () => {
    const { batches, sent } = stand()
    const asked = [batches.add(wanting('first'), never)]
    await microtasks()
    for (let index = 0; index < 19; index++) asked.push(batches.add(wanting(`a${index}`), never))
    await microtasks()
    expect(sent.map(({ attempts }) => attempts.length)).toEqual([1, 10])
    sent[0]?.answer([['+1']])
    await microtasks()
    expect(sent.map(({ attempts }) => attempts.length)).toEqual([1, 10, 9])
    sent[1]?.answerAll()
    sent[2]?.answerAll()
    expect(await Promise.all(asked)).toHaveLength(20)
  })

  test('an abandon leaves at the end of the turn, together with the next try', async () => {
    const { batches, sent } = stand()
    const abandoned = batches.add({ op: 'a', name: 'x', attempt: 'a', session: 1 }, never)
    await microtasks()
    expect(sent).toHaveLength(0)
    const granted = batches.add({ ...wanting('b'), name: 'x' }, never)
    // The try does not wait for the end of the turn.
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a', 'b']])
    sent[0]?.answerAll()
    await Promise.allSettled([abandoned, granted])
  })

  test('T81 what it costs that many give up in one turn follows their number', async () => {
    const costOf = async (count: number) => {
      const { batches, sent } = stand()
      const startMs = performance.now()
      const all = Array.from({ length: count }, (_, index) =>
        batches.add({ op: 'a', name: 'x', attempt: `a${index}`, session: 1 }, new AbortController().signal),
      )
      await new Promise((resolve) => setImmediate(resolve))
      const tookMs = performance.now() - startMs
      for (let next = 0; next < sent.length; next++) {
        sent[next]?.answerAll()
        await microtasks()
      }
      await Promise.allSettled(all)
      return tookMs
    }
    const best = async (count: number) => {
      const times = []
      for (let turn = 0; turn < 5; turn++) times.push(await costOf(count))
      return Math.min(...times)
    }
    // Gathered once for each, it would be 256 times as much.
    expect((await best(8_000)) / (await best(500))).toBeLessThan(100)
  })

  test('the same attempt twice at once is asked about in two calls, and both are answered', async () => {
    const { batches, sent } = stand()
    const both = [batches.add(wanting('a'), never), batches.add(wanting('a'), never)]
    await microtasks()
    sent[0]?.answer([['+1']])
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a'], ['a']])
    sent[1]?.answer([['+1']])
    expect((await Promise.all(both)).map(({ token }) => token)).toEqual(['1', '1'])
  })

  test('who is cancelled while it waits is never sent, and who is cancelled later may have landed', async () => {
    const { batches, sent } = stand()
    const [first, second] = [batches.add(wanting('a'), never), new AbortController()]
    await microtasks()
    const slow = batches.add(wanting('b'), second.signal)
    await microtasks()
    const third = new AbortController()
    const waiting = batches.add(wanting('c'), third.signal)
    const behind = batches.add(wanting('d'), never)
    third.abort(new Error('enough'))
    expect(await outcomeOf(waiting)).toBe('not-applied')
    expect(sent[1]?.signal.aborted).toBe(false)
    second.abort(new Error('enough'))
    expect(await outcomeOf(slow)).toBe('unknown')
    sent[0]?.answer([['+1']])
    await first
    await microtasks()
    expect(sent[2]?.attempts).toEqual(['d'])
    sent[2]?.answer([['+2']])
    expect(await behind).toMatchObject({ token: '2' })
  })

  test('a call with several callers goes on after the last of them has gone, for a while', async () => {
    const { batches, sent, clock } = stand()
    const controllers = [new AbortController(), new AbortController()]
    const asked = controllers.map(({ signal }, index) => batches.add(wanting(`a${index}`), signal))
    const outcomes = Promise.all(asked.map(outcomeOf))
    await microtasks()
    controllers[0]?.abort()
    expect(sent[0]?.signal.aborted).toBe(false)
    controllers[1]?.abort()
    expect(await outcomes).toEqual(['unknown', 'unknown'])
    await clock.advance(999)
    expect(sent[0]?.signal.aborted).toBe(false)
    await clock.advance(1)
    expect(sent[0]?.signal.aborted).toBe(true)
  })

  test('the answer to a call that no caller waits for is read, and keeps the connection', async () => {
    const { batches, sent, clock, handed } = stand()
    const controller = new AbortController()
    const asked = batches.add(wanting('a'), controller.signal)
    await microtasks()
    controller.abort()
    expect(await outcomeOf(asked)).toBe('unknown')
    sent[0]?.answer([[JSON.stringify([['h', 'b', 'handed', '7', null, null, 2]])]])
    await clock.advance(10_000)
    expect(sent[0]?.signal.aborted).toBe(false)
    expect(handed).toEqual([{ session: 2, attempt: 'b', token: '7', data: null }])
  })

  test('when it is closed, only calls that no caller waits for are cancelled', async () => {
    const { batches, sent } = stand()
    const controller = new AbortController()
    const left = batches.add(wanting('a'), controller.signal)
    await microtasks()
    const awaited = batches.add(wanting('b'), never)
    await microtasks()
    controller.abort()
    expect(await outcomeOf(left)).toBe('unknown')
    batches.close(new Error('closed'))
    expect(sent.map(({ signal }) => signal.aborted)).toEqual([true, false])
    sent[1]?.answer([['+1']])
    expect(await awaited).toMatchObject({ token: '1' })
  })

  test('a second acquire of a name waits here and can be cancelled; a release and other names go at once', async () => {
    const { batches, sent } = stand()
    const first = batches.add({ ...wanting('a'), name: 'hot' }, never)
    await microtasks()
    const controller = new AbortController()
    const second = batches.add({ ...wanting('b'), name: 'hot' }, controller.signal)
    const third = batches.add({ ...wanting('c'), name: 'hot' }, never)
    await microtasks()
    expect(sent).toHaveLength(1)
    controller.abort()
    expect(await outcomeOf(second)).toBe('not-applied')
    const released = batches.add({ ...wanting('d'), name: 'hot', op: 'r' }, never)
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a'], ['d']])
    sent[1]?.answer([['-']])
    expect(await released).toMatchObject({ kind: 'released' })
    const other = batches.add(wanting('e'), never)
    await microtasks()
    expect(sent.at(-1)?.attempts).toEqual(['e'])
    sent.at(-1)?.answer([['+1']])
    await other
    sent[0]?.answer([['+2']])
    await first
    await microtasks()
    expect(sent.at(-1)?.attempts).toEqual(['c'])
    sent.at(-1)?.answer([['+3']])
    expect(await third).toMatchObject({ token: '3' })
  })

  test('an abandon waits for the call about its name that is in flight, and leaves with what comes next', async () => {
    const { batches, sent } = stand()
    const controller = new AbortController()
    const acquire = batches.add({ ...wanting('a'), name: 'hot' }, controller.signal)
    await microtasks()
    controller.abort()
    expect(await outcomeOf(acquire)).toBe('unknown')
    const abandoned = batches.add({ ...wanting('a'), name: 'hot', op: 'a' }, never)
    const next = batches.add({ ...wanting('b'), name: 'hot' }, never)
    await microtasks()
    expect(sent).toHaveLength(1)
    sent[0]?.answer([['+1']])
    await microtasks()
    expect(sent[1]?.attempts).toEqual(['a', 'b'])
    sent[1]?.answer([
      ['a', 'a', 'abandoned', null, null, null, null],
      ['g', 'b', 'granted', '2', null, null, null],
    ])
    expect(await abandoned).toMatchObject({ kind: 'abandoned' })
    expect(await next).toMatchObject({ token: '2' })
  })
})

function stand() {
  const sent: Sent[] = []
  const handed: Handed[] = []
  const clock = createFakeClock()
  const batches = new Batches({
    clock,
    call: (statement, parameters, signal) => {
      const made = new Sent(statement, parameters, signal)
      sent.push(made)
      return made.rows.promise
    },
    onHanded: (each) => handed.push(each),
  })
  return { batches, sent, handed, clock }
}

let tokens = 0

class Sent {
  readonly rows = Promise.withResolvers<readonly Row[]>()
  readonly statement: BatchStatement
  readonly attempts: readonly string[]
  readonly signal: AbortSignal

  constructor(statement: BatchStatement, parameters: readonly Parameter[], signal: AbortSignal) {
    this.statement = statement
    this.signal = signal
    const attempts = String(parameters[statement === 'giveBack' ? 1 : 2])
    this.attempts = statement === 'apply' ? attempts.slice(1, -1).replaceAll('"', '').split(',') : [attempts]
  }

  answer(rows: readonly Row[]): void {
    this.rows.resolve(rows)
  }

  answerAll(): void {
    this.answer(this.attempts.map((attempt) => ['g', attempt, 'granted', String(++tokens), null, null, null]))
  }
}

function wanting(attempt: string): Item {
  return {
    op: 'q',
    name: `of ${attempt}`,
    attempt,
    session: 1,
    mode: 'exclusive',
    weight: 1,
    capacity: 1,
    ms: 0,
  }
}

async function outcomeOf(asked: Promise<unknown>): Promise<string> {
  const error = await asked.catch((reason: unknown) => reason)
  return error instanceof BackendUnavailableError ? error.outcome : 'it was answered'
}

async function microtasks(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await undefined
}
