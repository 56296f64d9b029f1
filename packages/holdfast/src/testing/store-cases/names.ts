/** How names are watched, and what operators do to them. */
import assert from 'node:assert/strict'
import { call, permits, request } from '../conformance/requests.ts'
import { claimIn, storeTopic } from './case.ts'

export const nameCases = storeTopic('names', [
  {
    rule: 'S30',
    title: 'a watch tells of a deletion that comes after it',
    async play(stage) {
      const [claims, other] = [await stage.session(), await stage.session()]
      const held = await stage.take(claims, request('x'))
      const { queue } = await stage.wait(other, request('x'))
      const keys = queue.older.map(({ key }) => ({ key, until: 'deleted' as const }))
      const { told } = stage.wake(other, keys, queue.version)
      await claims.release(held, 0, call())
      await stage.changed(told)
    },
  },
  {
    rule: 'S31',
    title: 'T19 a watch tells of a change that came after the read and before the watch',
    async play(stage) {
      const [claims, other] = [await stage.session(), await stage.session()]
      const held = await stage.take(claims, request('x'))
      const { queue } = await stage.wait(other, request('x'))
      await claims.release(held, 0, call())
      const keys = queue.older.map(({ key }) => ({ key, until: 'deleted' as const }))
      await stage.changed(stage.wake(other, keys, queue.version).told)
    },
  },
  {
    rule: 'S32',
    title: 'a watch until changed tells of a grant, and one that was stopped tells nothing',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      const { version } = await stage.read('x')
      const keys = [{ key: waiting.own.key, until: 'changed' as const }]
      const stopped = stage.wake(claims, keys, version)
      stopped.stop()
      const { told } = stage.wake(claims, keys, version)
      await claims.release(held, 0, call())
      await stage.confirm(claims, waiting)
      await stage.changed(told)
      assert.equal(await Promise.race([stopped.told, 'nothing']), 'nothing')
    },
  },
  {
    rule: 'S33',
    title: 'T74 T78 an operator ends the holder that was seen, and no other; its session reads why',
    async play(stage) {
      const claims = await stage.session()
      const asked = request('x')
      const held = await stage.take(claims, asked)
      const seen = claimIn(await stage.read('x'), asked)
      const mark = { reason: 'force-released', detail: 'stuck' } as const
      assert.equal(await stage.names.endClaim(seen, mark, call()), true)
      assert.deepEqual(await claims.markOf(asked, call()), mark)
      assert.equal(await claims.release(held, 0, call()), false)
      const next = await stage.take(claims, request('x'))
      assert.equal(await stage.names.endClaim(seen, mark, call()), false)
      assert.deepEqual(await stage.holders('x'), [next.attempt])
    },
  },
  {
    rule: 'S34',
    title: 'T74 a claim that was granted since an operator saw it is not ended',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      const seen = claimIn(await stage.read('x'), waiting.request)
      await claims.release(held, 0, call())
      await stage.confirm(claims, waiting)
      const mark = { reason: 'force-released', detail: 'stuck' } as const
      assert.equal(await stage.names.endClaim(seen, mark, call()), false)
      assert.deepEqual(await stage.holders('x'), [waiting.request.attempt])
    },
  },
  {
    rule: 'S35',
    title: 'a changed capacity counts for the claims that are there, and wakes the first waiter',
    async play(stage) {
      const claims = await stage.session()
      await stage.take(claims, permits('x', 2, 3))
      const waiting = await stage.wait(claims, permits('x', 2, 3))
      const seen = await stage.read('x')
      const key = claims.capacityKey?.('x')
      const woken = key && stage.wake(claims, [{ key, until: 'changed' }], seen.version).told
      assert.equal(await stage.names.changeCapacity('x', seen, 4, call()), true)
      assert.equal((await stage.read('x')).capacity, 4)
      if (woken) await stage.changed(woken)
      await stage.confirm(claims, waiting)
    },
  },
  {
    rule: 'S36',
    title: 'G1 a waiter that saw the old capacity is not granted by the new one',
    async play(stage) {
      const claims = await stage.session()
      await stage.take(claims, permits('x', 2, 3))
      const joined = await claims.join(permits('x', 1, 3), true, call())
      if (joined.kind === 'granted') return
      assert(joined.kind === 'created', joined.kind)
      const { own, name } = joined
      const seen = await stage.read('x')
      assert.equal(await stage.names.changeCapacity('x', seen, 2, call()), true)
      const asked = { ...permits('x', 1, 3), attempt: claimAfter(seen) }
      await stage.refuses(claims, { request: asked, own, queue: name.queue(own, 3) }, name.queue(own, 3))
    },
  },
  {
    rule: 'S37',
    title: 'T78 a capacity is not changed if another claim has come since it was seen',
    async play(stage) {
      const claims = await stage.session()
      await stage.take(claims, permits('x', 1, 3))
      const seen = await stage.read('x')
      await stage.take(claims, permits('x', 2, 3))
      assert.equal(await stage.names.changeCapacity('x', seen, 2, call()), false)
      assert.equal((await stage.read('x')).capacity, 3)
    },
  },
  {
    rule: 'S38',
    title: 'T78 data are deleted as they were seen, and only while nothing holds or waits',
    async play(stage) {
      const claims = await stage.session()
      const asked = request('x')
      const held = await stage.take(claims, asked)
      const own = claimIn(await stage.read('x'), asked)
      const record = { data: 'left', id: own.id, holder: 'ada', token: held.grantId }
      await claims.putData(own, record, call())
      const used = await stage.read('x')
      assert.equal(await stage.names.deleteData('x', used, call()), false)
      await claims.release(held, 0, call())
      assert.equal(await stage.names.deleteData('x', await stage.read('x'), call()), true)
      assert.equal((await stage.read('x')).data, undefined)
    },
  },
  {
    rule: 'S39',
    title: 'names are listed in pages, in byte order, each on one page, with sessions beside them',
    async play(stage) {
      const claims = await stage.session()
      const names = ['a', 'a/b', '__proto__', 'é', '東京', 'constructor']
      for (const name of names) await stage.take(claims, request(name))
      const found: string[] = []
      for (let cursor: string | null | undefined; cursor !== null; ) {
        const page = { limit: 2, ...(cursor !== undefined && { cursor }) }
        const { items, next } = await stage.names.list('', page, call())
        assert(items.length <= 2)
        for (const { name, stored } of items) if (stored.claims.length > 0) found.push(name)
        cursor = next
      }
      assert.deepEqual(
        found,
        names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
      )
      const below = await stage.names.list('a/', { limit: 10 }, call())
      assert.deepEqual(
        below.items.map(({ name }) => name),
        ['a/b'],
      )
      assert.equal((await stage.names.sessions({ limit: 10 }, call())).items.length, 1)
    },
  },
])

function claimAfter({ claims }: { readonly claims: readonly { readonly attempt: string }[] }): string {
  return claims.at(-1)?.attempt ?? ''
}
