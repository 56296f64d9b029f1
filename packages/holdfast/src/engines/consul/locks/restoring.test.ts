import { waitFor, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/consul/rig.ts'
import { createLocker } from '../../../locker/locker.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'

describe.runIf(wanted('consul'))('a restored snapshot', () => {
  const save = async (rig: Rig) => (await fetch(`${rig.hosts[0]}/v1/snapshot`)).arrayBuffer()
  const restore = async (rig: Rig, body: ArrayBuffer) => {
    const answer = await fetch(`${rig.hosts[0]}/v1/snapshot`, { method: 'PUT', body })
    expect(answer.status).toBe(200)
  }

  test('G2 T75 in another cluster it issues tokens again: a raised epoch makes them safe', async () => {
    await using rig = await Rig.start()
    await using other = await Rig.start()
    const tokenOf = async (from: Rig, epoch: number) => {
      await using locker = createLocker(await from.backend({ epoch, issuer: 'shop', namespace: 'shop' }))
      const lease = await locker.acquire('x')
      await lease.release()
      return lease.fence.token
    }
    const saved = await save(rig)
    let last = await tokenOf(rig, 0)
    // More writes than the restored cluster has had by then.
    for (let round = 0; round < 20; round++) last = await tokenOf(rig, 0)
    await restore(other, saved)
    expect(await tokenOf(other, 0)).toBeLessThan(last)
    expect(await tokenOf(other, 1)).toBeGreaterThan(last)
  })

  test('indexes go back: waiters are told, and later ones are granted', async () => {
    await using rig = await Rig.start({ members: 3 })
    const backend = await rig.backend()
    const [holder, session] = [await openSession(backend), await openSession(backend)]
    const before = await holder.tryAcquire(request('x'), call())
    if (before.kind !== 'granted') throw new Error(before.kind)
    const saved = await save(rig)
    // It waits with a poll of its own, whose index the restored server does not reach.
    const asked = request('x')
    const waiting = enqueued(session, asked, call()).catch((error: unknown) => error)
    await waitFor('one waits', async () => (await backend.inspect('x', call()))?.waiters.length === 1 || null)
    for (let round = 0; round < 20; round++) await rig.operator.put(`kv/other/${round}`)
    await restore(rig, saved)
    // Its key is not in the snapshot. Whether it learns that by the poll or by a keep-alive, it ends.
    await session.keepAlive({ held: [], waiting: [asked] }, call())
    expect(await waiting).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    const later = request('x')
    const next = enqueued(session, later, call())
    await waitFor(
      'the next one waits',
      async () => (await backend.inspect('x', call()))?.waiters.length === 1 || null,
    )
    expect(await holder.release(before.grant, { keepForMs: 0 }, call())).toBe('released')
    // The poll ends within ten seconds, and begins anew. The keep-alive looks before.
    await session.keepAlive({ held: [], waiting: [later] }, call())
    const granted = await next
    expect(granted?.kind).toBe('granted')
    if (granted?.kind !== 'granted') return
    expect(granted.grant.token).toBeGreaterThan(before.grant.token)
    // The last waiter is granted without a keep-alive: the polls work again.
    const last = enqueued(session, request('x'), call())
    await waitFor(
      'the last one waits',
      async () => (await backend.inspect('x', call()))?.waiters.length === 1 || null,
    )
    expect(await session.release(granted.grant, { keepForMs: 0 }, call())).toBe('released')
    let kind = ''
    last.then((result) => (kind = result.kind)).catch(() => {})
    await waitFor('the last one is granted', async () => kind === 'granted')
  })
})
