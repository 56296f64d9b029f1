/** Promises of the protocol, on a simulated etcd. Each of these tests turns red with a bug that is kept in the bank. */
import { beforeEach, describe, expect, test } from 'vitest'
import { openSimulated, type SimulatedEtcd, settle } from '../../../../test/etcd/simulated-etcd.ts'
import type { AcquireRequest, BackendSession, EnqueueResult } from '../../../spi.ts'
import { call, permits, request, shared } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { always, methods, put } from '../client/index.ts'
import type { EtcdBackend } from './backend.ts'
import { Keys } from './keys.ts'

describe('the protocol', () => {
  let engine: SimulatedEtcd
  let backend: EtcdBackend
  let session: BackendSession<'fenced'>
  beforeEach(async () => {
    const opened = await openSimulated()
    engine = opened.engine
    backend = opened.backend
    session = opened.session
  })

  const take = async (asked: AcquireRequest) => {
    const result = await session.tryAcquire(asked, call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    return result.grant
  }
  const enqueue = (asked: AcquireRequest, in_ = session) => {
    const waiting: { result?: EnqueueResult<'fenced'>; error?: unknown } = {}
    enqueued(in_, asked, call()).then(
      (result) => {
        waiting.result = result
      },
      (error: unknown) => {
        waiting.error = error
      },
    )
    return waiting
  }
  const holders = async (name: string) => (await backend.inspect(name, call()))?.holders ?? []

  test('G1 T92 when a waiter in the middle cancels, the one behind it is not granted beside the holder', async () => {
    const held = await take(request('x'))
    const middle = request('x')
    enqueue(middle)
    await settle()
    const last = enqueue(request('x'))
    await settle()
    await session.abandon(middle, call())
    await settle()
    expect(await holders('x')).toHaveLength(1)
    expect(last.result).toBeUndefined()
    await session.release(held, { keepForMs: 0 }, call())
    await settle()
    expect(last.result?.kind).toBe('granted')
  })

  test('G1 T92 the same for a reader behind a writer that cancels, and for a reader without any writer left', async () => {
    const held = await take(request('x'))
    const middle = request('x')
    enqueue(middle)
    await settle()
    const reader = enqueue(shared('x'))
    await settle()
    await session.abandon(middle, call())
    await settle()
    expect(reader.result).toBeUndefined()
    await session.release(held, { keepForMs: 0 }, call())
    await settle()
    expect(reader.result?.kind).toBe('granted')
  })

  test.each([request('x'), shared('x')])(
    'G1 T17 a waiter ($mode) whose key has gone is not granted',
    async (asked) => {
      const held = await take(request('x'))
      const waiting = enqueue(asked)
      await settle()
      const own = engine.keys().find((key) => key.endsWith(asked.attempt)) ?? ''
      engine.delete(own)
      await session.release(held, { keepForMs: 0 }, call())
      await settle()
      expect(waiting.result).toBeUndefined()
      expect(waiting.error).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
      expect(await holders('x')).toEqual([])
    },
  )

  test('G2 the token of a waiter is drawn when it is granted, not when it began to wait', async () => {
    const held = await take(request('x'))
    const waiting = enqueue(request('x'))
    await settle()
    const between = await take(request('y'))
    await session.release(held, { keepForMs: 0 }, call())
    await settle()
    expect(waiting.result).toMatchObject({ kind: 'granted' })
    const token = waiting.result?.kind === 'granted' ? waiting.result.grant.token : 0n
    expect(token).toBeGreaterThan(between.token)
  })

  test('G3 T63 a keep-alive that an old leader has answered is not confirmed', async () => {
    const before = { kind: 'alive' }
    expect(await session.keepAlive({ held: [], waiting: [] }, call())).toMatchObject(before)
    // The answer of a leader that was stopped, and of which the majority knows a successor.
    engine.keepAliveTerm = engine.term
    engine.term++
    await expect(session.keepAlive({ held: [], waiting: [] }, call())).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'unknown',
    })
  })

  test('G1 permits: what is eligible in one snapshot is granted, and a smaller capacity in between is noticed', async () => {
    const [first, second] = [await take(permits('s', 1, 3)), await take(permits('s', 1, 3))]
    const heavy = enqueue(permits('s', 2, 3))
    await settle()
    expect(heavy.result).toBeUndefined()
    await session.release(first, { keepForMs: 0 }, call())
    await settle()
    expect(heavy.result?.kind).toBe('granted')
    expect((await holders('s')).map(({ weight }) => weight)).toEqual([1, 2])
    await session.release(second, { keepForMs: 0 }, call())
  })

  test('G1 permits: a capacity that becomes smaller between the snapshot and the confirmation is noticed', async () => {
    // `resize` refuses to go below what is eligible. So the confirmation must not depend on it.
    await take(permits('s', 2, 3))
    const { ask } = engine
    const from = engine.transactions.length
    engine.ask = (async (method: never, message: never, asked: never) => {
      // The first transaction joins, and the second one confirms.
      if (engine.transactions.length === from + 1) {
        engine.ask = ask
        const lease = Number.parseInt(engine.keys()[0]?.split('/').at(-1) ?? '', 16)
        const key = new Keys('default').of('s', 'capacity', lease)
        await ask.call(engine, methods.txn, always([put(key, '2', lease)]), call())
      }
      return ask.call(engine, method, message, asked)
    }) as never
    const waiting = enqueue(permits('s', 1, 3))
    await settle()
    expect(await backend.inspect('s', call())).toMatchObject({ capacity: 2, waiters: [{ weight: 1 }] })
    expect(waiting).toEqual({})
    expect((await holders('s')).map(({ weight }) => weight)).toEqual([2])
  })

  test('G1 T84 late copies of a join and of its confirmation do not grant beside a holder', async () => {
    const first = await take(request('x'))
    const from = engine.transactions.length
    const waiting = enqueue(request('x'))
    await settle()
    await session.release(first, { keepForMs: 0 }, call())
    await settle()
    if (waiting.result?.kind !== 'granted') throw new Error('it is not granted')
    const sent = engine.transactions.slice(from)
    await session.release(waiting.result.grant, { keepForMs: 0 }, call())
    const other = await backend.openSession({ id: 'o'.repeat(64), ttlMs: 15_000, holder: 'bob' }, call())
    const taken = await other.tryAcquire(request('x'), call())
    if (taken.kind !== 'granted') throw new Error(taken.kind)
    // The copy of the join waits behind the new holder.
    for (const transaction of sent) await engine.client.ask(methods.txn, transaction, call())
    expect(await backend.inspect('x', call())).toMatchObject({ waiters: [{ holder: 'ada' }] })
    expect((await holders('x')).map(({ token }) => token)).toEqual([taken.grant.token])
  })

  test('G7 T84 a late copy of data leaves the data of a later holder, also if that has the same key', async () => {
    const first = await take(request('x'))
    const from = engine.transactions.length
    expect(await session.setData?.(first, 'old', call())).toBe('stored')
    const sent = engine.transactions.slice(from)
    await session.release(first, { keepForMs: 0 }, call())
    const second = await take(request('x'))
    expect(await session.setData?.(second, 'new', call())).toBe('stored')
    for (const transaction of sent) await engine.client.ask(methods.txn, transaction, call())
    expect((await backend.inspect('x', call()))?.data).toBe('new')
  })

  test('G7 requests that leave together are granted or refused each for itself, with tokens of their own', async () => {
    await take(request('busy'))
    const sent = engine.sent
    const asked = ['a', 'busy', 'b'].map((name) => session.tryAcquire(request(name), call()))
    const results = await Promise.all(asked)
    expect(engine.sent - sent).toBe(1)
    expect(results.map(({ kind }) => kind)).toEqual(['granted', 'busy', 'granted'])
    const tokens = results.flatMap((result) => (result.kind === 'granted' ? [result.grant.token] : []))
    expect(new Set(tokens).size).toBe(2)
    for (const result of results)
      if (result.kind === 'granted')
        expect(await session.release(result.grant, { keepForMs: 0 }, call())).toBe('released')
  })

  test('G7 T84 a release that names an old grant of its attempt leaves the new one', async () => {
    const asked = request('x')
    const old = await take(asked)
    engine.delete(engine.keys().find((key) => key.endsWith(asked.attempt)) ?? '')
    const again = await take(asked)
    expect(await session.release(old, { keepForMs: 0 }, call())).toBe('not-held')
    expect((await holders('x')).map(({ token }) => token)).toEqual([again.token])
  })

  test('G6 T73 an attempt that was abandoned is refused, and its session ends without a trace', async () => {
    const asked = request('x')
    await session.abandon(asked, call())
    await expect(session.tryAcquire(asked, call())).rejects.toMatchObject({ outcome: 'not-applied' })
    await session.close(call())
    expect(engine.keys()).toEqual([])
  })
})
