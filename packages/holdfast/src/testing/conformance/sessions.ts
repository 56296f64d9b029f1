/** Sessions: opened once, kept alive, gone for good, closed, carried on elsewhere. */

import assert from 'node:assert/strict'
import { outcomeOf } from '../../base/errors.ts'
import {
  call,
  expectAlive,
  expectGranted,
  expectMs,
  hookOf,
  newSessionId,
  request,
  topic,
} from './toolbox.ts'

export const sessionCases = topic('sessions', [
  {
    rule: 'C6',
    title: 'T4 a session says which TTL was granted, which is at least what was asked for',
    touches: 'client',
    async play(stage) {
      const ada = await stage.mortal()
      expectMs('the TTL', ada.session.ttlMs, { min: stage.ttlMs })
      const alive = expectAlive(await ada.keepAlive())
      assert.equal(alive.ttlMs, ada.session.ttlMs)
      assert.equal((await ada.take('x')).ttlMs, ada.session.ttlMs)
    },
  },
  {
    rule: 'C7',
    title: 'opening is idempotent in the id: asked twice, there is one session',
    async play(stage) {
      const asked = { id: newSessionId(), ttlMs: stage.ttlMs * 10, holder: 'ada' }
      const first = await (await stage.client()).openSession(asked, call())
      const held = expectGranted(await first.tryAcquire(request('x'), call()))
      const again = await (await stage.client()).openSession(asked, call())
      assert.equal(await again.release(held, { keepForMs: 0 }, call()), 'released')
    },
  },
  {
    rule: 'C8',
    title: 'opening one id many times at once opens one session',
    touches: 'client',
    async play(stage) {
      const asked = { id: newSessionId(), ttlMs: stage.ttlMs * 10, holder: 'ada' }
      const [one, two] = [await stage.client(), await stage.client()]
      const all = await Promise.all(
        [one, two, one, two, one].map((client) => client.openSession(asked, call())),
      )
      await all[0]?.close(call())
      for (const session of all) {
        const kept = await session.keepAlive({ held: [], waiting: [] }, call())
        assert.equal(kept.kind, 'gone')
      }
    },
  },
  {
    rule: 'C9',
    title: 'T1 G3 an opened session counts from the sending of the request, not from the answer',
    touches: 'client',
    async play(stage) {
      const client = await stage.client()
      await hookOf(stage.world, 'delayAnswers')(stage.ttlMs / 4)
      const sentMs = stage.clock.monotonicMs()
      const asked = { id: newSessionId(), ttlMs: stage.ttlMs, holder: 'ada' }
      const session = await stage.drive(client.openSession(asked, call()))
      const max = sentMs + stage.world.resolutionMs
      expectMs('the session counts from', session.since.monotonicMs, { max })
    },
  },
  {
    rule: 'C10',
    title: 'T1 G3 a keep-alive counts from its sending, not from its answer',
    touches: 'client',
    async play(stage) {
      const ada = await stage.mortal()
      await hookOf(stage.world, 'delayAnswers')(stage.ttlMs / 4)
      const sentMs = stage.clock.monotonicMs()
      const kept = expectAlive(await stage.drive(ada.keepAlive()))
      const max = sentMs + stage.world.resolutionMs
      expectMs('the keep-alive counts from', kept.since.monotonicMs, { max })
    },
  },
  {
    rule: 'C11',
    title: 'G13 a session that is kept alive outlives its TTL many times, with what it holds',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      for (let third = 0; third < 9; third++) {
        await stage.passTime(ada.session.ttlMs / 3)
        assert.deepEqual(await ada.stayAlive({ held: [held] }), [])
      }
      await bob.expectBusy('x')
      assert.equal(await ada.release(held), 'released')
    },
  },
  {
    rule: 'C12',
    title: 'T31 a keep-alive does not revive an expired session',
    async play(stage) {
      const ada = await stage.mortal()
      const held = await ada.take('x')
      await stage.outlive(ada)
      assert.equal((await ada.keepAlive({ held: [held] })).kind, 'gone')
      assert.equal((await ada.keepAlive({ held: [held] })).kind, 'gone')
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'C13',
    title: 'T31 G7 a late keep-alive does not touch the successor',
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      const lost = await ada.take('x')
      await stage.outlive(ada)
      const held = await bob.take('x')
      assert.equal((await ada.keepAlive({ held: [lost] })).kind, 'gone')
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C14',
    title: 'a keep-alive prolongs its own session only',
    async play(stage) {
      const client = await stage.client()
      const [ada, bob] = [await stage.mortal({ on: client }), await stage.mortal({ on: client })]
      await ada.take('x')
      for (let half = 0; half < 2; half++) {
        await stage.passTime(ada.session.ttlMs / 2)
        await bob.stayAlive()
      }
      await stage.passTime(client.info.expirySlackMs(stage.ttlMs) + stage.world.resolutionMs)
      assert.equal((await ada.keepAlive()).kind, 'gone')
      await bob.take('x')
    },
  },
  {
    rule: 'C15',
    title: 'nothing is granted to a session whose time is up',
    async play(stage) {
      const ada = await stage.mortal()
      await stage.outlive(ada)
      assert.equal((await ada.try('x')).kind, 'session-gone')
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C16',
    title: 'nothing is granted to a closed session',
    async play(stage) {
      const ada = await stage.actor()
      await ada.close()
      assert.equal((await ada.keepAlive()).kind, 'gone')
      assert.equal((await ada.try('x')).kind, 'session-gone')
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C17',
    title: 'closing gives up everything that the session holds, and nothing of another session',
    async play(stage) {
      const client = await stage.client()
      const [ada, bob, eve] = [
        await stage.actor({ on: client }),
        await stage.actor({ on: client }),
        await stage.actor(),
      ]
      await ada.take('x')
      await ada.take('y')
      await bob.take('z')
      await ada.close()
      await eve.take('x')
      await eve.take('y')
      await eve.expectBusy('z')
    },
  },
  {
    rule: 'C18',
    title: 'G7 closing again, or after the end of the session, is harmless and touches no successor',
    async play(stage) {
      const [ada, bob, eve] = await stage.mortalAndTwo()
      await ada.take('x')
      await ada.close()
      await ada.close()
      const mortal = await stage.mortal()
      await mortal.take('y')
      await stage.outlive(mortal)
      await bob.take('x')
      await bob.take('y')
      await ada.close()
      await mortal.close()
      await eve.expectBusy('x')
      await eve.expectBusy('y')
    },
  },
  {
    rule: 'C19',
    title: 'T5 a holder keeps its name for its own TTL, whatever TTL the taker has',
    async play(stage) {
      const [patient, hasty] = [await stage.actor({ ttlMs: stage.ttlMs * 3 }), await stage.mortal()]
      await patient.take('x')
      await hasty.take('y')
      await stage.passTime(
        stage.ttlMs + hasty.backend.info.expirySlackMs(stage.ttlMs) + stage.world.resolutionMs,
      )
      await (await stage.mortal()).expectBusy('x')
      await patient.take('y')
    },
  },
  {
    rule: 'C212',
    title: 'T31 a late repetition of an opening does not bring back what the expired session held',
    async play(stage) {
      const client = await stage.client()
      const ada = await stage.mortal({ holder: 'ada' })
      const held = await ada.take('x')
      await stage.outlive(ada)
      const again = await client.openSession(
        { id: ada.session.id, ttlMs: ada.session.ttlMs, holder: 'ada' },
        call(),
      )
      assert.equal(await stage.inspect('x'), null)
      const kept = await again.keepAlive({ held: [held], waiting: [] }, call())
      if (kept.kind === 'alive') assert.equal(kept.lost.length, 1)
      await (await stage.actor()).take('x')
    },
  },
  {
    rule: 'C244',
    title:
      'G3 a grant through an opening that is repeated late is believed no longer than the engine keeps it',
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const { backend, holder } = ada
      const { id, ttlMs } = ada.session
      const wanted = request('x')
      await ada.take(wanted)
      const lateMs = Math.min(ttlMs * 0.9, ttlMs - 2 * stage.world.resolutionMs)
      await stage.passTime(lateMs)
      const again = await backend.openSession({ id, ttlMs, holder }, call())
      // An engine may not find the old grant again. Then its outcome is unknown, and nothing is believed.
      const old = again.tryAcquire(wanted, call()).catch((error: unknown) => {
        if (outcomeOf(error) !== 'unknown') throw error
        return { kind: 'busy' } as const
      })
      const results = [await old, await again.tryAcquire(request('y'), call())]
      await stage.passTime(ttlMs * 1.2 - lateMs)
      for (const result of results) {
        if (result.kind !== 'granted') continue
        const { name, since } = result.grant
        const taken = await bob.try(name)
        const believedMs =
          since.monotonicMs + result.grant.ttlMs - backend.info.driftMs(ttlMs) - stage.clock.monotonicMs()
        assert(taken.kind === 'busy' || believedMs <= 0, `${name} is believed ${believedMs} ms too long`)
      }
    },
  },
  {
    rule: 'C249',
    title:
      'T4 a session that asks for less than the shortest TTL of the engine is granted one that the engine has',
    async play(stage) {
      const client = await stage.client()
      const { min, step } = client.info.ttlMs
      for (const asked of [Math.floor(min / 2), min + 1]) {
        const { session } = await stage.actor({ on: client, ttlMs: asked })
        expectMs(`the TTL, for ${asked} ms`, session.ttlMs, { min: Math.max(min, asked) })
        assert.equal(session.ttlMs % step, 0, `${session.ttlMs} ms, in steps of ${step} ms`)
      }
    },
  },
])
