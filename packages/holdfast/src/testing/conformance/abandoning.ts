/** After an abandon the attempt neither holds nor waits, and can never land (G6, T15, T73). */
import assert from 'node:assert/strict'
import { request, topic } from './toolbox.ts'

export const abandoningCases = topic('abandoning', [
  {
    rule: 'C91',
    title: 'T15 G6 abandoning a holder frees its name',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      await ada.abandon(held)
      assert.equal(await ada.release(held), 'not-held')
      await bob.take('x')
    },
  },
  {
    rule: 'C92',
    title: 'T15 G10 abandoning a holder hands its name to the first waiter',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      await ada.abandon(held)
      await wait.granted()
    },
  },
  {
    rule: 'C93',
    title: 'T73 T15 a try that arrives after its abandon never lands',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const late = request('x')
      await ada.abandon(late)
      await expectNotLanded(ada.try(late))
      assert.equal(await stage.inspect('x'), null)
      await bob.take('x')
    },
  },
  {
    rule: 'C94',
    title: 'T73 an abandoned holder does not land again either',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const late = request('x')
      await ada.take(late)
      await ada.abandon(late)
      await expectNotLanded(ada.try(late))
      await bob.take('x')
    },
  },
  {
    rule: 'C95',
    title: 'T73 an enqueue that arrives after its abandon is not queued',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await bob.take('x')
      const late = request('x')
      await ada.abandon(late)
      await (await ada.enqueue(late)).ends('rejected')
      assert.deepEqual((await stage.inspect('x'))?.waiters, [])
      await bob.release(held)
      await bob.take('x')
    },
  },
  {
    rule: 'C96',
    title: 'T73 an abandon is remembered for as long as the session lives',
    async play(stage) {
      const ada = await stage.mortal()
      const late = request('x')
      await ada.abandon(late)
      for (let half = 0; half < 6; half++) {
        await stage.passTime(ada.session.ttlMs / 2)
        await ada.stayAlive()
      }
      await expectNotLanded(ada.try(late))
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'C97',
    title: 'T73 an abandon also meets a late request that comes through another client of the session',
    needs: ['attach'],
    async play(stage) {
      const ada = await stage.actor()
      const heir = await stage.attach(ada)
      assert(heir !== null)
      const late = request('x')
      await ada.abandon(late)
      await expectNotLanded(heir.try(late))
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'C98',
    title: 'abandoning what is unknown, or twice, is harmless and leaves nothing to see',
    async play(stage) {
      const ada = await stage.actor()
      const unknown = request('x')
      await ada.abandon(unknown)
      await ada.abandon(unknown)
      assert.deepEqual(await stage.list(), [])
      await ada.take('x')
    },
  },
  {
    rule: 'C99',
    title: 'G7 an abandon touches neither another attempt of the session nor another session',
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      await ada.abandon(request('x'))
      await bob.abandon(held)
      await ada.expectHolding(held)
      assert.deepEqual(await ada.stayAlive({ held: [held] }), [])
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C100',
    title: 'G7 an abandon in a session that has expired does not touch the successor',
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      const lost = await ada.take('x')
      await stage.outlive(ada)
      const held = await bob.take('x')
      await ada.abandon(lost)
      await bob.expectHolding(held)
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C101',
    title: 'T15 T73 G6 an acquire and its abandon at once leave nothing, in whatever order they land',
    touches: 'client',
    async play(stage) {
      const [ada, bob] = await stage.two()
      for (let round = 0; round < 10; round++) {
        const asked = request('x')
        await Promise.allSettled([ada.try(asked), ada.abandon(asked), ada.try(asked)])
        const next = await bob.take('x')
        await bob.release(next)
      }
      assert.deepEqual(await stage.list(), [])
    },
  },
])

/** Busy, or a refusal: but no grant. */
async function expectNotLanded(trying: Promise<{ readonly kind: string }>): Promise<void> {
  const [outcome] = await Promise.allSettled([trying])
  if (outcome?.status === 'fulfilled') assert.equal(outcome.value.kind, 'busy')
}
