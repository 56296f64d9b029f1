import { describe, expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { createRig } from '../../test/rig.ts'
import { callWith } from '../base/aborting.ts'
import type { Backend } from '../spi.ts'

const all = { all: true, reason: 'stuck' } as const

/** A locker, and the backend that it uses, to be changed by a test. */
function lockerAndBackend() {
  const backends: Backend<'fenced'>[] = []
  const client = createRig().locker({
    wrap(backend) {
      backends.push(backend)
      return backend
    },
  })
  const [backend] = backends
  if (backend === undefined) throw new Error('the rig did not wrap the backend')
  return { client, backend }
}

describe('operators’ calls', () => {
  test('T78 G7 a force release that was cancelled and lands later does not end the next holder', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const [first, second] = [locker(), locker()]
    const operator = faulty()
    const old = await first.acquire('a', { ttlMs: 60_000 })
    operator.faults.next('forceRelease', { kind: 'late-landing', ms: 3_000 })
    await expect(operator.client.forceRelease('a', all)).rejects.toMatchObject({ outcome: 'unknown' })
    await old.release()
    const next = await second.acquire('a', { ttlMs: 60_000 })
    await clock.advance(3_000)
    expect((await second.inspect('a'))?.holders.map(({ id }) => id)).toEqual([next.id])
    expect(next.state).toBe('held')
  })

  test('T78 a force release that lands after its time is refused by the engine', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const operator = faulty({ callTimeoutMs: 1_000 })
    const held = await locker().acquire('a', { ttlMs: 60_000 })
    operator.faults.next('forceRelease', { kind: 'late-landing', ms: 1_000 })
    await expect(operator.client.forceRelease('a', all)).rejects.toMatchObject({ outcome: 'unknown' })
    await clock.advance(1_000)
    expect((await locker().inspect('a'))?.holders.map(({ id }) => id)).toEqual([held.id])
  })

  test.each(['lost-request', 'lost-reply', 'error-after'] as const)(
    'G11 a call that only reads says that nothing was changed, also when it is not answered (%s)',
    async (kind) => {
      const { clock, faulty } = createFaultyRig()
      const { client, faults } = faulty({ callTimeoutMs: 1_000 })
      const lease = await client.acquire('a', { ttlMs: 60_000 })
      const looking = {
        check: () => client.check(lease.fence),
        inspect: () => client.inspect('a'),
        list: () => client.list(),
      }
      const operating = {
        resize: () => client.resize('a', 2),
        forget: () => client.forget('a'),
        forceRelease: () => client.forceRelease('a', all),
      }
      for (const [call, ask] of Object.entries({ ...looking, ...operating })) {
        faults.next(call in looking ? (call as keyof typeof looking) : 'inspect', { kind })
        const failure = ask().catch((error: unknown) => error)
        await clock.advance(1_000)
        expect(await failure, call).toMatchObject({
          code: 'BACKEND_UNAVAILABLE',
          outcome: 'not-applied',
          message: expect.stringMatching(/It has not taken effect\.$/),
        })
      }
    },
  )

  test('a resize whose name changes in between looks again, and says what is so then', async () => {
    const { client, backend } = lockerAndBackend()
    await client.acquirePermits('s', { capacity: 2 })
    let looks = 0
    const inspect = backend.inspect.bind(backend)
    // Another operator is quicker, after the first look.
    backend.inspect = async (name, call) => {
      const seen = await inspect(name, call)
      if (++looks === 1)
        await backend.resize(name, { from: 2, to: 5 }, callWith(call.signal, { notAfterMs: 1e15 }))
      return seen
    }
    expect(await client.resize('s', 3)).toBe('resized')
    expect(looks).toBe(2)
    expect((await client.inspect('s'))?.capacity).toBe(3)
  })

  test('an id names one of the holders that have the same label', async () => {
    const { locker } = createRig()
    const [first, second] = [locker({ holder: 'api' }), locker({ holder: 'api' })]
    const [kept, ended] = [
      await first.acquire('a', { mode: 'shared' }),
      await second.acquire('a', { mode: 'shared' }),
    ]
    expect(await first.forceRelease('a', { id: 'unknown', reason: 'stuck' })).toBe(0)
    expect(await first.forceRelease('a', { id: ended.id, reason: 'stuck' })).toBe(1)
    expect((await first.inspect('a'))?.holders.map(({ id }) => id)).toEqual([kept.id])
  })

  test('G12 an engine without semaphores refuses to resize, whatever holds the name', async () => {
    const client = createRig().locker({
      wrap: (backend) => Object.assign(backend, { info: { ...backend.info, modes: ['exclusive'] } }),
    })
    await expect(client.resize('free', 3)).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await client.acquire('a')
    await expect(client.resize('a', 3)).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  })

  test('a name that changes at every look is given up, and nothing is applied', async () => {
    const { client, backend } = lockerAndBackend()
    await client.acquirePermits('s', { capacity: 2 })
    backend.resize = async () => 'changed'
    await expect(client.resize('s', 3)).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
    })
  })

  test('a forget that finds the data gone after it saw some says forgotten', async () => {
    const { client, backend } = lockerAndBackend()
    const lease = await client.acquire('a')
    await lease.setData('a note')
    await lease.release()
    const forget = backend.forget.bind(backend)
    // The first copy was applied and its answer got lost; the client sent it again.
    backend.forget = async (name, data, call) => {
      await forget(name, data, call)
      return forget(name, data, call)
    }
    expect(await client.forget('a')).toBe('forgotten')
    expect(await client.forget('a')).toBe('not-found')
  })
})
