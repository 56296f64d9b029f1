/** Permits: weights against a capacity on which all requests agree. */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../base/errors.ts'
import { operatorCall, permits, topic } from './toolbox.ts'

const isMismatch = (error: unknown) => isHoldfastError(error, 'CAPACITY_MISMATCH')

export const semaphoreCases = topic('permits', [
  {
    rule: 'C110',
    title: 'G1 as many permits are granted as there are, and then no more',
    needs: ['permits'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const first = await ada.take(permits('s', 1, 3))
      await ada.take(permits('s', 1, 3))
      await bob.take(permits('s', 1, 3))
      await bob.expectBusy(permits('s', 1, 3))
      assert.equal(await ada.release(first), 'released')
      await bob.take(permits('s', 1, 3))
      await ada.expectBusy(permits('s', 1, 3))
    },
  },
  {
    rule: 'C111',
    title: 'G1 weights add up',
    needs: ['permits'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const heavy = await ada.take(permits('s', 3, 5))
      await bob.expectBusy(permits('s', 3, 5))
      await bob.take(permits('s', 2, 5))
      await bob.expectBusy(permits('s', 1, 5))
      await ada.release(heavy)
      await bob.take(permits('s', 3, 5))
    },
  },
  {
    rule: 'C112',
    title: 'G1 of many who ask at once exactly as many are granted as fit',
    needs: ['permits'],
    async play(stage) {
      const actors = await stage.actors(4)
      const results = await Promise.all(
        [...actors, ...actors, ...actors].map((actor) => actor.try(permits('s', 1, 5))),
      )
      assert.equal(results.filter((result) => result.kind === 'granted').length, 5)
    },
  },
  {
    rule: 'C113',
    title: 'clients who disagree on the capacity, or on lock or semaphore, are told',
    touches: 'client',
    needs: ['permits'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take(permits('s', 1, 3))
      await ada.take('lock')
      await assert.rejects(bob.try(permits('s', 1, 4)), isMismatch)
      await assert.rejects(bob.try('s'), isMismatch)
      await assert.rejects(bob.try(permits('lock', 1, 3)), isMismatch)
      await bob.take(permits('s', 2, 3))
      assert.equal(await ada.release(held), 'released')
    },
  },
  {
    rule: 'C114',
    title: 'a request that disagrees is not queued either',
    needs: ['permits', 'queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take(permits('s', 3, 3))
      const wait = await bob.enqueue(permits('s', 1, 4))
      await wait.ends('rejected')
      assert(isMismatch(wait.error))
      assert.deepEqual((await stage.inspect('s'))?.waiters, [])
    },
  },
  {
    rule: 'C115',
    title: 'a name that is not used any more may get another capacity, or become a lock',
    needs: ['permits'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.release(await ada.take(permits('s', 1, 3)))
      await bob.release(await bob.take(permits('s', 4, 4)))
      await ada.release(await ada.take('s'))
      await bob.take(permits('s', 2, 2))
    },
  },
  {
    rule: 'C116',
    title: 'T72 the release of any holder lets the first waiter through',
    needs: ['permits', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = [
        await ada.take(permits('s', 1, 3)),
        await bob.take(permits('s', 1, 3)),
        await ada.take(permits('s', 1, 3)),
      ]
      const waits = [await eve.enqueue(permits('s', 1, 3)), await eve.enqueue(permits('s', 1, 3))]
      const [first, second, third] = held
      assert(first && second && third)
      await bob.release(second)
      await waits[0]?.granted()
      await stage.quiet()
      assert.equal(waits[1]?.state, 'waiting')
      await ada.release(third)
      await waits[1]?.granted()
      await ada.expectHolding(first)
    },
  },
  {
    rule: 'C117',
    title: 'G8 a light request does not overtake a heavy one that waits',
    needs: ['permits', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take(permits('s', 2, 3))
      const heavy = await bob.enqueue(permits('s', 2, 3))
      await eve.expectBusy(permits('s', 1, 3))
      const light = await eve.enqueue(permits('s', 1, 3))
      await stage.quiet()
      assert.equal(light.state, 'waiting')
      await ada.release(held)
      await heavy.granted()
      await light.granted()
    },
  },
  {
    rule: 'C118',
    title: 'one release serves as many waiters as fit, in order',
    needs: ['permits', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take(permits('s', 4, 4))
      const waits = [
        await bob.enqueue(permits('s', 1, 4)),
        await eve.enqueue(permits('s', 2, 4)),
        await bob.enqueue(permits('s', 2, 4)),
        await eve.enqueue(permits('s', 1, 4)),
      ]
      await ada.release(held)
      await waits[0]?.granted()
      await waits[1]?.granted()
      await stage.quiet()
      assert.deepEqual(
        waits.map((wait) => wait.state),
        ['granted', 'granted', 'waiting', 'waiting'],
      )
    },
  },
  {
    rule: 'C119',
    title: 'G10 an expired holder gives back its own weight and no more',
    needs: ['permits'],
    async play(stage) {
      const [dying, ada, bob] = await stage.mortalAndTwo()
      await dying.take(permits('s', 2, 3))
      await ada.take(permits('s', 1, 3))
      await stage.outlive(dying)
      await bob.expectBusy(permits('s', 3, 3))
      await bob.take(permits('s', 2, 3))
    },
  },
  {
    rule: 'C120',
    title: 'a semaphore that grows lets waiters in, and all requests must name its new capacity',
    touches: 'client',
    needs: ['permits', 'queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      await ada.take(permits('s', 2, 2))
      const wait = await bob.enqueue(permits('s', 2, 2))
      assert.equal(await eve.operator.resize('s', 4), 'resized')
      await wait.granted()
      assert.equal((await stage.inspect('s'))?.capacity, 4)
      await assert.rejects(eve.try(permits('s', 1, 2)), isMismatch)
      await eve.expectBusy(permits('s', 1, 4))
    },
  },
  {
    rule: 'C121',
    title: 'a semaphore does not shrink below what is held or waited for',
    needs: ['permits', 'queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take(permits('s', 2, 4))
      assert.equal(await bob.operator.resize('s', 1), 'in-use')
      const wait = await bob.enqueue(permits('s', 4, 4))
      assert.equal(await bob.operator.resize('s', 3), 'in-use')
      await bob.abandon(wait.request)
      assert.equal(await bob.operator.resize('s', 2), 'resized')
      await bob.expectBusy(permits('s', 1, 2))
      await ada.release(held)
      await bob.take(permits('s', 2, 2))
    },
  },
  {
    rule: 'C122',
    title: 'neither a lock nor an unused name can be resized',
    needs: ['permits'],
    async play(stage) {
      const ada = await stage.actor()
      await ada.take('lock')
      await assert.rejects(ada.operator.resize('lock', 3), isMismatch)
      assert.equal(await ada.operator.resize('unused', 3), 'not-found')
      assert.equal(await ada.backend.resize('lock', { from: 2, to: 3 }, operatorCall()), 'changed')
      assert.equal(await ada.backend.resize('unused', { from: 2, to: 3 }, operatorCall()), 'changed')
      assert.equal((await stage.list()).length, 1)
    },
  },
  {
    rule: 'C215',
    title:
      'G1 G7 T31 permits whose time is up free nothing when their holder comes back, and are not held again',
    needs: ['permits'],
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      const late = await ada.take(permits('s', 2, 3))
      await stage.outlive(ada)
      const held = await bob.take(permits('s', 3, 3))
      assert.equal((await ada.keepAlive({ held: [late] })).kind, 'gone')
      assert.equal(await ada.release(late), 'not-held')
      await eve.expectBusy(permits('s', 1, 3))
      assert.deepEqual(
        (await stage.inspect('s'))?.holders.map(({ weight }) => weight),
        [3],
      )
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
    },
  },
  {
    rule: 'C246',
    title: 'a name that only carries data has the capacity of the next request, whatever it was before',
    needs: ['permits', 'data'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const first = await ada.take(permits('s', 1, 2))
      await ada.setData(first, 'a note')
      await ada.release(first)
      const more = await bob.take(permits('s', 4, 5))
      await ada.expectBusy(permits('s', 2, 5))
      await ada.take(permits('s', 1, 5))
      assert.equal((await stage.inspect('s'))?.capacity, 5)
      await assert.rejects(ada.try(permits('s', 1, 2)), isMismatch)
      const last = await ada.take('lock')
      await ada.setData(last, 'a note')
      await ada.release(last)
      assert.equal((await bob.take(permits('lock', 2, 3))).previousData, 'a note')
      await bob.expectHolding(more)
    },
  },
  {
    rule: 'C247',
    title: 'a name that is only closed has the capacity of the next request, which is told that it is busy',
    needs: ['permits', 'hold-at-least'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.release(await ada.take(permits('s', 1, 2)), stage.ttlMs)
      await bob.expectBusy(permits('s', 4, 5))
      await bob.expectBusy('s')
      await stage.passTime(stage.ttlMs + stage.world.resolutionMs)
      await bob.take(permits('s', 4, 5))
      await ada.expectBusy(permits('s', 2, 5))
      assert.equal((await stage.inspect('s'))?.capacity, 5)
    },
  },
])
