/** The events of guards. */
import assert from 'node:assert/strict'
import { type EventKind, type HoldfastEvents, onEvent } from '../../base/events.ts'
import { guardTopic } from './case.ts'
import { failureOf, StageLease } from './stage.ts'

async function eventsDuring<K extends EventKind>(
  kind: K,
  act: () => Promise<unknown>,
): Promise<HoldfastEvents[K][]> {
  const events: HoldfastEvents[K][] = []
  const stop = onEvent(kind, (event) => events.push(event))
  try {
    await act()
  } finally {
    stop()
  }
  return events
}

export const tellingCases = guardTopic('events', [
  {
    rule: 'D130',
    title: 'guard-accepted is told for every fence that passed, and not for an effect that failed',
    async play(stage) {
      const guard = await stage.guard({ name: 'told' })
      const events = await eventsDuring('guard-accepted', async () => {
        await failureOf(guard.run(stage.fence(1n), () => Promise.reject(new Error('planted'))))
        await guard.run([stage.fence(2n), stage.shared(3n, { name: 'a' })], () => {})
        await stage.world.transaction(guard, (tx) => guard.enter(tx, stage.fence(4n)))
      })
      assert.deepEqual(events, [
        { guard: 'told', name: 'a', token: 3n },
        { guard: 'told', name: 'n', token: 2n },
        { guard: 'told', name: 'n', token: 4n },
      ])
    },
  },
  {
    rule: 'D131',
    title: 'guard-refused says why and what stood against it',
    async play(stage) {
      const guard = await stage.guard({ name: 'told' })
      await stage.accepts(guard, stage.fence(5n))
      const events = await eventsDuring('guard-refused', async () => {
        await stage.refuses(guard, 'FENCE_STALE', stage.fence(4n))
        await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n), { once: true })
        await stage.refuses(guard, 'FENCE_FOREIGN', stage.fence(6n, { issuer: 'other' }))
      })
      const about = { guard: 'told', name: 'n' }
      assert.deepEqual(events, [
        { ...about, token: 4n, reason: 'stale', highest: 5n },
        { ...about, token: 5n, reason: 'used', highest: 5n },
        { ...about, token: 6n, reason: 'foreign', highest: null },
      ])
    },
  },
  {
    rule: 'D132',
    title: 'guard-refused is told when a lease that was lost meets the guard',
    async play(stage) {
      const guard = await stage.guard({ name: 'told' })
      const lost = new StageLease(stage.fence(7n))
      lost.lose()
      const events = await eventsDuring('guard-refused', async () => {
        await stage.refuses(guard, 'LEASE_LOST', lost)
      })
      assert.deepEqual(events, [{ guard: 'told', name: 'n', token: 7n, reason: 'lost', highest: null }])
    },
  },
])
