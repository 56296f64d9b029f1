/** A session's handle is plain data that another process can carry on with. */
import assert from 'node:assert/strict'
import { call, topic } from './toolbox.ts'

export const attachingCases = topic('attaching', [
  {
    rule: 'C20',
    title: 'an attached client releases what the first one acquired, and renews it',
    touches: 'client',
    needs: ['attach'],
    async play(stage) {
      const ada = await stage.mortal()
      const held = await ada.take('x')
      const heir = await stage.attach(ada)
      assert(heir !== null)
      for (let third = 0; third < 6; third++) {
        await stage.passTime(ada.session.ttlMs / 3)
        assert.deepEqual(await heir.stayAlive({ held: [held] }), [])
      }
      assert.equal(await heir.release(held), 'released')
      assert.equal(await ada.release(held), 'not-held')
    },
  },
  {
    rule: 'C21',
    title: 'T64 G3 attaching prolongs nothing, and an attached client does not believe that it does',
    needs: ['attach'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await ada.take('x')
      const endMs = stage.clock.monotonicMs() + ada.session.ttlMs
      await stage.passTime(ada.session.ttlMs / 2)
      const heir = await stage.attach(ada)
      assert(heir !== null)
      assert.equal(heir.session.ttlMs, ada.session.ttlMs)
      const { since, ttlMs } = heir.session
      if (since !== null) {
        await stage.untilBeliefEnds(heir, { since, ttlMs })
        await bob.expectBusy('x')
      }
      const slackMs = ada.backend.info.expirySlackMs(ttlMs) + stage.world.resolutionMs
      await stage.passTime(endMs - stage.clock.monotonicMs() + slackMs)
      await bob.take('x')
    },
  },
  {
    rule: 'C22',
    title: 'a session that has expired or was closed cannot be attached to',
    needs: ['attach'],
    async play(stage) {
      const [bob, ada] = await stage.mortalAndOne()
      await ada.close()
      assert.equal(await stage.attach(ada), null)
      await stage.outlive(bob)
      assert.equal(await stage.attach(bob), null)
    },
  },
  {
    rule: 'C23',
    title: 'a session of another namespace cannot be attached to',
    needs: ['attach'],
    async play(stage) {
      const ada = await stage.actor()
      await ada.take('x')
      assert.equal(await stage.attach(ada, await stage.client({ namespace: 'apart' })), null)
      assert((await stage.attach(ada)) !== null)
    },
  },
  {
    rule: 'C24',
    title: 'a session that one client closes is gone for the others that use it',
    needs: ['attach'],
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      const heir = await stage.attach(ada)
      await heir?.close()
      assert.equal((await ada.keepAlive({ held: [held] })).kind, 'gone')
      assert.equal(await ada.release(held), 'not-held')
    },
  },
  {
    rule: 'C25',
    title: 'G13 what a session holds stays held when its client goes away, and can be carried on',
    touches: 'client',
    needs: ['attach'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      await ada.backend[Symbol.asyncDispose]()
      await bob.expectBusy('x')
      const heir = await stage.attach(ada)
      assert(heir !== null)
      assert.equal(await heir.session.release(held, { keepForMs: 0 }, call()), 'released')
      await bob.take('x')
    },
  },
  {
    rule: 'C208',
    title: 'T64 G3 a grant through an attached client is believed no longer than the engine keeps it',
    needs: ['attach'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      await stage.passTime(ada.session.ttlMs / 2)
      const heir = await stage.attach(ada)
      assert(heir !== null)
      const held = await heir.take('x')
      await stage.untilBeliefEnds(heir, held)
      await bob.expectBusy('x')
    },
  },
])
