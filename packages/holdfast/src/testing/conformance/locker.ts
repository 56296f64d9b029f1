/** Through the front door: what users call, on this engine. */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../base/errors.ts'
import { expectMs, topic } from './toolbox.ts'

export const lockerCases = topic('through the locker', [
  {
    rule: 'C191',
    title: 'withLease runs its body under a lease, returns what it returned, and releases',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const answer = await stage.drive(
        one.withLease('x', async (lease) => {
          assert.equal(lease.state, 'held')
          expectMs('the lease has left', lease.remainingMs, { min: 0, max: stage.ttlMs * 2 })
          assert.equal(await other.tryAcquire('x'), null)
          return 42
        }),
      )
      assert.equal(answer, 42)
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C192',
    title: 'G11 withLease passes on what its body threw, and releases',
    async play(stage) {
      const [one] = await stage.twoLockers()
      const mine = new Error('mine')
      const failing = one.withLease('x', () => {
        throw mine
      })
      await assert.rejects(stage.drive(failing), (error) => error === mine)
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C193',
    title: 'an acquire waits, also longer than a TTL, and gets the name when it is released',
    touches: 'client',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const held = await stage.drive(one.acquire('x'))
      const waiting = stage.start(other.acquire('x', { waitMs: stage.ttlMs * 15 }))
      await stage.passTime(stage.ttlMs * 2)
      assert.equal(held.state, 'held')
      assert.equal(await stage.drive(held.release()), 'released')
      const lease = await stage.drive(waiting)
      assert.equal(lease.state, 'held')
      assert(lease.remainingMs > 0, `the lease has ${lease.remainingMs} ms left`)
    },
  },
  {
    rule: 'C194',
    title: 'T15 G6 an acquire that times out leaves nothing behind',
    touches: 'client',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const held = await stage.drive(one.acquire('x'))
      const waiting = stage.start(other.acquire('x', { waitMs: stage.ttlMs / 2 }))
      await assert.rejects(stage.drive(waiting), (error) => isHoldfastError(error, 'ACQUIRE_TIMEOUT'))
      await stage.eventually(
        'the queue is empty',
        async () => (await stage.inspect('x'))?.waiters.length === 0,
      )
      await stage.drive(held.release())
      await stage.quiet()
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C195',
    title:
      "T14 T27 G11 an acquire that is aborted rejects at once with the caller's own reason, and leaves nothing",
    touches: 'client',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const held = await stage.drive(one.acquire('x'))
      const controller = new AbortController()
      const waiting = stage.start(
        other.acquire('x', { waitMs: Number.POSITIVE_INFINITY, signal: controller.signal }),
      )
      await stage.quiet()
      const reason = new Error('no longer needed')
      controller.abort(reason)
      await assert.rejects(waiting, (error) => error === reason)
      await stage.eventually(
        'the queue is empty',
        async () => (await stage.inspect('x'))?.waiters.length === 0,
      )
      await stage.drive(held.release())
      await stage.quiet()
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C196',
    title: 'T39 a lease that is held for many TTLs is renewed by itself and keeps its fence',
    touches: 'client',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const lease = await stage.drive(one.acquire('x'))
      const { fence } = lease
      for (let round = 0; round < 4; round++) {
        await stage.passTime(stage.ttlMs)
        assert.equal(lease.state, 'held')
        assert.equal(await stage.drive(other.tryAcquire('x')), null)
      }
      assert.equal(lease.fence, fence)
      if (fence !== undefined) assert.equal(await stage.drive(other.check(fence)), true)
      assert.equal(await stage.drive(lease.release()), 'released')
      if (fence !== undefined) assert.equal(await stage.drive(other.check(fence)), false)
    },
  },
  {
    rule: 'C199',
    title: 'T54 G6 acquireAll takes all or nothing: when one is not to be had, the others are given back',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      await stage.drive(one.acquire('m'))
      const all = stage.start(other.acquireAll(['z', 'm', 'a'], { waitMs: stage.ttlMs / 2 }))
      await assert.rejects(stage.drive(all), (error) => isHoldfastError(error, 'ACQUIRE_TIMEOUT'))
      await stage.eventually('the others are free', async () => (await stage.list()).length === 1)
      const left = await stage.list()
      assert.deepEqual(
        left.map(({ name, waiters }) => [name, waiters.length]),
        [['m', 0]],
      )
    },
  },
  {
    rule: 'C200',
    title: 'T54 acquireAll gives leases in the order of the names, with rising fences',
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const set = await stage.drive(one.acquireAll(['z', 'm', 'a']))
      assert.deepEqual(
        set.leases.map((lease) => lease.name),
        ['a', 'm', 'z'],
      )
      if (one.info.fencing === 'fenced') {
        const tokens = set.leases.map((lease) => lease.fence?.token ?? 0n)
        const rising = [...new Set(tokens)].toSorted((a, b) => (a < b ? -1 : 1))
        assert.deepEqual(tokens, rising)
      }
      assert.equal(await stage.drive(other.tryAcquire('m')), null)
      assert.deepEqual(await stage.drive(set.release()), ['released', 'released', 'released'])
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C201',
    title: 'T72 permits are granted up to the capacity, and the next one waits for any of them',
    needs: ['permits'],
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const capacity = 2
      await stage.drive(one.acquirePermits('s', { capacity }))
      const second = await stage.drive(other.acquirePermits('s', { capacity }))
      assert.equal(await stage.drive(one.tryAcquirePermits('s', { capacity })), null)
      const third = stage.start(one.acquirePermits('s', { capacity, waitMs: stage.ttlMs * 10 }))
      await stage.quiet()
      await stage.drive(second.release())
      const permit = await stage.drive(third)
      assert.equal(permit.state, 'held')
      assert.equal(permit.fence, undefined)
    },
  },
  {
    rule: 'C202',
    title: 'readers share through the locker, and the writer comes after them',
    needs: ['shared'],
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const readers = [
        await stage.drive(one.acquire('x', { mode: 'shared' })),
        await stage.drive(other.acquire('x', { mode: 'shared' })),
      ]
      const writing = stage.start(one.acquire('x', { waitMs: stage.ttlMs * 10 }))
      await stage.quiet()
      for (const reader of readers) assert.equal(await stage.drive(reader.release()), 'released')
      const writer = await stage.drive(writing)
      assert.equal(await stage.drive(other.tryAcquire('x', { mode: 'shared' })), null)
      await stage.drive(writer.release())
    },
  },
  {
    rule: 'C203',
    title: 'what a lease leaves is what the next lease finds',
    needs: ['data'],
    async play(stage) {
      const [one, other] = await stage.twoLockers()
      const first = await stage.drive(one.acquire('x'))
      await stage.drive(first.setData('page 7'))
      await stage.drive(first.release())
      const next = await stage.drive(other.acquire('x'))
      assert.equal(next.previousData, 'page 7')
    },
  },
  {
    rule: 'C204',
    title: 'G2 T75 a raised epoch puts every new fence above all old ones',
    needs: ['fencing'],
    async play(stage) {
      const old = await stage.locker({ issuer: 'the bank', epoch: 1 })
      const raised = await stage.locker({ issuer: 'the bank', epoch: 2 })
      const after = await stage.drive(raised.acquire('x'))
      const before = await stage.drive(old.acquire('y'))
      assert(after.fence !== undefined && before.fence !== undefined)
      assert(after.fence.token > before.fence.token, 'although it was granted earlier')
      assert.equal(after.fence.issuer, before.fence.issuer)
    },
  },
])
