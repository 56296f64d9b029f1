/** Waiters who live, die (also behind a dead holder: all together cost one TTL, G10), give up, or are cancelled. */
import assert from 'node:assert/strict'
import { expectAlive, expectMs, expectUnavailable, request, topic } from './toolbox.ts'

export const waiterCases = topic('waiters come and go', [
  {
    rule: 'C80',
    title: 'T20 G8 a dead waiter at the head does not block the living',
    needs: ['queue'],
    async play(stage) {
      const [dead, ada, bob] = await stage.mortalAndTwo()
      const held = await ada.take('x')
      await dead.enqueue('x')
      const living = await bob.enqueue('x')
      await stage.outlive(dead)
      await ada.release(held)
      await living.granted(stage.ttlMs / 10)
    },
  },
  {
    rule: 'C213',
    title: 'T20 G8 an abandon and a close make room for the first that lives, as a release does',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const dead = await stage.mortal()
      const held = await ada.take('abandoned')
      await eve.take('closed')
      for (const name of ['abandoned', 'closed']) await dead.enqueue(name)
      const living = [await bob.enqueue('abandoned'), await bob.enqueue('closed')]
      await stage.outlive(dead)
      await ada.abandon(held)
      await eve.close()
      for (const wait of living) await wait.granted(stage.ttlMs / 10)
    },
  },
  {
    rule: 'C81',
    title: 'T20 G10 a dead holder and all dead waiters behind it together cost one TTL',
    needs: ['queue'],
    async play(stage) {
      const bob = await stage.actor()
      const dying = [await stage.mortal(), await stage.mortal(), await stage.mortal(), await stage.mortal()]
      const [holder, ...waiters] = dying
      assert(holder !== undefined)
      await holder.take('x')
      for (const waiter of waiters) await waiter.enqueue('x')
      const living = await bob.enqueue('x')
      await stage.outlive(holder)
      await living.granted(stage.ttlMs / 5)
    },
  },
  {
    rule: 'C223',
    title: 'G10 a dead waiter whose TTL is longer than the holder’s costs its own TTL, and not more',
    needs: ['queue'],
    async play(stage) {
      const bob = await stage.actor()
      const dying = await stage.mortal({ ttlMs: 2 * stage.ttlMs })
      const holder = await stage.mortal()
      await holder.take('x')
      await dying.enqueue('x')
      const living = await bob.enqueue('x')
      await stage.outlive(dying)
      await living.granted(stage.ttlMs / 5)
    },
  },
  {
    rule: 'C82',
    title: 'T18 a waiter whose own session expires in the queue is not granted, and learns that it is gone',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [dead, ada, eve] = await stage.mortalAndTwo()
      const held = await ada.take('x')
      const wait = await dead.enqueue('x')
      await stage.outlive(dead)
      assert.equal((await dead.keepAlive({ waiting: [wait.request] })).kind, 'gone')
      await wait.ends('session-gone')
      await ada.release(held)
      await eve.take('x')
    },
  },
  {
    rule: 'C83',
    title: 'T18 closing a session ends its waits and gives up its positions',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const [first, second] = [await bob.enqueue('x'), await eve.enqueue('x')]
      await bob.close()
      await first.ends('session-gone')
      await ada.release(held)
      await second.granted()
    },
  },
  {
    rule: 'C84',
    title: 'a waiter that is kept alive keeps its position for many TTLs',
    needs: ['queue'],
    async play(stage) {
      const [bob, ada, eve] = await stage.mortalAndTwo()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      const behind = await eve.enqueue('x')
      for (let third = 0; third < 9; third++) {
        await stage.passTime(bob.session.ttlMs / 3)
        assert.deepEqual(await bob.stayAlive({ waiting: [wait.request] }), [])
      }
      await ada.release(held)
      await wait.granted()
      assert.equal(behind.state, 'waiting')
    },
  },
  {
    rule: 'C85',
    title: 'T65 G3 a grant that was handed over is believed no longer than the engine keeps it',
    needs: ['queue'],
    async play(stage) {
      const [bob, ada, eve] = await stage.mortalAndTwo()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      await stage.passTime(bob.session.ttlMs / 2)
      await ada.release(held)
      const granted = await wait.granted()
      await stage.untilBeliefEnds(bob, granted)
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C86',
    title: 'T7 T65 after a long wait a grant counts from the last heartbeat, so that life is left in it',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [bob, ada, eve] = await stage.mortalAndTwo()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      for (let half = 0; half < 5; half++) {
        await stage.passTime(bob.session.ttlMs / 2)
        await bob.stayAlive({ waiting: [wait.request] })
      }
      const heartbeatMs = stage.clock.monotonicMs()
      await stage.passTime(bob.session.ttlMs / 4)
      await ada.release(held)
      const granted = await wait.granted()
      const awayMs = Math.abs(granted.since.monotonicMs - heartbeatMs)
      expectMs('the grant counts from the last heartbeat, but for', awayMs, { max: bob.session.ttlMs / 4 })
      await stage.untilBeliefEnds(bob, granted)
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C87',
    title: 'a waiting claim that was granted meanwhile is not reported as lost',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      await ada.release(held)
      assert.deepEqual(await bob.stayAlive({ waiting: [wait.request] }), [])
      assert.deepEqual(await bob.stayAlive({ held: [await wait.granted()] }), [])
    },
  },
  {
    rule: 'C88',
    title: 'T20 G6 a wait that is cancelled ends soon, and abandoning it gives up the position',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const [called, behind] = [await bob.enqueue('x'), await eve.enqueue('x')]
      called.abort()
      await called.ends('rejected')
      expectUnavailable(called.error)
      await bob.abandon(called.request)
      assert.equal((await stage.inspect('x'))?.waiters.length, 1)
      await ada.release(held)
      await behind.granted()
    },
  },
  {
    rule: 'C89',
    title: 'T20 G6 a waiter that is abandoned leaves the queue, and its wait ends',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const [first, second] = [await bob.enqueue('x'), await eve.enqueue('x')]
      await bob.abandon(first.request)
      await first.ends('rejected')
      expectUnavailable(first.error)
      await ada.release(held)
      await second.granted()
      assert.deepEqual((await stage.inspect('x'))?.waiters, [])
    },
  },
  {
    rule: 'C90',
    title: 'G6 a wait that is cancelled at the moment of its grant leaves no holder once abandoned',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      for (let round = 0; round < 10; round++) {
        const held = await ada.take('x')
        const wait = await bob.enqueue('x')
        const releasing = stage.start(ada.release(held))
        wait.abort()
        await releasing
        await bob.abandon(wait.request)
        const next = await eve.take('x')
        await eve.release(next)
      }
    },
  },
  {
    rule: 'C243',
    title: 'a waiter with a limit keeps its position until its time is over',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const limited = await bob.enqueue(request('x', { waitMs: stage.ttlMs * 2 }))
      const behind = await eve.enqueue('x')
      await stage.passTime(stage.ttlMs * 1.5)
      const waiters = (await stage.inspect('x'))?.waiters.map(({ id }) => id)
      assert.deepEqual(waiters, [limited.id, behind.id])
      await ada.release(held)
      await limited.granted()
      assert.equal(behind.state, 'waiting')
    },
  },
  {
    rule: 'C209',
    title: 'T19 a keep-alive brings the grants of waiting claims, so that no lost push costs one',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [bob, ada, eve] = await stage.mortalAndTwo()
      const held = await ada.take('x')
      await ada.take('y')
      const [x, y] = [await bob.enqueue('x'), await bob.enqueue('y')]
      const waiting = [x.request, y.request]
      const before = expectAlive(await bob.keepAlive({ waiting }))
      assert.deepEqual(before.granted, [])
      await ada.release(held)
      const after = expectAlive(await bob.keepAlive({ waiting }))
      assert.deepEqual(
        after.granted.map(({ attempt }) => attempt),
        [x.request.attempt],
      )
      const [granted] = after.granted
      assert(granted !== undefined)
      assert.equal(granted.token, (await x.granted()).token)
      await stage.untilBeliefEnds(bob, granted)
      await eve.expectBusy('x')
    },
  },
])
