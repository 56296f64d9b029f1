/** Attacks on the client and the watches of etcd that once worked, each shown once. */
import { setTimeout as sleep } from 'node:timers/promises'
import { startProxy } from 'holdfast-lab/faults'
import { type Server, waitFor, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { base64, limitedCall, openSession, Rig } from '../../../../test/etcd/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemClock } from '../../../base/clock.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { call, permits, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { EtcdClient, methods } from '../client/index.ts'
import { Watches } from '../client/watches.ts'
import { openEtcd } from './assemble.ts'
import type { EtcdBackend } from './backend.ts'

function watched(backend: EtcdBackend) {
  const end = new Cancellation()
  const seen: string[] = []
  const ended = (async () => {
    for await (const event of backend.watch('', {}, end))
      seen.push(`${event.kind} ${'name' in event ? event.name : ''}`)
  })()
  return {
    seen,
    async [Symbol.asyncDispose]() {
      end.cancel(new Error('the test ends'))
      await ended
    },
  }
}

describe.runIf(wanted('etcd'))('etcd under attack', () => {
  test('a backend that is closed while its first watch opens does not connect any more', async () => {
    await using rig = await Rig.start()
    const { hostname, port } = new URL(rig.hosts[0] ?? '')
    await using proxy = await startProxy({ host: hostname, port: Number(port) })
    let connections = 0
    const backend = await openEtcd({ hosts: [`http://127.0.0.1:${proxy.port}`], namespace: 'closing' })
    const session = await openSession(backend)
    await session.tryAcquire(request('x'), call())
    const closing = callWith(undefined, {
      queued: () => queueMicrotask(() => void backend[Symbol.asyncDispose]()),
    })
    await expect(enqueued(session, request('x'), closing)).rejects.toMatchObject({ code: 'CLOSED' })
    const recording = proxy.record()
    recording.add = () => connections++
    await sleep(500)
    // A few connections were on their way; there must not be one after the other.
    expect(connections).toBeLessThan(10)
  })

  test('a request that is sent again after a lost answer does not pass the check of the capacity', async () => {
    await using rig = await Rig.start()
    const backend = await rig.backend()
    const [first, second] = [await openSession(backend), await openSession(backend)]
    expect((await first.tryAcquire(permits('s', 5, 5), call())).kind).toBe('granted')
    const asked = permits('s', 3, 10)
    const lost = new Cancellation()
    const waiting = enqueued(second, asked, lost).catch(() => {})
    await new Promise(setImmediate)
    lost.cancel(new Error('the answer is lost'))
    await waiting
    await expect(second.tryAcquire(asked, call())).rejects.toMatchObject({ code: 'CAPACITY_MISMATCH' })
  })

  test('after its token has expired, a stream of watches is opened anew with another', async () => {
    await using rig = await Rig.start({ arguments: ['--auth-token-ttl', '1'] })
    const perm = { permType: 'READWRITE', key: base64('holdfast/1/'), range_end: base64('holdfast/10') }
    await rig.operate('auth/user/add', { name: 'root', password: 'root' })
    await rig.operate('auth/user/grant', { user: 'root', role: 'root' })
    await rig.operate('auth/role/add', { name: 'locks' })
    await rig.operate('auth/role/grant', { name: 'locks', perm })
    await rig.operate('auth/user/add', { name: 'shop', password: 'p' })
    await rig.operate('auth/user/grant', { user: 'shop', role: 'locks' })
    await rig.operate('auth/enable', {})
    const backend = await rig.backend({ username: 'shop', password: 'p' })
    const session = await openSession(backend, 60_000)
    const held = await session.tryAcquire(request('x'), call())
    if (held.kind !== 'granted') throw new Error(held.kind)
    const given = new Cancellation()
    const early = enqueued(session, request('x'), given).catch(() => {})
    await waitFor('the stream is open', async () => backend.statistics.watches > 0 || null)
    await sleep(3_000)
    const waiting = enqueued(session, request('x'), call())
    await waitFor('both wait', async () => (await backend.inspect('x', call()))?.waiters.length === 2 || null)
    given.cancel(new Error('given up'))
    await early
    await session.release(held.grant, { keepForMs: 0 }, call())
    expect((await waiting)?.kind).toBe('granted')
  })

  test('a watch leaves a stopped member, and events that come again are told once', async () => {
    await using rig = await Rig.start({ members: 3 })
    const leader = await rig.cluster.leader()
    const [follower, other] = rig.cluster.members.filter((member) => member !== leader) as [Server, Server]
    const backend = await rig.backend({ hosts: [follower.url, other.url, leader.url] })
    const session = await openSession(await rig.backend({ hosts: [leader.url, other.url] }))
    await using watch = watched(backend)
    // A watch starts when its first request is answered.
    await waitFor('the first event', async () => {
      const result = await session.tryAcquire(request('before'), call())
      if (result.kind === 'granted') await session.release(result.grant, { keepForMs: 0 }, call())
      return watch.seen.length > 0 || null
    })
    await sleep(300)
    const before = watch.seen.length
    await follower.pause()
    await backend.inspect('x', limitedCall(1_000)).catch(() => {})
    await session.tryAcquire(request('after'), call())
    await waitFor('the second event', async () => watch.seen.includes('acquired after') || null)
    await follower.resume()
    expect(watch.seen.slice(before)).toEqual(['acquired after'])
  })

  test('T98 a process that was blocked reads its answers before it asks again, or leaves the member', async () => {
    await using rig = await Rig.start()
    const block = async (ms: number) => {
      // What was asked for in this turn is sent.
      await new Promise((resolve) => setImmediate(resolve))
      const startMs = performance.now()
      while (performance.now() - startMs < ms);
    }
    const client = new EtcdClient('etcd', { hosts: [rig.hosts[0] as string] }, systemClock)
    const first = client.ask(methods.range, { key: 'a' }, neverCancelled)
    await block(1_200)
    expect((await first).count).toBe(0)
    const watches = new Watches(client, neverCancelled, systemClock)
    let [lost, again, created] = [false, 0, false]
    watches.add({ key: 'a' }, { onResponse: () => (created = true), onLost: () => (lost = true) })
    await waitFor('it watches', async () => created || null)
    const [ID, given] = [4_711, new Cancellation()]
    const onAgain = () => void again++
    const asked = client.ask(methods.leaseGrant, { ID, TTL: 60 }, neverCancelled, onAgain)
    const cancelled = client.ask(methods.range, { key: 'a' }, given)
    const limit = setTimeout(() => given.cancel(new Error('given up')), 1_000)
    await block(1_700)
    await Promise.allSettled([asked, cancelled])
    clearTimeout(limit)
    await new Promise((resolve) => setImmediate(resolve))
    expect([lost, again]).toEqual([false, 0])
    await client.ask(methods.leaseRevoke, { ID }, neverCancelled)
    watches.close()
    client.close()
  })

  test('a keep-alive lists more leases than one read can have, and misses none', async () => {
    await using rig = await Rig.start()
    const backend = await rig.backend()
    const session = await openSession(backend, 60_000)
    const results = await Promise.all(
      Array.from({ length: 300 }, (_, index) => session.tryAcquire(request(`many/${index}`), call())),
    )
    const held = results.flatMap((result) => (result.kind === 'granted' ? [result.grant] : []))
    expect(held.length).toBe(300)
    expect(await session.keepAlive({ held, waiting: [] }, call())).toMatchObject({
      kind: 'alive',
      lost: [],
      unlisted: [],
    })
  })
})
