/** The queue of a name on a real etcd: who is granted, what it costs, and what operators do to it. */
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { base64, openSession, Rig } from '../../../../test/etcd/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import type { AcquireRequest, BackendSession, Grant, WatchEvent } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { always, clusterFindings, EtcdClient, methods, put, remove, Watches } from '../client/index.ts'

describe.runIf(wanted('etcd'))('the queue', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start()
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  afterEach(() => rig.clear())

  const take = async (session: BackendSession<'fenced'>, asked: AcquireRequest): Promise<Grant<'fenced'>> => {
    const result = await session.tryAcquire(asked, call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    return result.grant
  }
  const release = (session: BackendSession<'fenced'>, grant: Grant) =>
    session.release(grant, { keepForMs: 0 }, call())
  const enqueue = (session: BackendSession<'fenced'>, asked: AcquireRequest) => {
    const waiting = { state: 'waiting', token: 0n, error: undefined as unknown }
    enqueued(session, asked, call()).then(
      (result) => {
        waiting.state = result.kind
        if (result.kind === 'granted') waiting.token = result.grant.token
      },
      (error: unknown) => {
        waiting.state = 'rejected'
        waiting.error = error
      },
    )
    return waiting
  }
  const untilWaiting = (count: number) =>
    waitFor(`${count} wait`, async () => {
      const keys = (await rig.keys()).filter(({ key }) => /\0(exclusive|permits|shared)\//.test(key))
      return keys.length === count + 1 || null
    })

  test('what is left of a holder’s time is asked of etcd, and shrinks while nobody renews', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    await take(session, request('x'))
    const holder = async () => (await backend.inspect('x', call()))?.holders[0]
    const own = async () => (await backend.sessions({ limit: 10 }, call())).items[0]
    for (const shown of [holder, own])
      await waitFor('less than the TTL is left', async () => {
        const { ttlMs = 0, expiresInMs = Number.NaN } = (await shown()) ?? {}
        expect(expiresInMs).toBeLessThanOrEqual(ttlMs)
        return expiresInMs < ttlMs || null
      })
  })

  test('T92 a waiter in the middle cancels: the one behind it is not granted before the holder leaves', async () => {
    const session = await openSession(await rig.backend())
    const held = await take(session, request('x'))
    const middle = request('x')
    const cancelled = enqueue(session, middle)
    await untilWaiting(1)
    const last = enqueue(session, request('x'))
    await untilWaiting(2)
    await session.abandon(middle, call())
    await waitFor('the middle one ends', async () => cancelled.state === 'rejected' || null)
    // A keep-alive looks for every waiter, so whatever the wake-up has led to has happened after it.
    await session.keepAlive({ held: [], waiting: [] }, call())
    expect(last.state).toBe('waiting')
    await release(session, held)
    await waitFor('the last one is granted', async () => last.state === 'granted' || null)
    expect(last.token).toBeGreaterThan(held.token)
  })

  test('T17 a waiter whose own key has gone is not granted', async () => {
    const session = await openSession(await rig.backend())
    const held = await take(session, request('x'))
    const asked = request('x')
    const waiting = enqueue(session, asked)
    await untilWaiting(1)
    await rig.deleteKeys((key) => key.includes(asked.attempt))
    await release(session, held)
    await waitFor('the wait ends', async () => waiting.state !== 'waiting' || null)
    expect(waiting.state).toBe('rejected')
    expect(waiting.error).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
  })

  test('T18 G11 a lease that is revoked behind the client’s back ends its session and its waits', async () => {
    const backend = await rig.backend()
    const [holder, session] = [await openSession(backend), await openSession(backend, 30_000, 'doomed')]
    await take(holder, request('x'))
    const asked = request('x')
    const waiting = enqueue(session, asked)
    await untilWaiting(1)
    const claims = (await rig.keys()).filter(({ key }) => /\0exclusive\//.test(key))
    const ID = claims.find(({ key }) => key.includes(asked.attempt))?.lease
    await rig.operate('lease/revoke', { ID })
    await waitFor('the wait ends', async () => waiting.state === 'session-gone' || null)
    expect((await session.keepAlive({ held: [], waiting: [] }, call())).kind).toBe('gone')
    expect((await session.tryAcquire(request('x'), call())).kind).toBe('session-gone')
  })

  test('a cluster that is slow for its shortest TTL is found', async () => {
    let nowMs = 0
    const ticking = (ms: number): Clock => ({ ...systemClock, monotonicMs: () => (nowMs += ms) })
    const client = new EtcdClient('etcd', { hosts: rig.hosts }, systemClock)
    const codes = async (ms: number) =>
      (await clusterFindings(client, ticking(ms), 2_000, call())).map(({ code }) => code)
    expect(await codes(200)).toContain('HOLDFAST_ETCD_SLOW')
    expect(await codes(100)).not.toContain('HOLDFAST_ETCD_SLOW')
    client.close()
  })

  test('T19 a watch that begins after the change tells of it', async () => {
    const client = new EtcdClient('etcd', { hosts: rig.hosts }, systemClock)
    const { header } = await client.ask(methods.txn, always([put('seen', 'x')]), call())
    await client.ask(methods.txn, always([remove('seen')]), call())
    const events = await new Promise<readonly unknown[]>((resolve, reject) => {
      new Watches(client, call(), systemClock).add(
        { key: 'seen', start_revision: (header?.revision ?? 0) + 1 },
        { onResponse: ({ events }) => events.length > 0 && resolve(events), onLost: reject },
      )
    })
    expect(events).toHaveLength(1)
    client.close()
  })

  test('G9 T28 with 500 waiting, a release costs as many requests as with 5, and wakes one', async () => {
    const costOf = async (waiters: number) => {
      const backend = await rig.backend()
      const session = await openSession(backend)
      const name = `${waiters} wait`
      const held = await take(session, request(name))
      const waiting = Array.from({ length: waiters }, () => enqueue(session, request(name)))
      await untilWaiting(waiters)
      await waitFor('all watch', async () => backend.statistics.watches >= 2 * waiters || null)
      const before = backend.statistics.sent
      await release(session, held)
      await waitFor('one is granted', async () => waiting.some(({ state }) => state === 'granted') || null)
      // Whatever else was woken would have asked by the time that this is answered.
      await backend.inspect(name, call())
      expect(waiting.filter(({ state }) => state === 'granted')).toHaveLength(1)
      const cost = backend.statistics.sent - before
      await session.close(call())
      return cost
    }
    const few = await costOf(5)
    expect(await costOf(500)).toBe(few)
  })

  test('a compaction during a watch is a gap, and a waiter whose watch it ends is granted all the same', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const stop = new Cancellation()
    const seen: WatchEvent[] = []
    const reading = (async () => {
      for await (const event of backend.watch('', {}, stop)) seen.push(event)
    })()
    await waitFor('it watches', async () => backend.statistics.watches === 1 || null)
    const held = await take(session, request('x'))
    await waitFor('it is told', async () => seen.length === 1 || null)
    stop.cancel(new Error('enough'))
    await reading
    const waiting = enqueue(session, request('x'))
    await untilWaiting(1)
    // The compaction comes after the cursor, and after the beginning of the waiter's watch.
    const filler = { key: base64('filler'), value: base64('x') }
    await rig.operate('kv/put', filler)
    const { header } = await rig.operate<{ header: { revision: string } }>('kv/put', filler)
    await rig.operate('kv/compaction', { revision: header.revision })
    const events = backend.watch('', { cursor: seen[0]?.cursor ?? '' }, call())[Symbol.asyncIterator]()
    expect((await events.next()).value).toMatchObject({ kind: 'gap' })
    expect((await events.next()).value).toMatchObject({ kind: 'acquired', name: 'x', token: held.token })
    await release(session, held)
    await waitFor('it is granted', async () => waiting.state === 'granted' || null)
    await events.return?.()
  })

  test('G6 when sessions have ended, nothing is left in etcd but the data cell', async () => {
    const session = await openSession(await rig.backend())
    const held = await take(session, request('x'))
    await session.setData?.(held, 'a note', call())
    await session.abandon(request('x'), call())
    enqueue(session, request('x'))
    await untilWaiting(1)
    await session.close(call())
    expect((await rig.keys()).map(({ key }) => key)).toEqual([expect.stringMatching(/\/n\/x\0data$/)])
    await rig.deleteKeys(() => true)
  })
})
