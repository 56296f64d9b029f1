import { describe, expect, test } from 'vitest'
import { callWith } from '../../../base/aborting.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import type { Parameter } from '../client/index.ts'
import { type AnswerRow, openBatches, type Request } from './batches.ts'

const never = callWith()

describe('requests that leave together', () => {
  test('one that comes alone leaves at once', async () => {
    const { batches, sent } = stand()
    const granted = batches.ask(wanting('a'), never)
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a']])
    sent[0]?.answer([['g', 'a', 'granted', '17', 'left behind']])
    expect(await granted).toEqual(['g', 'a', 'granted', '17', 'left behind'])
  })

  test('an abandon leaves at the end of the turn, together with the next try', async () => {
    const { batches, sent } = stand()
    const abandoned = batches.ask({ op: 'a', name: 'x', attempt: 'a', session: 1 }, never)
    await microtasks()
    expect(sent).toHaveLength(0)
    const granted = batches.ask({ ...wanting('b'), name: 'x' }, never)
    // The try does not wait for the end of the turn.
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a', 'b']])
    sent[0]?.answerAll()
    await Promise.allSettled([abandoned, granted])
  })

  test('the same attempt twice at once is asked about in two calls, and both are answered', async () => {
    const { batches, sent } = stand()
    const both = [batches.ask(wanting('a'), never), batches.ask(wanting('a'), never)]
    await microtasks()
    sent[0]?.grant('1')
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a'], ['a']])
    sent[1]?.grant('1')
    expect((await Promise.all(both)).map(([, , , token]) => token)).toEqual(['1', '1'])
  })

  test('the answer to a call that no caller waits for is read, and keeps the connection', async () => {
    const { batches, sent, clock } = stand()
    const controller = new AbortController()
    const asked = batches.ask(wanting('a'), callWith(controller.signal))
    await microtasks()
    controller.abort()
    expect(await outcomeOf(asked)).toBe('unknown')
    sent[0]?.grant('7')
    await clock.advance(10_000)
    expect(sent[0]?.signal.aborted).toBe(false)
  })

  test('a second acquire of a name waits here and can be cancelled; a release and other names go at once', async () => {
    const { batches, sent } = stand()
    const first = batches.ask({ ...wanting('a'), name: 'hot' }, never)
    await microtasks()
    const controller = new AbortController()
    const second = batches.ask({ ...wanting('b'), name: 'hot' }, callWith(controller.signal))
    const third = batches.ask({ ...wanting('c'), name: 'hot' }, never)
    await microtasks()
    expect(sent).toHaveLength(1)
    controller.abort()
    expect(await outcomeOf(second)).toBe('not-applied')
    const released = batches.ask({ ...wanting('d'), name: 'hot', op: 'r' }, never)
    await microtasks()
    expect(sent.map(({ attempts }) => attempts)).toEqual([['a'], ['d']])
    sent[1]?.answer([['r', 'd', 'released']])
    expect(await released).toEqual(['r', 'd', 'released'])
    const other = batches.ask(wanting('e'), never)
    await microtasks()
    expect(sent.at(-1)?.attempts).toEqual(['e'])
    sent.at(-1)?.grant('1')
    await other
    sent[0]?.grant('2')
    await first
    await microtasks()
    expect(sent.at(-1)?.attempts).toEqual(['c'])
    sent.at(-1)?.grant('3')
    expect(await third).toEqual(['g', 'c', 'granted', '3'])
  })

  test('an abandon waits for the call about its name that is in flight, and leaves with what comes next', async () => {
    const { batches, sent } = stand()
    const controller = new AbortController()
    const acquire = batches.ask({ ...wanting('a'), name: 'hot' }, callWith(controller.signal))
    await microtasks()
    controller.abort()
    expect(await outcomeOf(acquire)).toBe('unknown')
    const abandoned = batches.ask({ ...wanting('a'), name: 'hot', op: 'a' }, never)
    const next = batches.ask({ ...wanting('b'), name: 'hot' }, never)
    await microtasks()
    expect(sent).toHaveLength(1)
    sent[0]?.grant('1')
    await microtasks()
    expect(sent[1]?.attempts).toEqual(['a', 'b'])
    sent[1]?.answer([
      ['a', 'a', 'abandoned'],
      ['g', 'b', 'granted', '2'],
    ])
    expect(await abandoned).toEqual(['a', 'a', 'abandoned'])
    expect(await next).toEqual(['g', 'b', 'granted', '2'])
  })
})

function stand() {
  const sent: Sent[] = []
  const clock = createFakeClock()
  const batches = openBatches({
    clock,
    send: (statement, parameters, { signal }) => {
      const made = new Sent(statement, parameters, signal)
      sent.push(made)
      return made.rows.promise
    },
  })
  return { batches, sent, clock }
}

let tokens = 0

class Sent {
  readonly rows = Promise.withResolvers<readonly AnswerRow[]>()
  readonly attempts: readonly string[]
  readonly signal: AbortSignal

  constructor(statement: string, parameters: readonly Parameter[], signal: AbortSignal) {
    this.signal = signal
    const records = String(parameters[0])
      .replaceAll('\\', '')
      .matchAll(/\(\w,[^,]*,([^,]*),/g)
    // A request that is alone has its name and its attempt as parameters.
    this.attempts =
      statement === 'apply' ? [...records].map(([, attempt]) => String(attempt)) : [String(parameters[1])]
  }

  answer(rows: readonly AnswerRow[]): void {
    this.rows.resolve(rows)
  }

  grant(token: string): void {
    this.answer([['g', String(this.attempts[0]), 'granted', token]])
  }

  answerAll(): void {
    this.answer(this.attempts.map((attempt) => ['g', attempt, 'granted', String(++tokens)]))
  }
}

function wanting(attempt: string): Request {
  return {
    op: 'g',
    waits: true,
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
