import { expect, onTestFinished, test } from 'vitest'
import { FenceStaleError } from '../base/errors.ts'
import { onEvent } from '../base/events.ts'
import { makeFence } from '../base/fence.ts'
import { MemoryEngine } from '../engines/memory/engine.ts'
import { memory } from '../engines/memory/index.ts'
import { createLocker } from './locker.ts'

function locker(epoch = 0) {
  const made = createLocker(memory({ engine: new MemoryEngine(), epoch }), { holder: 'ada' })
  onTestFinished(() => made.close())
  return made
}

test('the state of a lock has neither capacity nor weights', async () => {
  const client = locker()
  const lease = await client.acquire('a', { note: 'x' })
  const waiting = client.acquire('a', { mode: 'shared' })
  const { holders, waiters, ...state } = (await client.inspect('a')) ?? {}
  expect(state).toEqual({ name: 'a', closedForMs: 0, atMs: expect.any(Number) })
  const { heldForMs, expiresInMs, ...holder } = holders?.[0] ?? {}
  expect(holder).toEqual({
    id: lease.id,
    holder: 'ada',
    mode: 'exclusive',
    session: expect.any(String),
    ttlMs: 15_000,
    token: lease.fence.token,
    note: 'x',
  })
  expect(Object.keys(waiters?.[0] ?? {}).sort()).toEqual([
    'holder',
    'id',
    'mode',
    'session',
    'ttlMs',
    'waitingForMs',
  ])
  expect(await client.list()).toEqual([expect.not.objectContaining({ capacity: expect.anything() })])
  await lease.release()
  await (await waiting).release()
})

test('the state of a semaphore has both', async () => {
  const client = locker()
  await using _ = await client.acquirePermits('s', { capacity: 5, weight: 2 })
  const state = await client.inspect('s')
  expect([state?.capacity, state?.holders[0]?.weight]).toEqual([5, 2])
})

test.each([0, 3])('states can be written as JSON, with tokens as text, in epoch %i', async (epoch) => {
  const client = locker(epoch)
  await using lease = await client.acquire('a')
  const token = String(lease.fence.token)
  const seen = await client.inspect('a')
  expect(seen?.holders[0]?.token).toBe(lease.fence.token)
  expect(JSON.parse(JSON.stringify(seen)).holders[0].token).toBe(token)
  expect(JSON.parse(JSON.stringify(seen?.holders))[0].token).toBe(token)
  expect(JSON.parse(JSON.stringify(await client.list()))[0].holders[0].token).toBe(token)
})

test('events can be written as JSON, with tokens as text', async () => {
  const client = locker(3)
  const heard: unknown[] = []
  onTestFinished(onEvent('acquired', (event) => void heard.push(event)))
  const events = client.watch()[Symbol.asyncIterator]()
  const next = events.next()
  await using lease = await client.acquire('a')
  const { value: event } = await next
  expect(event).toMatchObject({ kind: 'acquired', token: lease.fence.token })
  for (const each of [event, heard[0]])
    expect(JSON.parse(JSON.stringify(each))).toMatchObject({ name: 'a', token: String(lease.fence.token) })
  await events.return?.()
})

test('the error of a stale fence can be written as JSON, with tokens as text', () => {
  const fence = makeFence({ issuer: 'i', name: 'a', mode: 'exclusive', token: 7n, grant: 'g'.repeat(22) })
  const written = JSON.parse(JSON.stringify(new FenceStaleError(fence, 8n)))
  expect(written).toMatchObject({ code: 'FENCE_STALE', fence: { token: '7' }, highest: '8' })
})
