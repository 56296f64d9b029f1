/** Keys are used again, and late copies of requests do no harm to the attempt that has the key now. */
import { beforeEach, describe, expect, test } from 'vitest'
import { openSimulated, SimulatedEtcd, settle } from '../../../../test/etcd/simulated-etcd.ts'
import { callWith } from '../../../base/aborting.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { AcquireRequest, AttachedSession, BackendSession, Grant } from '../../../spi.ts'
import { call, permits, request, shared } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { EtcdError } from '../client/failures.ts'
import {
  always,
  isRead,
  kvsOf,
  methods,
  type Operation,
  put,
  remove,
  type TxnRequest,
  type TxnResponse,
} from '../client/index.ts'
import { openEtcd } from './assemble.ts'
import type { EtcdBackend } from './backend.ts'
import { Connection, unavailable } from './connection.ts'
import { Slots } from './slots.ts'

describe('keys that are used again', () => {
  let engine: SimulatedEtcd
  let backend: EtcdBackend
  let session: BackendSession<'fenced'>
  beforeEach(async () => {
    const opened = await openSimulated()
    engine = opened.engine
    backend = opened.backend
    session = opened.session
  })

  type Session = Pick<AttachedSession<'fenced'>, 'tryAcquire' | 'release'>
  const take = async (asked: AcquireRequest, from: Session = session) => {
    const result = await from.tryAcquire(asked, call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    return result.grant
  }
  const release = (grant: Grant, from: Session = session) => from.release(grant, { keepForMs: 0 }, call())
  const claims = () => [...engine.everCreated].filter((key) => /\0(exclusive|permits|shared)/.test(key))
  const holders = async (name: string) =>
    (await backend.inspect(name, call()))?.holders.map(({ token }) => token) ?? []
  /** The transactions that `work` sends, to be sent once more later. */
  const sentBy = async (work: () => Promise<unknown>): Promise<readonly TxnRequest[]> => {
    const before = engine.transactions.length
    await work()
    return engine.transactions.slice(before)
  }
  const arriveLate = async (transactions: readonly TxnRequest[]) => {
    for (const transaction of transactions) await engine.client.ask(methods.txn, transaction, call())
  }
  /** The transaction that `work` sends, and to which it gets no answer. It does not arrive. */
  const lost = async (work: () => Promise<unknown>): Promise<TxnRequest> => {
    const { ask } = engine
    let sent: TxnRequest | undefined
    engine.ask = (async (_method: never, message: TxnRequest) => {
      sent = message
      throw unavailable('no answer', 'unknown')
    }) as never
    await expect(work()).rejects.toMatchObject({ outcome: 'unknown' })
    engine.ask = ask
    return sent as TxnRequest
  }
  /** Has a key that is named after another attempt. */
  const takeUsed = async (asked = request('x')) => {
    await release(await take({ ...asked, attempt: request('x').attempt }))
    return take(asked)
  }

  test('one after another they have one key', async () => {
    const tokens: bigint[] = []
    for (let turn = 0; turn < 5; turn++) {
      const grant = await take(request('x'))
      tokens.push(grant.token)
      expect(await release(grant)).toBe('released')
    }
    expect(claims()).toHaveLength(1)
    expect(tokens).toEqual(tokens.toSorted((a, b) => Number(a - b)))
    await take(request('y'))
    expect(claims()).toHaveLength(2)
  })

  test('many at once have as many keys as there were at once; refused and abandoned ones give theirs back', async () => {
    for (let turn = 0; turn < 3; turn++) {
      const held = await take(permits('s', 2, 2))
      expect((await session.tryAcquire(permits('s', 1, 2), call())).kind).toBe('busy')
      const waiting = [permits('s', 1, 2), permits('s', 1, 2), permits('s', 1, 2)]
      const results = waiting.map((asked) => enqueued(session, asked, call()).catch(() => null))
      await settle()
      for (const asked of waiting.slice(2)) await session.abandon(asked, call())
      await release(held)
      for (const result of await Promise.all(results))
        if (result?.kind === 'granted') await release(result.grant)
    }
    expect(claims()).toHaveLength(4)
  })

  test('an attempt that is asked for again has the key that it had', async () => {
    const asked = request('x')
    const grant = await takeUsed(asked)
    expect(await take(asked)).toMatchObject({ token: grant.token })
    expect(claims()).toHaveLength(1)
  })

  test('T84 an attempt without an answer that is asked for again has the key that it had', async () => {
    await release(await take(request('x')))
    const asked = request('x')
    const ask = engine.ask
    engine.ask = async (...given) => {
      await ask.apply(engine, given as never)
      throw unavailable('the answer was lost', 'unknown')
    }
    await expect(take(asked)).rejects.toThrow(/lost/)
    engine.ask = ask
    expect(await take(asked)).toMatchObject({ attempt: asked.attempt })
    expect(claims()).toHaveLength(1)
    expect(await holders('x')).toHaveLength(1)
  })

  test('T84 a late copy of what has granted a waiter does not grant it again', async () => {
    const first = await take(request('x'))
    const waiting = enqueued(session, request('x'), call())
    await settle()
    const sent = await sentBy(async () => {
      await release(first)
      await waiting
    })
    const granted = await waiting
    if (granted?.kind !== 'granted') throw new Error('it is not granted')
    await arriveLate(sent)
    expect(await holders('x')).toEqual([granted.grant.token])
    const kept = await session.keepAlive({ held: [granted.grant], waiting: [] }, call())
    expect(kept).toMatchObject({ lost: [] })
  })

  test('G7 late copies of what the last attempt sent leave the next one its key', async () => {
    const [first, second] = [request('x'), request('x')]
    const sent = await sentBy(async () => {
      await release(await take(first))
      // It waits behind a reader, and leaves.
      const reader = await take(shared('x'))
      enqueued(session, second, call()).catch(() => {})
      await settle()
      await session.abandon(second, call())
      await release(reader)
    })
    const grant = await take(request('x'))
    await arriveLate(sent)
    expect(await holders('x')).toEqual([grant.token])
    const waiting = enqueued(session, request('x'), call())
    await settle()
    await arriveLate(sent)
    await release(grant)
    expect((await waiting)?.kind).toBe('granted')
  })

  test('T73 T84 a late join that takes a free key is told as unlisted; the attempt that finds it taken fails as unknown', async () => {
    const late = request('x')
    let grant: Grant<'fenced'> | undefined
    const join = await sentBy(async () => {
      grant = await take(late)
    })
    await release(grant as Grant<'fenced'>)
    await arriveLate(join)
    const unlucky = request('x')
    await expect(session.tryAcquire(unlucky, call())).rejects.toMatchObject({ outcome: 'unknown' })
    await session.abandon(unlucky, call())
    const kept = await session.keepAlive({ held: [], waiting: [] }, call())
    expect(kept).toMatchObject({ unlisted: [{ attempt: late.attempt }] })
    const next = enqueued(session, request('x'), call())
    await settle()
    await session.abandon(late, call())
    expect((await next)?.kind).toBe('granted')
    await arriveLate(join)
    expect(await holders('x')).toHaveLength(1)
  })

  test.each([
    ['exclusive', () => request('x')],
    ['shared', () => shared('x')],
    ['permits', () => permits('x', 1, 3)],
  ] as const)(
    'T84 %s: an attempt that found its key taken gets no second claim by a late copy',
    async (_, asked) => {
      const [late, unlucky] = [asked(), asked()]
      let grant: Grant<'fenced'> | undefined
      const join = await sentBy(async () => {
        grant = await take(late)
      })
      await release(grant as Grant<'fenced'>)
      // The first request of the next attempt is on its way for long.
      const delayed = await lost(() => session.tryAcquire(unlucky, call()))
      await arriveLate(join)
      await expect(session.tryAcquire(unlucky, call())).rejects.toMatchObject({ outcome: 'unknown' })
      await session.abandon(unlucky, call())
      await session.abandon(late, call())
      await arriveLate([delayed])
      expect(await backend.inspect('x', call())).toBeNull()
    },
  )

  test('T73 a late join is told as unlisted also if the next attempt has its slot in another mode', async () => {
    const late = request('x')
    const join = await sentBy(async () => {
      await release(await take(late))
    })
    await arriveLate(join.slice(0, 1))
    const reader = shared('x')
    const reading = enqueued(session, reader, call())
    await settle()
    const kept = await session.keepAlive({ held: [], waiting: [reader] }, call())
    expect(kept).toMatchObject({ lost: [], unlisted: [{ attempt: late.attempt }] })
    await session.abandon(late, call())
    expect((await reading)?.kind).toBe('granted')
  })

  test('T73 an attempt that is abandoned without an answer stays away, also if its key is free', async () => {
    await release(await take(request('x')))
    const late = request('x')
    const join = await lost(() => take(late))
    await session.abandon(late, call())
    await arriveLate([join])
    expect(await holders('x')).toEqual([])
  })

  test('G9 attempts whose joins were answered leave no mark when they are given up, and are refused all the same', async () => {
    const held = await take(request('x'))
    const waiting = [request('x'), shared('x'), request('x')]
    for (const asked of waiting) enqueued(session, asked, call()).catch(() => {})
    await settle()
    const before = engine.keys()
    for (const asked of waiting) await session.abandon(asked, call())
    expect(before.filter((key) => key.includes('\0'))).toHaveLength(4)
    expect(engine.keys().filter((key) => key.includes('/m/'))).toEqual([])
    expect(engine.keys().filter((key) => key.includes('\0'))).toHaveLength(1)
    for (const asked of waiting) await expect(session.tryAcquire(asked, call())).rejects.toThrow(/abandoned/)
    await session.abandon(held, call())
    await expect(take({ ...request('x'), attempt: held.attempt })).rejects.toThrow(/abandoned/)
  })

  test('G9 data are written without a look at those who wait', async () => {
    const held = await take(request('x'))
    for (let waiters = 0; waiters < 20; waiters++) enqueued(session, request('x'), call()).catch(() => {})
    await settle()
    const { ask } = engine
    let read = 0
    engine.ask = (async (...asked: Parameters<typeof ask>) => {
      const answer = (await ask.apply(engine, asked)) as TxnResponse
      read += kvsOf(answer).length
      return answer
    }) as never
    expect(await session.setData?.(held, 'a note', call())).toBe('stored')
    expect(read).toBe(1)
  })

  test('T78 a semaphore one of whose sessions ends between the look and the write of a resize is not resized', async () => {
    const held = await take(permits('x', 1, 3))
    const other = await backend.openSession({ id: 'o'.repeat(64), ttlMs: 15_000, holder: 'bob' }, call())
    await take(permits('x', 1, 3), other as Session)
    const { ask } = engine
    engine.ask = (async (...asked: Parameters<typeof ask>) => {
      if (!isRead(asked[1] as TxnRequest)) {
        engine.ask = ask
        await other.close(call())
      }
      return ask.apply(engine, asked)
    }) as never
    const operating = callWith(undefined, { notAfterMs: Number.MAX_SAFE_INTEGER })
    expect(await backend.resize('x', { from: 3, to: 2 }, operating)).toBe('changed')
    expect(await holders('x')).toEqual([held.token])
  })

  test('T78 data that were stored between the look and the write of a forget stay', async () => {
    const store = async (data: string) => {
      const held = await take(request('x'))
      expect(await session.setData?.(held, data, call())).toBe('stored')
      await release(held)
    }
    await store('old')
    const { ask } = engine
    engine.ask = (async (...asked: Parameters<typeof ask>) => {
      if (!isRead(asked[1] as TxnRequest)) {
        engine.ask = ask
        await store('new')
      }
      return ask.apply(engine, asked)
    }) as never
    const operating = callWith(undefined, { notAfterMs: Number.MAX_SAFE_INTEGER })
    expect(await backend.forget('x', 'old', operating)).toBe('changed')
    expect((await backend.inspect('x', call()))?.data).toBe('new')
  })

  test('T78 of two calls that forget the same data, one does', async () => {
    const held = await take(request('x'))
    await session.setData?.(held, 'a note', call())
    await release(held)
    const forget = () =>
      backend.forget('x', 'a note', callWith(undefined, { notAfterMs: Number.MAX_SAFE_INTEGER }))
    expect((await Promise.all([forget(), forget()])).sort()).toEqual(['changed', 'forgotten'])
  })

  describe('T98 what is asked twice', () => {
    beforeEach(() => {
      engine.asksTwice = 'both'
    })
    const keepAlive = (...held: Grant<'fenced'>[]) => session.keepAlive({ held, waiting: [] }, call())

    test.each([() => request('x'), () => shared('x'), () => permits('x', 1, 3)])(
      'G1 is granted once, with the token of the copy that was applied (%#)',
      async (asked) => {
        const wanted = asked()
        const grant = await take(wanted)
        expect(await holders('x')).toEqual([grant.token])
        engine.asksTwice = 'no'
        expect(await take(wanted)).toMatchObject({ token: grant.token })
        expect(await keepAlive(grant)).toMatchObject({ lost: [], unlisted: [] })
        expect(await release(grant)).toBe('released')
      },
    )

    test('a waiter that is granted has the token of the copy that was applied', async () => {
      const first = await take(request('x'))
      const waiting = enqueued(session, request('x'), call())
      await settle()
      expect((await backend.inspect('x', call()))?.waiters).toHaveLength(1)
      engine.asksTwice = 'no'
      await release(first)
      engine.asksTwice = 'both'
      const result = await waiting
      if (result?.kind !== 'granted') throw new Error('it is not granted')
      expect(await holders('x')).toEqual([result.grant.token])
      expect(await keepAlive(result.grant)).toMatchObject({ lost: [], unlisted: [] })
    })

    test.each([() => request('x'), () => permits('x', 1, 1)])(
      'G6 a try that finds the name busy leaves no waiter (%#)',
      async (asked) => {
        await take(asked())
        expect((await session.tryAcquire(asked(), call())).kind).toBe('busy')
        expect((await backend.inspect('x', call()))?.waiters).toEqual([])
      },
    )

    test('a waiter that asks once more without waiting keeps its position', async () => {
      await take(permits('x', 1, 1))
      const asked = permits('x', 1, 1)
      enqueued(session, asked, call()).catch(() => {})
      await settle()
      expect((await session.tryAcquire(asked, call())).kind).toBe('busy')
      expect((await backend.inspect('x', call()))?.waiters).toHaveLength(1)
    })

    test('T13 G11 a release is unknown if its first copy may have done it, and released if the answer says so', async () => {
      for (const keepForMs of [0, 60_000]) {
        const grant = await take(request(`x${keepForMs}`))
        const releasing = session.release(grant, { keepForMs }, call())
        await expect(releasing).rejects.toMatchObject({ outcome: 'unknown' })
        await session.abandon(grant, call())
        engine.asksTwice = 'second'
        const next = await take(request(`y${keepForMs}`))
        expect(await session.release(next, { keepForMs }, call())).toBe('released')
        engine.asksTwice = 'both'
      }
    })

    test('G6 a copy of a join that lands after the release is unlisted, and nobody else has its key', async () => {
      engine.asksTwice = 'second'
      const late = request('x')
      let grant: Grant<'fenced'> | undefined
      const join = await sentBy(async () => {
        grant = await take(late)
      })
      await release(grant as Grant<'fenced'>)
      await arriveLate(join)
      expect((await session.tryAcquire(request('x'), call())).kind).toBe('busy')
      expect(await keepAlive()).toMatchObject({ unlisted: [{ attempt: late.attempt }] })
      await session.abandon(late, call())
      await arriveLate(join)
      expect(await holders('x')).toEqual([])
    })

    test('G6 T73 an attempt that was asked twice is abandoned with a mark, and a copy does not land after it', async () => {
      engine.asksTwice = 'second'
      await take(request('x'))
      const asked = request('x')
      const join = await sentBy(async () => {
        enqueued(session, asked, call()).catch(() => {})
        await settle()
      })
      await session.abandon(asked, call())
      await arriveLate(join)
      expect((await backend.inspect('x', call()))?.waiters).toEqual([])
    })

    test('data is never asked again: a late copy would undo what was stored since', async () => {
      const grant = await take(request('x'))
      const sent = await sentBy(async () => {
        expect(await session.setData?.(grant, 'a note', call())).toBe('stored')
      })
      expect(sent.filter((transaction) => !isRead(transaction))).toHaveLength(1)
    })

    test('what leaves at the same moment as data is asked again all the same', async () => {
      const connection = new Connection(engine.client, 'n', createFakeClock(), systemRandom)
      const store = (name: string, isRepeatable: boolean) =>
        connection.commit(name, () => always([put(name, '1')]), call(), isRepeatable)
      const committed = await Promise.all([store('join', true), store('data', false)])
      expect(committed.map(({ isRepeated }) => isRepeated)).toEqual([true, false])
    })

    test('a session is opened and closed as if it was asked once', async () => {
      let other = session
      const opening = await sentBy(async () => {
        other = await backend.openSession({ id: 'o'.repeat(64), ttlMs: 15_000, holder: 'bob' }, call())
      })
      expect(opening.filter((transaction) => !isRead(transaction))).toHaveLength(2)
      expect((await other.tryAcquire(request('x'), call())).kind).toBe('granted')
      await other.close(call())
      expect(await backend.inspect('x', call())).toBeNull()
      // Its lease is gone.
      await expect(arriveLate(opening)).rejects.toMatchObject({ outcome: 'not-applied' })
    })
  })

  describe('T99 on a full etcd', () => {
    let held: Grant<'fenced'>
    beforeEach(async () => {
      held = await take(request('held'))
    })
    const keepAlive = () => session.keepAlive({ held: [held], waiting: [] }, call())

    test('a waiter gives up by a deletion', async () => {
      await take(request('x'))
      const asked = request('x')
      const timeOut = new Cancellation()
      const waiting = enqueued(session, asked, timeOut)
      await settle()
      engine.isFull = true
      timeOut.cancel(new Error('it has waited for long enough'))
      await expect(waiting).rejects.toMatchObject({ outcome: 'unknown' })
      await session.abandon(asked, call())
      expect((await backend.inspect('x', call()))?.waiters).toEqual([])
    })

    test('the time-out of a waiter costs no lease of its locker', async () => {
      const clock = createFakeClock()
      const other = new SimulatedEtcd()
      const locker = createLocker(await openEtcd({ hosts: other.hosts, clock }, { client: other.client }))
      const lease = await locker.acquire('x')
      const waiting = locker.acquire('x', { waitMs: 1_000 })
      const ended = expect(waiting).rejects.toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
      await clock.advance(500)
      other.isFull = true
      for (let second = 0; second < 40; second++) {
        await clock.advance(1_000)
        await settle()
      }
      await ended
      expect(lease.state).toBe('held')
      expect(other.keys().filter((key) => key.includes('\0'))).toHaveLength(1)
      expect(await lease.release()).toBe('released')
    })

    test('G6 an attempt without an answer is abandoned without a mark; what lands late is unlisted, and goes', async () => {
      const late = request('x')
      const join = await lost(() => take(late))
      engine.isFull = true
      await session.abandon(late, call())
      engine.isFull = false
      await arriveLate([join])
      const kept = await keepAlive()
      expect(kept).toMatchObject({ lost: [], unlisted: [{ attempt: late.attempt }] })
      // Nobody else is given its key.
      expect((await session.tryAcquire(request('x'), call())).kind).toBe('busy')
      engine.isFull = true
      await session.abandon(late, call())
      expect(await holders('x')).toEqual([])
      expect(await keepAlive()).toMatchObject({ lost: [], unlisted: [] })
    })

    test('a release that was to keep its name closed deletes all the same', async () => {
      engine.isFull = true
      expect(await session.release(held, { keepForMs: 60_000 }, call())).toBe('released')
      expect(await holders('held')).toEqual([])
      expect(await session.release(held, { keepForMs: 60_000 }, call())).toBe('not-held')
    })

    test('G7 deletions that leave together with a join are not refused with it', async () => {
      const asked = request('given up')
      await take(asked)
      engine.isFull = true
      const [joined, released, abandoned] = await Promise.allSettled([
        take(request('new')),
        release(held),
        session.abandon(asked, call()),
      ])
      expect(joined).toMatchObject({ status: 'rejected', reason: { outcome: 'not-applied' } })
      expect([released, abandoned]).toMatchObject([{ value: 'released' }, { status: 'fulfilled' }])
      expect(engine.keys().filter((key) => key.includes('\0'))).toEqual([])
    })

    test('T13 G11 a deletion whose first copy may have been applied is unknown, and does not leave again', async () => {
      const connection = new Connection(engine.client, 'n', createFakeClock(), systemRandom)
      const { ask } = engine
      // The first copy is applied, its answer is lost, and the next one is refused.
      engine.ask = (async (...asked: Parameters<typeof ask>) => {
        engine.ask = ask
        await engine.ask(...asked)
        const full = new EtcdError(8, 'etcdserver: mvcc: database space exceeded')
        throw new BackendUnavailableError('etcd', full.message, 'unknown', { cause: full })
      }) as never
      const commit = (name: string, operation: Operation) =>
        connection.commit(name, () => always([operation]), call())
      const sent = await sentBy(async () => {
        const settled = await Promise.allSettled([
          commit('join', put('a', '1')),
          commit('leave', remove('b')),
        ])
        const unknown = { status: 'rejected', reason: { outcome: 'unknown' } }
        expect(settled).toMatchObject([unknown, unknown])
      })
      expect(sent).toHaveLength(1)
    })
  })

  test('G7 a late copy of a refused request for permits leaves the next waiter its position', async () => {
    const held = await take(permits('s', 2, 2))
    const sent = await sentBy(() => session.tryAcquire(permits('s', 1, 2), call()))
    const waiting = enqueued(session, permits('s', 1, 2), call())
    await settle()
    await arriveLate(sent)
    await release(held)
    expect((await waiting)?.kind).toBe('granted')
    expect(claims()).toHaveLength(2)
  })

  test('an attempt that waits and is asked for again without waiting keeps its key', async () => {
    await take(request('x'))
    const asked = request('x')
    enqueued(session, asked, call()).catch(() => {})
    await settle()
    expect((await session.tryAcquire(asked, call())).kind).toBe('busy')
    expect(await sentBy(() => session.abandon(asked, call()))).toHaveLength(1)
    expect(engine.keys().filter((key) => key.includes('\0'))).toHaveLength(1)
  })

  test('text with separators of lines in it is read back', async () => {
    await take(request('x', { note: 'a\u2028b\u2029c' }))
    expect(await backend.inspect('x', call())).toMatchObject({ holders: [{ note: 'a\u2028b\u2029c' }] })
  })

  describe('by another process', () => {
    let held: Grant<'fenced'>
    let attached: AttachedSession<'fenced'>
    beforeEach(async () => {
      held = await takeUsed(request('x'))
      const found = await backend.attachSession(session.handle, call())
      if (found === null) throw new Error('it is gone')
      attached = found
    })

    test('they are kept alive', async () => {
      const kept = await attached.keepAlive({ held: [held], waiting: [] }, call())
      expect(kept).toMatchObject({ kind: 'alive', lost: [], unlisted: [] })
    })

    test('they are asked for again', async () => {
      expect(await take({ ...request('x'), attempt: held.attempt }, attached)).toMatchObject({
        token: held.token,
      })
      expect(claims()).toHaveLength(1)
    })

    test('they are given data', async () => {
      expect(await attached.setData?.(held, 'done', call())).toBe('stored')
    })

    test('they are released, and lost for the first one', async () => {
      expect(await release(held, attached)).toBe('released')
      const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
      expect(kept).toMatchObject({ lost: [{ attempt: held.attempt }] })
      await take(request('x'))
    })

    test('they are abandoned', async () => {
      await attached.abandon(held, call())
      expect(await holders('x')).toEqual([])
      await expect(take({ ...request('x'), attempt: held.attempt }, attached)).rejects.toThrow(/abandoned/)
    })
  })

  test('an attempt that another process has found, and whose key was used again since, does no harm', async () => {
    const attached = await backend.attachSession(session.handle, call())
    const first = await takeUsed(request('x'))
    await attached?.keepAlive({ held: [first], waiting: [] }, call())
    await release(first)
    const next = await take(request('x'))
    expect(claims()).toHaveLength(1)
    expect(await attached?.release(first, { keepForMs: 0 }, call())).toBe('not-held')
    await attached?.abandon(first, call())
    expect(await holders('x')).toEqual([next.token])
  })
})

test('free keys of a thousand names are remembered, those of the names that were used last', () => {
  const slots = new Slots()
  const use = (name: string, attempt: string) => {
    slots.take({ name, attempt })
    const slot = slots.of(attempt)
    slots.free({ name, attempt })
    return slot
  }
  use('first', 'a')
  use('second', 'b')
  for (let index = 0; index < 998; index++) use(`n${index}`, `n${index}`)
  expect(use('first', 'c')).toBe('a')
  use('one more', 'd')
  expect(use('second', 'e')).toBe('e')
  expect(use('first', 'f')).toBe('a')
})
