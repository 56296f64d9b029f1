/** Data that a holder leaves for the next one. */
import assert from 'node:assert/strict'
import { operatorCall, request, shared, topic } from './toolbox.ts'

export const dataCases = topic('data', [
  {
    rule: 'C132',
    title: 'the next holder gets what the last one left, and the first gets nothing',
    needs: ['data'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const first = await ada.take('x')
      assert.equal(first.previousData, undefined)
      assert.equal(await ada.setData(first, 'draft'), 'stored')
      assert.equal(await ada.setData(first, 'page 7'), 'stored')
      await ada.release(first)
      const second = await bob.take('x')
      assert.equal(second.previousData, 'page 7')
      await bob.release(second)
      assert.equal((await ada.take('x')).previousData, 'page 7', 'it stays until it is replaced')
    },
  },
  {
    rule: 'C133',
    title: 'data survives the expiry of the holder that left it',
    needs: ['data'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      await ada.setData(held, 'half done')
      await stage.outlive(ada)
      assert.equal((await stage.inspect('x'))?.data, 'half done')
      assert.equal((await bob.take('x')).previousData, 'half done')
    },
  },
  {
    rule: 'C134',
    title: 'a waiter that is granted the name gets the data with it',
    touches: 'client',
    needs: ['data', 'queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      await ada.setData(held, 'for you')
      await ada.release(held)
      assert.equal((await wait.granted()).previousData, 'for you')
    },
  },
  {
    rule: 'C135',
    title: 'G7 only the holder can leave data',
    needs: ['data'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      assert.equal(await bob.setData(held, 'forged'), 'not-held')
      assert.equal(await ada.setData({ ...held, attempt: request('x').attempt }, 'forged'), 'not-held')
      assert.equal(await ada.setData(request('x'), 'forged'), 'not-held')
      assert.equal(await ada.setData(request('never'), 'forged'), 'not-held')
      await ada.release(held)
      assert.equal(await ada.setData(held, 'late'), 'not-held')
      assert.deepEqual(await stage.list(), [])
      assert.equal((await bob.take('x')).previousData, undefined)
    },
  },
  {
    rule: 'C136',
    title: 'G7 a holder that has expired cannot overwrite what its successor left',
    needs: ['data'],
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      const lost = await ada.take('x')
      await stage.outlive(ada)
      const held = await bob.take('x')
      await bob.setData(held, 'new')
      assert.equal(await ada.setData(lost, 'old'), 'not-held')
      await bob.release(held)
      assert.equal((await eve.take('x')).previousData, 'new')
    },
  },
  {
    rule: 'C137',
    title: 'G6 data is the one thing that stays behind, until the name is forgotten',
    touches: 'client',
    needs: ['data'],
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      await ada.setData(held, 'a note')
      assert.equal(await ada.operator.forget('x'), 'in-use')
      await ada.release(held)
      const [left] = await stage.list()
      assert(left?.name === 'x' && left.data === 'a note' && left.holders.length === 0)
      assert.equal(await ada.operator.forget('x'), 'forgotten')
      assert.deepEqual(await stage.list(), [])
      assert.equal(await ada.operator.forget('x'), 'not-found')
      assert.equal((await ada.take('x')).previousData, undefined)
    },
  },
  {
    rule: 'C138',
    title: 'a name in use cannot be forgotten, and one without data is not found',
    needs: ['data'],
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      assert.equal(await ada.operator.forget('x'), 'in-use')
      assert.equal(await ada.backend.forget('x', 'a note', operatorCall()), 'in-use')
      await ada.release(held)
      assert.equal(await ada.operator.forget('x'), 'not-found')
      assert.equal(await ada.backend.forget('x', 'a note', operatorCall()), 'changed')
      assert.equal(await ada.operator.forget('never'), 'not-found')
    },
  },
  {
    rule: 'C139',
    title: 'data comes back byte for byte: 4 KiB, any script, quotes, line breaks, and the empty text',
    touches: 'client',
    needs: ['data'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const texts = [
        'x'.repeat(4_096),
        '€'.repeat(1_365),
        'naïve 日本語 🦀 \u{10FFFF}',
        `'"\`\\ \n\r\t %s {"a":[1]}`,
        '',
      ]
      for (const text of texts) {
        const held = await ada.take('x')
        assert.equal(await ada.setData(held, text), 'stored')
        await ada.release(held)
        const next = await bob.take('x')
        assert.equal(next.previousData, text)
        await bob.release(next)
      }
    },
  },
  {
    rule: 'C252',
    title:
      'data that is left twice at once is stored, by one holder and by two that share: neither has lost the name',
    needs: ['data', 'shared'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const alone = await ada.take('alone')
      const [one, two] = [await ada.take(shared('x')), await bob.take(shared('x'))]
      // The first time there is no data cell yet, then there is one.
      for (let times = 0; times < 2; times++)
        for (const leaving of [
          [ada.setData(alone, 'left'), ada.setData(alone, 'left')],
          [ada.setData(one, 'left'), bob.setData(two, 'left')],
        ])
          assert.deepEqual(await Promise.all(leaving), ['stored', 'stored'])
      for (const name of ['alone', 'x']) assert.equal((await stage.inspect(name))?.data, 'left')
    },
  },
])
