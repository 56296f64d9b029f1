import { expect, test } from 'vitest'
import { assemble } from './assemble.ts'
import type { HistoryEvent, OperationKind, Outcome } from './history.ts'
import { Story } from './testing/story.ts'

test('a pending operation is unknown, and returned nowhere', () => {
  const { operations } = new Story().acquire('A', 0, null).history()
  expect(operations[0]).toMatchObject({ outcome: 'unknown', returnedAt: Infinity, returnedSeq: Infinity })
})

test('what both ends of an operation say, the return decides', () => {
  const story = new Story().acquire('A', 0, 10, { id: 'x', outcome: 'ok' })
  const events = story.events().map((event) => (event.kind === 'return' ? { ...event, ttlMs: 200 } : event))
  expect(assemble({ kind: 'about', version: 1 }, events).operations[0]?.ttlMs).toBe(200)
})

test('a lease that the recorder did not name is the one that its process acquired last and has not released', () => {
  const told: readonly (readonly [OperationKind, Outcome])[] = [
    ['acquire', 'fail'],
    ['acquire', 'ok'],
    ['renew', 'ok'],
    ['release', 'unknown'],
    ['release', 'ok'],
    ['release', 'ok'],
  ]
  const events = told.flatMap(([op, outcome], index): HistoryEvent[] => {
    const [id, at] = [`${index}`, index]
    return [
      { kind: 'invoke', seq: 2 * index + 1, at, id, process: 'A', op, name: 'n' },
      { kind: 'return', seq: 2 * index + 2, at, id, outcome },
    ]
  })
  const { operations } = assemble({ kind: 'about', version: 1 }, events)
  expect(operations.map(({ leaseId }) => leaseId)).toEqual([
    'the lease of 0',
    'the lease of 1',
    'the lease of 1',
    'the lease of 1',
    'the lease of 1',
    undefined,
  ])
})
