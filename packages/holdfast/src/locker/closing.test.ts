/** How long closing may take when a session has more than the engine gives up at once, and what is said of the rest. */
import { describe, expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { createRig, eventsDuring, peek } from '../../test/rig.ts'
import { sleep } from '../base/clock.ts'
import type { Backend, BackendSession, Call } from '../spi.ts'

const ttlMs = 9_000
/** A third of the TTL is the limit of one call; between two parts it is never reached. */
const partMs = 2_000

type Close = (giveUpAll: BackendSession['close'], call: Call) => Promise<void>

function setStage(close: Close) {
  const rig = createRig()
  const wrap = (backend: Backend<'fenced'>) => {
    const openSession = backend.openSession.bind(backend)
    backend.openSession = async (request, call) => {
      const session = await openSession(request, call)
      const giveUpAll = session.close.bind(session)
      session.close = (closeCall) => close(giveUpAll, closeCall)
      return session
    }
    return backend
  }
  return { ...rig, client: rig.locker({ wrap, ttlMs }), other: rig.locker() }
}

/** Gives up everything at the end, after so many parts. */
function inParts(parts: number, clock: () => ReturnType<typeof createRig>['clock']): Close {
  return async (giveUpAll, call) => {
    for (let left = parts; left > 0; left--) {
      await sleep(clock(), partMs, { signal: call.signal })
      call.onProgress?.(left - 1)
    }
    await giveUpAll(call)
  }
}

describe('closing in parts', () => {
  test('takes longer than the limit of a call as long as there is progress, and leaves nothing', async () => {
    const stage = setStage(inParts(4, () => stage.clock))
    const { clock, client, other } = stage
    for (const name of ['a', 'b', 'c', 'd']) await client.acquire(name)
    const events = await eventsDuring('close-failed', async () => {
      const closing = peek(client.close())
      await clock.advance(3.5 * partMs)
      expect(closing.status).toBe('pending')
      await clock.advance(partMs)
      expect(closing.status).toBe('fulfilled')
    })
    expect(events).toEqual([])
    expect(await other.list()).toEqual([])
  })

  test('G11 without progress it ends, and says how much is left and until when', async () => {
    const stage = setStage(async (_, call) => {
      await sleep(stage.clock, partMs)
      call.onProgress?.(2)
      await new Promise(() => {})
    })
    const { clock, client, other } = stage
    for (const name of ['a', 'b', 'c']) await client.acquire(name)
    const closing = peek(client.close())
    const events = await eventsDuring('close-failed', () => clock.advance(partMs + ttlMs / 2))
    expect(closing.status).toBe('fulfilled')
    expect(events).toMatchObject([
      { backend: 'memory', namespace: 'default', left: 2, error: { code: 'BACKEND_UNAVAILABLE' } },
    ])
    const expireWithinMs = events[0]?.expireWithinMs ?? 0
    expect(expireWithinMs).toBeGreaterThan(0)
    expect(expireWithinMs).toBeLessThanOrEqual(ttlMs - partMs)
    expect(await other.list()).not.toEqual([])
    await clock.advance(expireWithinMs)
    expect(await other.list()).toEqual([])
  })

  test('G11 without any answer all of it is left', async () => {
    const { clock, client } = setStage(() => new Promise(() => {}))
    for (const name of ['a', 'b', 'c']) await client.acquire(name)
    const closing = peek(client.close())
    const events = await eventsDuring('close-failed', () => clock.advance(ttlMs / 2))
    expect(closing.status).toBe('fulfilled')
    expect(events).toMatchObject([{ left: 3 }])
  })

  test('ends with the TTL, which leaves nothing, however much there is to do', async () => {
    const stage = setStage(inParts(1_000, () => stage.clock))
    const { clock, client, other } = stage
    await client.acquire('a')
    const closing = peek(client.close())
    const events = await eventsDuring('close-failed', async () => {
      await clock.advance(ttlMs - 1)
      expect(closing.status).toBe('pending')
      await clock.advance(10)
      expect(closing.status).toBe('fulfilled')
    })
    expect(events).toEqual([])
    expect(await other.list()).toEqual([])
  })

  test('a session that had nothing is not reported', async () => {
    const { clock, client } = setStage(() => new Promise(() => {}))
    await (await client.acquire('a')).release()
    const closing = peek(client.close())
    const events = await eventsDuring('close-failed', () => clock.advance(ttlMs / 2))
    expect(closing.status).toBe('fulfilled')
    expect(events).toEqual([])
  })
})

test('T23 what is to be held at least is released in parts, so that none waits for its call behind thousands', async () => {
  const { locker } = createRig()
  let atOnce = 0
  let most = 0
  const client = locker({
    ttlMs,
    wrap: (backend) => {
      const openSession = backend.openSession.bind(backend)
      backend.openSession = async (request, call) => {
        const session = await openSession(request, call)
        const release = session.release.bind(session)
        session.release = async (...given) => {
          most = Math.max(most, ++atOnce)
          await Promise.resolve()
          return release(...given).finally(() => atOnce--)
        }
        return session
      }
      return backend
    },
  })
  for (let index = 0; index < 1_200; index++) await client.acquire(`n${index}`, { holdAtLeastMs: 3 * ttlMs })
  await client.close()
  expect(most).toBeLessThanOrEqual(500)
  const closed = (await locker().list()).filter(({ closedForMs = 0 }) => closedForMs > ttlMs)
  expect(closed).toHaveLength(1_200)
})

test('the whole takes a TTL at most, also with hold-at-least and a slow engine, and says what was not kept closed', async () => {
  const { clock, locker } = createRig()
  const client = locker({
    ttlMs,
    wrap: (backend) => {
      const openSession = backend.openSession.bind(backend)
      backend.openSession = async (request, call) => {
        const session = await openSession(request, call)
        const release = session.release.bind(session)
        session.release = async (...given) => {
          await sleep(clock, 2_500)
          return release(...given)
        }
        return session
      }
      return backend
    },
  })
  const LEASES = 5_000
  for (let i = 0; i < LEASES; i++) await client.acquire(`n${i}`, { holdAtLeastMs: 10 * ttlMs })
  const closing = peek(client.close())
  const failed = await eventsDuring('release-failed', () => clock.advance(ttlMs + 100))
  expect(closing.status).toBe('fulfilled')
  const closed = (await locker().list()).filter(({ closedForMs = 0 }) => closedForMs > 0)
  expect(closed.length).toBeGreaterThan(0)
  expect(new Set(failed.map(({ name }) => name)).size).toBe(LEASES - closed.length)
})

test('G11 a waiter of which the engine has not said that it is gone counts as left', async () => {
  const { clock, faulty, locker } = createFaultyRig()
  const { client, faults } = faulty({ ttlMs })
  await client.acquire('a')
  await locker().acquire('b', { ttlMs: 60_000 })
  void peek(client.acquire('b', { waitMs: 60_000 }))
  await clock.settle()
  faults.freeze()
  const closing = peek(client.close())
  const events = await eventsDuring('close-failed', () => clock.advance(ttlMs / 2))
  expect(closing.status).toBe('fulfilled')
  expect(events).toMatchObject([{ left: 2 }])
})

test('a backend may take onProgress out of its call, and progress after the end changes nothing', async () => {
  const stage = setStage(async (giveUpAll, call) => {
    const { onProgress } = call
    onProgress?.(1)
    await giveUpAll(call)
    late = onProgress
  })
  let late: ((left: number) => void) | undefined
  await stage.client.acquire('a')
  await stage.client.close()
  const before = stage.clock.pendingTimers
  late?.(1)
  expect(stage.clock.pendingTimers).toBe(before)
  expect(late).toBeDefined()
})

test('T53 a session whose time is over while a body still runs is left to the engine', async () => {
  const { clock, locker } = createRig()
  let isMute = false
  const closing = locker({
    ttlMs,
    wrap: (backend) => {
      const openSession = backend.openSession.bind(backend)
      return Object.assign(backend, {
        async openSession(...args: Parameters<typeof openSession>) {
          const session = await openSession(...args)
          const keepAlive = session.keepAlive.bind(session)
          // The engine prolongs, and its answers are lost.
          session.keepAlive = async (...asked) => {
            const answer = await keepAlive(...asked)
            return isMute ? new Promise<never>(() => {}) : answer
          }
          return session
        },
      })
    },
  })
  const stubborn = peek(closing.withLease('x', () => new Promise(() => {})))
  await clock.settle()
  isMute = true
  const closed = peek(closing.close({ graceMs: 4 * ttlMs }))
  await clock.advance(ttlMs + 1_000)
  expect(stubborn.status).toBe('pending')
  // The body has not stopped, and the engine has prolonged.
  expect(await locker().tryAcquire('x')).toBeNull()
  await clock.advance(ttlMs)
  expect(await locker().tryAcquire('x')).not.toBeNull()
  await clock.advance(4 * ttlMs)
  expect(closed.status).not.toBe('pending')
})
