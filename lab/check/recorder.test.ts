import { expect, test } from 'vitest'
import type { HistoryEvent } from './history.ts'
import { parseHistories, parseHistory } from './lines.ts'
import { mergeEvents } from './merge.ts'
import { Recorder } from './recorder.ts'

test('a recorder writes each line at once, and its clock never goes back', () => {
  let now = 5
  let text = ''
  const recorder = new Recorder(
    { backend: 'memory' },
    { now: () => now, write: (line) => (text += line), prefix: 'p1-' },
  )
  const acquire = recorder.invoke({ process: 'p1', op: 'acquire', name: 'n', ttlMs: 100 })
  const beforeTheAnswer = text
  now = 7
  recorder.add({ kind: 'queued', id: acquire.id })
  now = 6
  acquire.ok({ token: 3n })
  recorder.invoke({ process: 'p1', op: 'release', name: 'n' }).fail({ error: 'not held' })

  expect(beforeTheAnswer.split('\n')).toHaveLength(3)
  expect(parseHistory(text)).toEqual(recorder.history())
  expect(recorder.history().operations).toMatchObject([
    {
      id: 'p1-1',
      at: 5,
      returnedAt: 7,
      outcome: 'ok',
      token: 3n,
      leaseId: 'the lease of p1-1',
      queued: [{ at: 7 }],
    },
    { id: 'p1-4', at: 7, outcome: 'fail', leaseId: 'the lease of p1-1', error: 'not held' },
  ])
})

test('merged events keep the order of each source; at equal times what begins goes before what returns', () => {
  const invoke = (seq: number, at: number, id: string): HistoryEvent => ({
    kind: 'invoke',
    seq,
    at,
    id,
    process: id,
    op: 'close',
  })
  const answer = (seq: number, at: number, id: string): HistoryEvent => ({
    kind: 'return',
    seq,
    at,
    id,
    outcome: 'ok',
  })
  const merged = mergeEvents([
    [invoke(1, 0, 'a'), answer(2, 10, 'a'), invoke(3, 10, 'c'), answer(4, 30, 'c')],
    [invoke(1, 10, 'b'), answer(2, 20, 'b')],
  ])
  expect(
    merged.map((event) => `${event.seq} ${event.at} ${event.kind} ${'id' in event ? event.id : ''}`),
  ).toEqual([
    '1 0 invoke a',
    '2 10 invoke b',
    '3 10 return a',
    '4 10 invoke c',
    '5 20 return b',
    '6 30 return c',
  ])
})

test('the files of several processes, one of which was killed while it wrote, make one history', () => {
  const files = ['p1', 'p2'].map((process, index) => {
    let text = ''
    let now = index
    const recorder = new Recorder(
      {},
      { now: () => now, write: (line) => (text += line), prefix: `${process}-` },
    )
    const acquire = recorder.invoke({ process, op: 'acquire', name: 'n' })
    now += 10
    acquire.ok()
    return text
  })
  const [first = '', second = ''] = files
  const { operations } = parseHistories([first, second.slice(0, -20)])
  expect(operations).toMatchObject([
    { id: 'p1-1', at: 0, seq: 1, returnedAt: 10, outcome: 'ok' },
    { id: 'p2-1', at: 1, seq: 2, returnedAt: Infinity, outcome: 'unknown' },
  ])
})
