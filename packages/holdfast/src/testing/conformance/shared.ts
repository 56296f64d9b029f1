/** Readers share, writers do not, and no request overtakes another. */
import assert from 'node:assert/strict'
import { request, shared, topic } from './toolbox.ts'

export const sharedCases = topic('shared and exclusive', [
  {
    rule: 'C102',
    title: 'readers hold a name together, also several of one session',
    needs: ['shared'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const grants = [await ada.take(shared('x')), await ada.take(shared('x')), await bob.take(shared('x'))]
      const found = await stage.inspect('x')
      assert.equal(found?.holders.length, 3)
      assert(found?.holders.every((holder) => holder.mode === 'shared'))
      assert.equal(new Set(grants.map((grant) => grant.attempt)).size, 3)
    },
  },
  {
    rule: 'C103',
    title: 'G1 a writer gets in only after the last reader has left',
    needs: ['shared'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const [one, two] = [await ada.take(shared('x')), await bob.take(shared('x'))]
      await eve.expectBusy('x')
      await ada.release(one)
      await eve.expectBusy('x')
      await bob.release(two)
      await eve.take('x')
    },
  },
  {
    rule: 'C104',
    title: 'G1 a reader does not get in while a writer holds',
    needs: ['shared'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      await bob.expectBusy(shared('x'))
      await ada.expectBusy(shared('x'))
      await ada.release(held)
      await bob.take(shared('x'))
    },
  },
  {
    rule: 'C105',
    title: 'G8 readers that come after a waiting writer do not overtake it',
    needs: ['shared', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const reading = await ada.take(shared('x'))
      const writer = await bob.enqueue('x')
      await eve.expectBusy(shared('x'))
      const reader = await eve.enqueue(shared('x'))
      await stage.quiet()
      assert.equal(reader.state, 'waiting')
      await ada.release(reading)
      const writing = await writer.granted()
      assert.equal(reader.state, 'waiting')
      await bob.release(writing)
      await reader.granted()
    },
  },
  {
    rule: 'C106',
    title: 'G9 readers next to each other in the queue are granted together, up to the next writer',
    touches: 'client',
    needs: ['shared', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const readers = [
        await bob.enqueue(shared('x')),
        await eve.enqueue(shared('x')),
        await bob.enqueue(shared('x')),
      ]
      const writer = await eve.enqueue('x')
      const late = await bob.enqueue(shared('x'))
      await ada.release(held)
      for (const reader of readers) await reader.granted()
      await stage.quiet()
      assert.equal(writer.state, 'waiting')
      assert.equal(late.state, 'waiting')
    },
  },
  {
    rule: 'C107',
    title: 'G10 when readers expire, the writer in the queue is granted after the last',
    needs: ['shared', 'queue'],
    async play(stage) {
      const [dying, ada, bob] = await stage.mortalAndTwo()
      await dying.take(shared('x'))
      const reading = await ada.take(shared('x'))
      const writer = await bob.enqueue('x')
      await stage.outlive(dying)
      assert.equal(writer.state, 'waiting')
      await ada.release(reading)
      await writer.granted()
    },
  },
  {
    rule: 'C108',
    title: 'G8 when the waiting writer gives up, the readers behind it get in',
    needs: ['shared', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      await ada.take(shared('x'))
      const writer = await bob.enqueue('x')
      const reader = await eve.enqueue(shared('x'))
      await bob.abandon(writer.request)
      await reader.granted()
    },
  },
  {
    rule: 'C109',
    title: 'T45 a reader that releases twice does not take another reader along',
    needs: ['shared'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const asked = shared('x')
      const held = await ada.take(asked)
      await ada.take(asked)
      await bob.take(shared('x'))
      assert.equal(await ada.release(held), 'released')
      assert.equal(await ada.release(held), 'not-held')
      await eve.expectBusy(request('x'))
    },
  },
  {
    rule: 'C214',
    title:
      'G1 G7 T31 a reader whose time is up touches no other claim when it comes back: the readers after it keep the writers out',
    needs: ['shared'],
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      const late = await ada.take(shared('x'))
      await stage.outlive(ada)
      const held = await bob.take(shared('x'))
      await stage.start(ada.keepAlive({ held: [late] }))
      assert.equal(await ada.release(late), 'not-held')
      await eve.expectBusy('x')
      await ada.abandon(late)
      await eve.expectBusy('x')
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
      assert.equal(await ada.holds(late), false)
      assert.equal(await bob.release(held), 'released')
      await eve.take('x')
    },
  },
])
