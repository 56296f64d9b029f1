/** Names that stay closed for a while: after an expiry (lock-delay), or after an early release (hold-at-least). */
import assert from 'node:assert/strict'
import { call, request, shared, topic } from './toolbox.ts'

export const closedNameCases = topic('closed names', [
  {
    rule: 'C123',
    title: 'after an expiry a name stays closed for the lock-delay of the holder, and then opens',
    needs: ['lock-delay'],
    async play(stage) {
      const delayMs = stage.ttlMs * 2
      const [ada, bob] = await stage.mortalAndOne({ lockDelayMs: delayMs })
      await ada.take(request('x', { lockDelayMs: delayMs }))
      await stage.outlive(ada)
      await stage.passTime(delayMs / 2)
      await bob.expectBusy('x')
      await stage.passTime(delayMs / 2 + stage.world.resolutionMs)
      await bob.take('x')
    },
  },
  {
    rule: 'C224',
    title:
      'T23 G10 the lock-delay of a shared holder begins where its time ended, also if that is noticed later',
    needs: ['lock-delay', 'shared'],
    async play(stage) {
      const delayMs = stage.ttlMs * 2
      const [ada, bob] = await stage.mortalAndOne({ lockDelayMs: delayMs })
      await ada.take(shared('x', { lockDelayMs: delayMs }))
      await stage.outlive(ada)
      await stage.passTime(delayMs / 2)
      await bob.expectBusy('x')
      await bob.expectBusy(shared('x'))
      await stage.passTime(delayMs / 2 + stage.world.resolutionMs)
      await bob.take('x')
    },
  },
  {
    rule: 'C124',
    title: 'T23 who finds a name closed is not told a longer time than it is',
    needs: ['lock-delay'],
    async play(stage) {
      const delayMs = stage.ttlMs * 2
      const [ada, bob] = await stage.mortalAndOne({ lockDelayMs: delayMs })
      await ada.take(request('x', { lockDelayMs: delayMs }))
      await stage.outlive(ada)
      const { retryAfterMs } = await bob.expectBusy('x')
      if (retryAfterMs !== undefined)
        assert(retryAfterMs > 0 && retryAfterMs <= delayMs, `after ${retryAfterMs} ms, of ${delayMs} ms`)
      const found = await stage.inspect('x')
      assert.deepEqual(found?.holders, [])
      const { closedForMs } = found
      if (closedForMs !== undefined)
        assert(closedForMs > 0 && closedForMs <= delayMs, `closed for ${closedForMs} ms, of ${delayMs} ms`)
    },
  },
  {
    rule: 'C125',
    title: 'a lock-delay follows neither a release nor a close nor an abandon',
    needs: ['lock-delay'],
    async play(stage) {
      const lockDelayMs = stage.ttlMs * 10
      const [ada, bob] = [await stage.actor({ lockDelayMs }), await stage.actor()]
      const delayed = (name: string) => request(name, { lockDelayMs })
      await ada.release(await ada.take(delayed('released')))
      await bob.take('released')
      await ada.abandon(await ada.take(delayed('abandoned')))
      await bob.take('abandoned')
      await ada.take(delayed('closed'))
      await ada.close()
      await bob.take('closed')
    },
  },
  {
    rule: 'C126',
    title: 'T23 G10 the first waiter is granted when the lock-delay ends, without a call, and not before',
    touches: 'client',
    needs: ['lock-delay', 'queue'],
    async play(stage) {
      const delayMs = stage.ttlMs * 2
      const [ada, bob] = await stage.mortalAndOne({ lockDelayMs: delayMs })
      await ada.take(request('x', { lockDelayMs: delayMs }))
      const wait = await bob.enqueue('x')
      await stage.outlive(ada)
      await stage.passTime(delayMs / 2)
      assert.equal(wait.state, 'waiting')
      await stage.passTime(delayMs / 2 + stage.world.resolutionMs)
      await wait.granted(stage.ttlMs / 10)
    },
  },
  {
    rule: 'C127',
    title: 'the lock-delay is that of the one who expired, and a taker brings none with it',
    needs: ['lock-delay'],
    async play(stage) {
      const lockDelayMs = stage.ttlMs * 10
      const bob = await stage.actor({ lockDelayMs })
      const ada = await stage.mortal()
      await ada.take('x')
      await stage.outlive(ada)
      await bob.take(request('x', { lockDelayMs }))
    },
  },
  {
    rule: 'C128',
    title: 'a release that keeps the name closed keeps it closed to all, and then it opens',
    needs: ['hold-at-least'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      assert.equal(await ada.release(held, stage.ttlMs), 'released')
      await bob.expectBusy('x')
      await ada.expectBusy('x')
      await stage.passTime(stage.ttlMs / 2)
      await bob.expectBusy('x')
      await stage.passTime(stage.ttlMs / 2 + stage.world.resolutionMs)
      await bob.take('x')
    },
  },
  {
    rule: 'C129',
    title: 'G10 the first waiter is granted when a kept name opens, without a call',
    needs: ['hold-at-least', 'queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      await ada.release(held, stage.ttlMs)
      await stage.passTime(stage.ttlMs / 2)
      assert.equal(wait.state, 'waiting')
      await stage.passTime(stage.ttlMs / 2 + stage.world.resolutionMs)
      await wait.granted(stage.ttlMs / 10)
    },
  },
  {
    rule: 'C130',
    title: 'G7 only the holder can keep a name closed',
    needs: ['hold-at-least'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      assert.equal(await bob.release(held, stage.ttlMs), 'not-held')
      assert.equal(await bob.release(request('y'), stage.ttlMs), 'not-held')
      assert.equal(await ada.release(held), 'released')
      await bob.take('x')
      await bob.take('y')
    },
  },
  {
    rule: 'C131',
    title: 'G6 a closed name is listed while it is closed, and leaves nothing behind',
    needs: ['hold-at-least'],
    async play(stage) {
      const ada = await stage.actor()
      await ada.release(await ada.take('x'), stage.ttlMs)
      const [listed] = await stage.list()
      assert.equal(listed?.name, 'x')
      assert.notEqual(listed.closedForMs, 0)
      await stage.passTime(stage.ttlMs + stage.world.resolutionMs)
      assert.deepEqual(await stage.list(), [])
      assert.equal(await ada.backend.inspect('x', call()), null)
    },
  },
  {
    rule: 'C245',
    title: 'a name that holders keep closed for different times opens when the longest of them is over',
    needs: ['hold-at-least', 'shared'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const [longMs, shortMs] = [stage.ttlMs * 2, stage.ttlMs / 2]
      const closings = { 'long, then short': [longMs, shortMs], 'short, then long': [shortMs, longMs] }
      for (const [name, [first, second]] of Object.entries(closings)) {
        const [one, other] = [await ada.take(shared(name)), await bob.take(shared(name))]
        await ada.release(one, first)
        await bob.release(other, second)
      }
      await stage.passTime(stage.ttlMs)
      for (const name of Object.keys(closings)) await eve.expectBusy(name)
      await stage.passTime(stage.ttlMs + stage.world.resolutionMs)
      for (const name of Object.keys(closings)) await eve.take(name)
    },
  },
])
