/** When time runs out: not early, not late, and never believed longer than the engine keeps to it. */
import assert from 'node:assert/strict'
import { allPages } from '../../base/all-pages.ts'
import { publicIdOf } from '../../base/ids.ts'
import {
  call,
  expectAlive,
  expectGranted,
  expectMs,
  expectToCountFromSession,
  hookOf,
  request,
  topic,
} from './toolbox.ts'

export const expiryCases = topic('expiry', [
  {
    rule: 'C57',
    title: 'G13 a name is not given to another while its holder may believe',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      await stage.untilBeliefEnds(ada, held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C58',
    title: 'G13 a keep-alive postpones that by a whole TTL from its sending',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      await stage.passTime(ada.session.ttlMs / 2)
      const kept = expectAlive(await ada.keepAlive({ held: [held] }))
      const min = held.since.monotonicMs + ada.session.ttlMs / 2 - stage.world.resolutionMs
      expectMs('the keep-alive counts from', kept.since.monotonicMs, { min })
      await stage.untilBeliefEnds(ada, kept)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C59',
    title: 'T64 G3 a grant on an old session is believed no longer than the engine keeps it',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await stage.passTime(ada.session.ttlMs / 2)
      const held = await ada.take('x')
      await stage.untilBeliefEnds(ada, held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C60',
    title: 'T1 G3 a grant counts from a request that was sent before it was asked for, not from its answer',
    touches: 'client',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const delayMs = ada.session.ttlMs / 4
      const sentMs = stage.clock.monotonicMs()
      const delayAnswers = hookOf(stage.world, 'delayAnswers')
      await delayAnswers(delayMs)
      const held = expectGranted(await stage.drive(ada.try('x')))
      const max = sentMs + stage.world.resolutionMs
      expectMs('the grant counts from', held.since.monotonicMs, { max })
      await delayAnswers(0)
      await stage.untilBeliefEnds(ada, held)
      await bob.expectBusy('x')
    },
  },
  {
    rule: 'C61',
    title: 'G10 a name whose holder is gone is free when its time and the declared slack are over',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await ada.take('x')
      await stage.outlive(ada)
      await bob.take('x')
    },
  },
  {
    rule: 'C62',
    title: 'G10 everything that an expired session held becomes free',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const names = ['x', 'y', 'a/b', 'a/c']
      for (const name of names) await ada.take(name)
      await stage.outlive(ada)
      for (const name of names) await bob.take(name)
    },
  },
  {
    rule: 'C63',
    title: 'G10 the first waiter is granted when the holder expires, without a call',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await ada.take('x')
      const wait = await bob.enqueue('x')
      await stage.outlive(ada)
      await wait.granted(stage.ttlMs / 10)
    },
  },
  {
    rule: 'C64',
    title: 'G13 the first waiter is not granted before',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      await stage.untilBeliefEnds(ada, held)
      assert.equal(wait.state, 'waiting')
    },
  },
  {
    rule: 'C65',
    title: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      assert.notEqual(await stage.inspect('x'), null)
      await stage.outlive(ada)
      assert.equal(await stage.inspect('x'), null)
      assert.deepEqual(await stage.list(), [])
      assert.equal(await ada.holds(held), false)
      const taken = await bob.take('x')
      const ids = (await stage.inspect('x'))?.holders.map(({ id }) => id)
      assert.deepEqual(ids, [publicIdOf(taken.attempt)])
      assert.equal(await ada.holds(held), false)
    },
  },
  {
    rule: 'C66',
    title: 'T16 an expired session can still be spoken to, and is told that it has nothing',
    async play(stage) {
      const ada = await stage.mortal()
      const held = await ada.take('x')
      await stage.outlive(ada)
      assert.equal(await ada.release(held), 'not-held')
      await ada.abandon(held)
      await ada.abandon(request('x'))
      if (ada.session.setData) assert.equal(await ada.session.setData(held, 'late', call()), 'not-held')
      await ada.close()
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C235',
    title: 'G3 T64 a grant counts from when its session was last prolonged, and for the TTL of its session',
    needs: ['session-claims'],
    async play(stage) {
      const ada = await stage.mortal()
      await stage.passTime(ada.session.ttlMs / 2)
      expectToCountFromSession('a grant', ada, await ada.take('x'))
      const sentMs = stage.clock.monotonicMs()
      const kept = expectAlive(await ada.keepAlive())
      const answeredMs = stage.clock.monotonicMs()
      expectMs('a keep-alive counts from', kept.since.monotonicMs, { min: sentMs, max: answeredMs })
      expectToCountFromSession('a keep-alive', ada, kept)
      await stage.passTime(ada.session.ttlMs / 2)
      expectToCountFromSession('a later grant', ada, await ada.take('y'))
    },
  },
  {
    rule: 'C240',
    title: 'G3 T64 T65 a grant that was handed over counts from when its session was last prolonged',
    needs: ['queue', 'session-claims'],
    async play(stage) {
      const [bob, ada] = await stage.mortalAndOne()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      const [pushed, brought] = [await bob.enqueue('x'), await bob.enqueue('y')]
      await stage.passTime(bob.session.ttlMs / 2)
      await ada.release(x)
      expectToCountFromSession('a grant that was pushed', bob, await pushed.granted())
      await ada.release(y)
      const kept = expectAlive(await bob.keepAlive({ waiting: [brought.request] }))
      for (const granted of kept.granted)
        expectToCountFromSession('a grant that a keep-alive brought', bob, granted)
      expectToCountFromSession('a grant that was pushed', bob, await brought.granted())
    },
  },
  {
    rule: 'C236',
    title: 'G3 T64 an attached session counts from before it was attached, or says that it does not know',
    needs: ['attach'],
    async play(stage) {
      const ada = await stage.mortal()
      await stage.passTime(ada.session.ttlMs / 2)
      const heir = await stage.attach(ada)
      assert(heir !== null)
      const { since, ttlMs } = heir.session
      if (since !== null) expectToCountFromSession('an attached session', heir, { since, ttlMs })
    },
  },
  {
    rule: 'C241',
    title:
      'G3 T64 a grant through an attached session counts from its last prolongation, or prolongs the session first',
    needs: ['attach', 'session-claims'],
    async play(stage) {
      const ada = await stage.mortal()
      const stepMs = ada.session.ttlMs / 2
      const lastMs = ada.session.ttlMs + ada.backend.info.expirySlackMs(ada.session.ttlMs)
      // Where an attached session does not know its time, the keep-alives of these grants must keep it alive.
      for (let passedMs = 0; passedMs <= lastMs; passedMs += stepMs) {
        await stage.passTime(stepMs)
        const heir = await stage.attach(ada)
        assert(heir !== null, 'the session ended: a grant through it was believed, and did not prolong it')
        const held = await heir.take(`x${passedMs}`)
        if (heir.session.since !== null) return expectToCountFromSession('a grant', heir, held)
      }
    },
  },
  {
    rule: 'C237',
    title: 'G3 a session that asks for a TTL that the engine has is granted that TTL',
    async play(stage) {
      const { min, step } = (await stage.client()).info.ttlMs
      for (const asked of [stage.ttlMs, stage.ttlMs * 4]) {
        const ttlMs = Math.max(min, Math.ceil(asked / step) * step)
        const { session } = await stage.actor({ ttlMs })
        assert.equal(session.ttlMs, ttlMs)
      }
    },
  },
  {
    rule: 'C238',
    title: 'G3 a try on a busy name in a dead session says that the session is gone',
    async play(stage) {
      const [bob, ada] = await stage.mortalAndOne()
      await ada.take('x')
      await stage.outlive(bob)
      assert.equal((await bob.try('x')).kind, 'session-gone')
      assert.equal((await bob.try('free')).kind, 'session-gone')
    },
  },
  {
    rule: 'C250',
    title: 'T48 a list shows nothing that has expired, also if no other call came in between',
    async play(stage) {
      const ada = await stage.mortal()
      await ada.take('x')
      assert.equal((await stage.list()).length, 1)
      await stage.outlive(ada)
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C251',
    title: 'a list of sessions shows none that has expired, also if no other call came in between',
    needs: ['sessions'],
    async play(stage) {
      const observer = await stage.observer()
      const ada = await stage.mortal()
      const isListed = async () => {
        const pages = allPages(async (page) => observer.sessions?.(page, call()) ?? { items: [], next: null })
        for await (const sessions of pages)
          if (sessions.some(({ id }) => id === publicIdOf(ada.session.id))) return true
        return false
      }
      assert.equal(await isListed(), true)
      await stage.outlive(ada)
      assert.equal(await isListed(), false)
    },
  },
])
