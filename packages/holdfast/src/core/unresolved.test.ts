import { expect, test } from 'vitest'
import { contextOf } from '../../test/context.ts'
import { createRig } from '../../test/rig.ts'
import { memory } from '../backends/memory/index.ts'
import { Cancellation } from './cancellation.ts'
import { Unresolved } from './unresolved.ts'

test('a claim that is handed over twice before it is resolved is abandoned and counted once', async () => {
  const { clock, engine } = createRig()
  const answer = Promise.withResolvers<void>()
  const abandoned: string[] = []
  let resolved = 0
  const unresolved = new Unresolved(contextOf(memory({ engine, clock })), {
    abandon: ({ attempt }) => {
      abandoned.push(attempt)
      return answer.promise
    },
    release: async () => {},
    callLimitMs: () => 1_000,
    ttlMs: () => 9_000,
    stop: new Cancellation(),
    onResolved: () => resolved++,
    onHopeless: () => {},
  })
  for (let times = 0; times < 2; times++) unresolved.add({ name: 'a', attempt: 'one' })
  answer.resolve()
  await clock.settle()
  expect(abandoned).toEqual(['one'])
  expect([resolved, unresolved.abandoned, unresolved.size]).toEqual([1, 1, 0])
})
