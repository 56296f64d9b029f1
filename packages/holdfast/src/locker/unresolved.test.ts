import { expect, test } from 'vitest'
import { contextOf } from '../../test/context.ts'
import { createRig } from '../../test/rig.ts'
import { Cancellation } from '../base/cancellation.ts'
import { memory } from '../engines/memory/index.ts'
import { Unresolved } from './unresolved.ts'

function setUp(abandon: (attempt: string) => Promise<void>) {
  const { clock, engine } = createRig()
  const stop = new Cancellation()
  let resolved = 0
  const unresolved = new Unresolved(contextOf(memory({ engine, clock })), {
    abandon: ({ attempt }) => abandon(attempt),
    release: async () => {},
    callLimitMs: () => 1_000,
    ttlMs: () => 9_000,
    stop,
    onResolved: () => resolved++,
    onHopeless: () => {},
  })
  return { clock, stop, unresolved, resolved: () => resolved }
}

test('a claim that is handed over twice before it is resolved is abandoned and counted once', async () => {
  const answer = Promise.withResolvers<void>()
  const abandoned: string[] = []
  const { clock, unresolved, resolved } = setUp((attempt) => {
    abandoned.push(attempt)
    return answer.promise
  })
  for (let times = 0; times < 2; times++) unresolved.add({ name: 'a', attempt: 'one' })
  answer.resolve()
  await clock.settle()
  expect(abandoned).toEqual(['one'])
  expect([resolved(), unresolved.abandoned, unresolved.size]).toEqual([1, 1, 0])
})

test('T29 the end of the session leaves no timer of what would have been tried again', async () => {
  const { clock, stop, unresolved } = setUp(() => Promise.reject(new Error('not now')))
  unresolved.add({ name: 'a', attempt: 'one' })
  await clock.settle()
  expect(clock.pendingTimers).toBe(1)
  stop.cancel(undefined)
  expect(clock.pendingTimers).toBe(0)
})
