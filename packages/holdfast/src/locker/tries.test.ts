/** One call with several tries: what is told of them, what is thrown, and how soon the next one comes. */
import { describe, expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { createRig, eventsDuring, peek, plainCall } from '../../test/rig.ts'
import { defaults } from '../base/defaults.ts'
import { BackendUnavailableError } from '../base/errors.ts'
import { onEvent } from '../base/events.ts'
import type { AcquireRequest, Attempt, Backend, BackendSession, Call } from '../spi.ts'
import { replace } from '../testing/conformance/wrapping.ts'
import { weakenWaiting } from '../testing/weaken-waiting.ts'

const ttlMs = 9_000
const longestPollMs = defaults.pollMs + defaults.pollJitterMs

describe('events of a call', () => {
  test('a call that polls is told as waiting once', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('a', { ttlMs: 600_000 })
    const client = locker({ wrap: weakenWaiting })
    const waiting = await eventsDuring('waiting', async () => {
      const asked = peek(client.acquire('a', { waitMs: 10 * longestPollMs }))
      await clock.advance(20 * longestPollMs)
      expect(asked.reason).toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
    })
    expect(waiting).toHaveLength(1)
  })

  test('all have the same attemptId, also after the session was lost', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, opened } = faulty({ ttlMs })
    await locker().acquire('a', { ttlMs: 600_000 })
    const ids = new Set<string>()
    const note = ({ attemptId }: { attemptId: string }) => void ids.add(attemptId)
    const asked = peek(client.acquire('a', { waitMs: 2 * ttlMs }))
    await clock.settle()
    const stops = [onEvent('waiting', note), onEvent('timed-out', note)]
    await opened[0]?.close(plainCall)
    await clock.advance(3 * ttlMs)
    for (const stop of stops) stop()
    expect(opened).toHaveLength(2)
    expect(asked.reason).toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
    expect(ids.size).toBe(1)
  })
})

/** A locker whose attempts the test answers. */
function byHand(rig = createRig()) {
  const asked: { readonly request: AcquireRequest; readonly attempt: Attempt<'fenced'> }[] = []
  const sessions: BackendSession<'fenced'>[] = []
  const wrap = (backend: Backend<'fenced'>) =>
    replace<'fenced'>(backend, {
      session: (inner) => {
        sessions.push(inner)
        return { enqueue: (request, attempt) => void asked.push({ request, attempt }) }
      },
    })
  return { ...rig, asked, sessions, client: rig.locker({ ttlMs, wrap }) }
}

const away = (outcome: 'unknown' | 'not-applied') => new BackendUnavailableError('memory', 'away', outcome)

test('a call whose tries fail in the queue is told as waiting once', async () => {
  const { clock, asked, client } = byHand()
  const waiting = await eventsDuring('waiting', async () => {
    void peek(client.acquire('a', { waitMs: Number.POSITIVE_INFINITY }))
    for (let tries = 1; tries <= 3; tries++) {
      while (asked.length < tries) await clock.advance(1)
      const attempt = asked.at(-1)?.attempt
      attempt?.queued?.()
      attempt?.fail(away('not-applied'))
      await clock.settle()
    }
  })
  expect(waiting).toHaveLength(1)
})

describe('the caller leaves in the very moment in which', () => {
  test.each(['unknown', 'not-applied'] as const)(
    'the engine fails (%s): the reason is the caller’s own (G11)',
    async (outcome) => {
      const { clock, asked, client } = byHand()
      const caller = new AbortController()
      const reason = new Error('enough')
      const acquiring = peek(client.acquire('a', { signal: caller.signal }))
      await clock.settle()
      asked[0]?.attempt.fail(away(outcome))
      caller.abort(reason)
      await clock.settle()
      expect(acquiring.reason).toBe(reason)
    },
  )
})

describe('an answer that core cannot use', () => {
  test.each([
    ['nothing', undefined],
    ['a token without room for the epoch', 2n ** 60n],
  ])('rejects the call and is abandoned: %s', async (_, token) => {
    const rig = createRig()
    const abandoned: string[] = []
    const wrap = (backend: Backend<'fenced'>) =>
      Object.assign(
        replace<'fenced'>(backend, {
          session: (inner) => ({
            enqueue(request, attempt) {
              const { name } = request
              const since = inner.since
              const grant = {
                name,
                attempt: request.attempt,
                grantId: '1',
                token: token as bigint,
                since,
                ttlMs,
              }
              attempt.answer(token === undefined ? (undefined as never) : { kind: 'granted', grant })
            },
            tryAcquire: async () => undefined as never,
            abandon: async ({ name }) => void abandoned.push(name),
          }),
        }),
        { info: { ...backend.info, epoch: 1 } },
      )
    const client = rig.locker({ ttlMs, wrap })
    const asked = peek(client.acquire('a'))
    const tried = token === undefined ? peek(client.tryAcquire('b')) : undefined
    await rig.clock.settle()
    expect(asked.status).toBe('rejected')
    if (tried !== undefined) expect(tried.status).toBe('rejected')
    expect(abandoned).toContain('a')
  })
})

test('polls do not lengthen the pause after the first failure', async () => {
  const { clock, locker } = createRig()
  await locker().acquire('a', { ttlMs: 600_000 })
  const polls = 20
  let tries = 0
  const client = locker({
    wrap: (backend) =>
      replace<'fenced'>(weakenWaiting(backend), {
        session: (inner) => ({
          tryAcquire: (request: AcquireRequest, call: Call) =>
            ++tries === polls ? Promise.reject(away('not-applied')) : inner.tryAcquire(request, call),
        }),
      }),
  })
  void peek(client.acquire('a', { waitMs: Number.POSITIVE_INFINITY }))
  while (tries < polls) await clock.advance(1)
  // The pauses of failures begin with 10 ms.
  await clock.advance(10)
  expect(tries).toBeGreaterThan(polls)
})

test('T54 several names are not asked for again when the pause before that has used up the time', async () => {
  const { clock, faulty, locker } = createFaultyRig()
  const { client, faults } = faulty()
  const stranger = locker()
  const held = await stranger.acquire('b', { ttlMs: 600_000 })
  const waitMs = ttlMs - 1
  const asked = peek(client.acquireAll(['a', 'b'], { ttlMs, waitMs }))
  await clock.settle()
  await stranger.forceRelease('a', { all: true, reason: 'a test' })
  // The next keep-alive tells that it is lost.
  await clock.advance(waitMs - 1)
  await held.release()
  await clock.advance(10)
  expect(asked.reason).toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
  expect([faults.count('enqueue'), faults.count('tryAcquire')]).toEqual([2, 0])
})
