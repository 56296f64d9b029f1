import { expect, test } from 'vitest'
import { contextOf } from '../../test/context.ts'
import { createRig } from '../../test/rig.ts'
import { callWith } from '../base/aborting.ts'
import { memory } from '../engines/memory/index.ts'
import { replace } from '../testing/conformance/wrapping.ts'
import { KeptSession } from './keeper.ts'

async function setUp(abandon: (attempt: string) => Promise<void>) {
  const { clock, engine } = createRig()
  const backend = replace<'fenced'>(memory({ engine, clock }), {
    session: () => ({ abandon: ({ attempt }) => abandon(attempt) }),
  })
  const opened = await backend.openSession({ id: 'x'.repeat(44), ttlMs: 9_000, holder: 'me' }, callWith())
  const session = new KeptSession(contextOf(backend), opened, 0, () => {})
  return { clock, session, timers: clock.pendingTimers }
}

test('a claim that is handed over twice before it is resolved is abandoned and counted once', async () => {
  const answer = Promise.withResolvers<void>()
  const abandoned: string[] = []
  const { clock, session } = await setUp((attempt) => {
    abandoned.push(attempt)
    return answer.promise
  })
  for (let times = 0; times < 2; times++) session.resolve({ name: 'a', attempt: 'one' })
  expect([session.isSound, session.isIdle]).toEqual([false, false])
  answer.resolve()
  await clock.settle()
  expect(abandoned).toEqual(['one'])
  expect([session.isSound, session.isIdle]).toEqual([true, true])
})

test('T29 the end of the session leaves no timer of what would have been tried again', async () => {
  const { clock, session, timers } = await setUp(() => Promise.reject(new Error('not now')))
  session.resolve({ name: 'a', attempt: 'one' })
  await clock.settle()
  expect(clock.pendingTimers).toBe(timers + 1)
  session.end('session-gone')
  // Two were the session's own.
  expect(clock.pendingTimers).toBe(timers - 2)
})
