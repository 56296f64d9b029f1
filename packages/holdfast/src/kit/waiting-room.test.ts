import assert from 'node:assert/strict'
import { test } from 'vitest'
import { exclusive } from '../../test/postgres/stage.ts'
import { peek } from '../../test/rig.ts'
import { callWith } from '../base/aborting.ts'
import { isHoldfastError } from '../base/errors.ts'
import type { EnqueueResult } from '../spi.ts'
import { type Waiter, WaitingRoom } from './waiting-room.ts'

interface TestWaiter extends Waiter<'fenced', bigint> {
  readonly outcome: ReturnType<typeof peek<EnqueueResult<'fenced'>>>
}

function stage() {
  let emptied = 0
  const room = new WaitingRoom<TestWaiter, bigint>({ backend: 'test', onEmpty: () => emptied++ })
  const ask = (name: string, session: unknown = 1, signal?: AbortSignal): TestWaiter => {
    const result = Promise.withResolvers<EnqueueResult<'fenced'>>()
    const request = exclusive(name)
    const waiter: TestWaiter = {
      request,
      session,
      attempt: callWith(signal, { answer: result.resolve, fail: result.reject, queued: () => {} }),
      granted: (token) => ({
        kind: 'granted',
        grant: { ...request, grantId: String(token), token, since: { monotonicMs: 0, wallMs: 0 }, ttlMs: 1 },
      }),
      outcome: peek(result.promise),
    }
    room.ask(waiter)
    return waiter
  }
  return { room, ask, emptied: () => emptied }
}

function tokenOf({ outcome }: TestWaiter): bigint | undefined {
  return outcome.value?.kind === 'granted' ? outcome.value.grant.token : undefined
}

const soon = () => new Promise((resolve) => setImmediate(resolve))

test('a waiter that is granted at once never enters', async () => {
  const { room, ask, emptied } = stage()
  const waiter = ask('x')
  assert.equal(room.size, 0)
  room.grant(waiter, 7n)
  await soon()
  assert.equal(tokenOf(waiter), 7n)
  assert.equal(room.enter(waiter), false, 'its wait is over')
  assert.equal(emptied(), 0)
})

test('a waiter whose request is in flight is not listed, also for another session; one that waits is', () => {
  const { room, ask } = stage()
  const [asked, waits, other] = [ask('x'), ask('x'), ask('x', 2)]
  room.enter(waits)
  const claims = [asked, waits, other].map(({ request }) => request)
  assert.deepEqual(room.withoutAsked(claims), [waits.request])
  for (const each of [asked, other]) room.enter(each)
  assert.deepEqual(room.withoutAsked(claims), claims)
})

test('news that overtakes the answer finds the waiter, and the answer changes nothing', async () => {
  const { room, ask } = stage()
  const waiter = ask('x')
  for (const found of room.find(waiter.request.attempt, 1)) room.grant(found, 7n)
  assert.equal(room.enter(waiter), false)
  room.grant(waiter, 8n)
  await soon()
  assert.equal(tokenOf(waiter), 7n)
})

test('T103 news that cannot be understood fails the waiter, and not the one who brings it', async () => {
  const { room, ask, emptied } = stage()
  const planted = new Error('no token')
  const waiter = {
    ...ask('x'),
    granted: () => {
      throw planted
    },
  }
  room.ask(waiter)
  assert(room.enter(waiter))
  room.grant(waiter, 7n)
  await soon()
  assert.equal(waiter.outcome.reason, planted)
  assert.deepEqual([room.isWaiting(waiter), emptied()], [false, 1])
})

test('waiters are found by attempt, session and name; the last one that leaves is told', () => {
  const { room, ask, emptied } = stage()
  const [a, b, other] = [ask('x'), ask('x', 2), ask('y')]
  for (const waiter of [a, b, other]) assert(room.enter(waiter))
  assert.equal(room.enter(a), true, 'entering twice changes nothing')
  assert.deepEqual(room.of('x'), [a, b])
  assert.deepEqual(room.find(a.request.attempt), [a])
  assert.deepEqual(room.find(a.request.attempt, 2), [])
  assert.deepEqual(room.waiters, [a, b, other])
  for (const waiter of [a, b]) assert(room.leave(waiter))
  assert.equal(room.leave(a), false)
  assert.equal(emptied(), 0)
  room.leave(other)
  assert.equal(emptied(), 1)
  assert.deepEqual(room.of('x'), [])
})

test('a cancelled wait is unknown, also if it was cancelled before it entered', async () => {
  const { room, ask } = stage()
  const controller = new AbortController()
  const [early, late] = [ask('x', 1, controller.signal), ask('x', 1, controller.signal)]
  assert(room.enter(early))
  controller.abort()
  assert.equal(room.enter(late), false)
  await soon()
  for (const { outcome } of [early, late]) {
    assert(outcome.status === 'rejected' && isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'))
    assert.equal(outcome.reason.outcome, 'unknown')
  }
  assert.equal(room.size, 0)
})

test('an abandoned or lost wait is rejected as not applied, and concerns no other', async () => {
  const { room, ask } = stage()
  const [abandoned, lost, other] = [ask('x'), ask('x'), ask('x', 2)]
  for (const waiter of [abandoned, lost, other]) room.enter(waiter)
  room.abandoned(2, abandoned.request.attempt)
  room.abandoned(1, abandoned.request.attempt)
  room.lost(lost, 'expired')
  await soon()
  for (const { outcome } of [abandoned, lost]) {
    assert(outcome.status === 'rejected' && isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'))
    assert.equal(outcome.reason.outcome, 'not-applied')
  }
  assert.equal(other.outcome.status, 'pending')
})

test('the end of a session, or of the backend, ends its waits, also those that are only asked for', async () => {
  const { room, ask } = stage()
  const [asked, waiting, other] = [ask('x'), ask('x'), ask('x', 2)]
  room.enter(waiting)
  room.enter(other)
  room.sessionEnded(1)
  await soon()
  for (const { outcome } of [asked, waiting])
    assert.deepEqual(outcome, { status: 'fulfilled', value: { kind: 'session-gone' } })
  assert.equal(other.outcome.status, 'pending')
  const closed = new Error('closed')
  room.close(closed)
  await soon()
  assert.deepEqual(other.outcome, { status: 'rejected', reason: closed })
})
