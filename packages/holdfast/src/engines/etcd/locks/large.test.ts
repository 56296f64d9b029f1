/** Large answers of a real etcd: many names with data, and a long history. */
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/etcd/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemClock } from '../../../base/clock.ts'
import { limits } from '../../../base/defaults.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import type { BackendSession, Call, Grant } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { type EtcdAnswer, EtcdClient, type Method } from '../client/index.ts'
import { openEtcd } from './assemble.ts'

/** How many keys were read. */
class CountingClient extends EtcdClient {
  keys = 0

  override async ask<Q, R extends EtcdAnswer>(method: Method<Q, R>, message: Q, call: Call): Promise<R> {
    const answer = await super.ask(method, message, call)
    if ('kvs' in answer && Array.isArray(answer.kvs)) this.keys += answer.kvs.length
    return answer
  }
}

describe.runIf(wanted('etcd'))('large answers', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start()
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  afterEach(() => rig.clear())

  const data = 'd'.repeat(limits.dataBytes)
  const takeMany = async (session: BackendSession<'fenced'>, count: number): Promise<Grant<'fenced'>[]> =>
    Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const result = await session.tryAcquire(request(`many/${index}`), call())
        if (result.kind !== 'granted') throw new Error(result.kind)
        await session.setData?.(result.grant, data, call())
        return result.grant
      }),
    )

  test('T100 all of 2,000 names with data are listed with one read of each key, and a page of one name with a few', async () => {
    const session = await openSession(await rig.backend())
    await takeMany(session, 2_000)
    const client = new CountingClient('etcd', { hosts: rig.hosts }, systemClock)
    const namespace = (await rig.backend()).info.namespace
    await using backend = await openEtcd({ hosts: rig.hosts, namespace }, { client })
    expect(await listAll(backend, '', call())).toHaveLength(2_000)
    expect(client.keys).toBeLessThan(1.1 * 2 * 2_000)
    client.keys = 0
    const first = await backend.list('', { limit: 1 }, call())
    expect(first.items.map(({ name }) => name)).toEqual(['many/0'])
    const second = await backend.list('', { limit: 1, cursor: first.next ?? '' }, call())
    expect(second.items.map(({ name }) => name)).toEqual(['many/1'])
    expect(client.keys).toBeLessThan(10)
  })

  test('T100 a watch from 1,000 leases back tells all of them, and a keep-alive is answered meanwhile', async () => {
    const writer = await rig.backend()
    const session = await openSession(writer)
    const stop = new Cancellation()
    let cursor = ''
    const early = (async () => {
      for await (const event of writer.watch('first', {}, stop)) cursor = event.cursor
    })()
    await waitFor('a cursor', async () => {
      const first = await session.tryAcquire(request('first'), call())
      if (first.kind === 'granted') await session.release(first.grant, { keepForMs: 0 }, call())
      return cursor !== '' || null
    })
    stop.cancel(new Error('enough'))
    await early
    for (let round = 0; round < 5; round++) {
      const grants = await takeMany(session, 200)
      await Promise.all(grants.map((grant) => session.release(grant, { keepForMs: 0 }, call())))
    }
    const reader = await rig.backend()
    const own = await openSession(reader)
    const told = new Map<string, number>()
    let keptAlive: Promise<unknown> | undefined
    let toldBefore = 0
    for await (const { kind } of reader.watch('many/', { cursor }, call())) {
      keptAlive ??= own.keepAlive({ held: [], waiting: [] }, call()).then(() => {
        toldBefore = told.get('released') ?? 0
      })
      told.set(kind, (told.get(kind) ?? 0) + 1)
      if (told.get('released') === 1_000) break
    }
    await keptAlive
    expect(Object.fromEntries(told)).toEqual({ acquired: 1_000, data: 1_000, released: 1_000 })
    expect(toldBefore).toBeLessThan(1_000)
  })
})
