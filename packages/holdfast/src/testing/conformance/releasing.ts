/** Only the holder releases, and a release says truthfully what it did. */
import assert from 'node:assert/strict'
import { request, topic } from './toolbox.ts'

export const releasingCases = topic('releasing', [
  {
    rule: 'C36',
    title: 'T46 G7 a release with another attempt touches nothing',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const { attempt } = request('x')
      assert.equal(await ada.release({ ...held, attempt }), 'not-held')
      assert.equal(await ada.release(request('x')), 'not-held')
      await ada.expectHolding(held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C37',
    title: 'T46 G7 another session cannot release, even if it knows the attempt',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      assert.equal(await bob.release(held), 'not-held')
      await ada.expectHolding(held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C38',
    title: 'T46 G7 a release that comes after the expiry does not touch the successor',
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      const lost = await ada.take('x')
      await stage.outlive(ada)
      const held = await bob.take('x')
      assert.equal(await ada.release(lost), 'not-held')
      await bob.expectHolding(held)
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C39',
    title: 'T13 the second of two releases says that it released nothing',
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      assert.equal(await ada.release(held), 'released')
      assert.equal(await ada.release(held), 'not-held')
    },
  },
  {
    rule: 'C40',
    title: 'T13 of many releases at once one says that it released',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      const outcomes = await Promise.all(Array.from({ length: 5 }, () => ada.release(held)))
      assert.deepEqual(outcomes.toSorted(), ['not-held', 'not-held', 'not-held', 'not-held', 'released'])
    },
  },
  {
    rule: 'C41',
    title: 'G7 a repeated release does not touch the next attempt of the same session',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const first = await ada.take('x')
      await ada.release(first)
      const second = await ada.take('x')
      assert.equal(await ada.release(first), 'not-held')
      await ada.expectHolding(second)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C42',
    title: 'T13 a release of what has expired says so, also when the name was not taken since',
    async play(stage) {
      const ada = await stage.mortal()
      const held = await ada.take('x')
      await stage.outlive(ada)
      assert.equal(await ada.release(held), 'not-held')
    },
  },
  {
    rule: 'C43',
    title: 'a release of what was never held says so and leaves nothing behind',
    async play(stage) {
      const ada = await stage.actor()
      assert.equal(await ada.release(request('never')), 'not-held')
      assert.deepEqual(await stage.list(), [])
    },
  },
])
