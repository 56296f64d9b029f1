/** One holder at a time. */
import assert from 'node:assert/strict'
import { request, topic } from './toolbox.ts'

export const exclusiveCases = topic('exclusive locks', [
  {
    rule: 'C26',
    title: 'a free name is granted, and the grant repeats what was asked',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const asked = request('invoices/2026-11')
      const grant = await ada.take(asked)
      assert.equal(grant.name, asked.name)
      assert.equal(grant.attempt, asked.attempt)
      assert.equal(grant.previousData, undefined)
    },
  },
  {
    rule: 'C27',
    title: 'G1 a held name is busy for another client, and for another session of the same client',
    async play(stage) {
      const client = await stage.client()
      const [ada, neighbour, stranger] = [
        await stage.actor({ on: client }),
        await stage.actor({ on: client }),
        await stage.actor(),
      ]
      await ada.take('x')
      await neighbour.expectBusy('x')
      await stranger.expectBusy('x')
    },
  },
  {
    rule: 'C28',
    title: 'G1 T70 two attempts of one session exclude each other like strangers',
    async play(stage) {
      const ada = await stage.actor()
      const [first, second] = [request('x'), request('x')]
      const held = await ada.take(first)
      await ada.expectBusy(second)
      assert.equal(await ada.release({ ...held, attempt: second.attempt }), 'not-held')
      await ada.expectHolding(first)
      assert.equal(await ada.release(held), 'released')
      await ada.take(second)
    },
  },
  {
    rule: 'C29',
    title: 'a released name is granted to the next request',
    async play(stage) {
      const [ada, bob] = await stage.two()
      for (const each of [ada, bob, ada, ada, bob]) {
        const held = await each.take('x')
        assert.equal(await each.release(held), 'released')
      }
    },
  },
  {
    rule: 'C30',
    title: 'names do not disturb each other',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const x = await ada.take('x')
      await bob.take('y')
      await ada.take('z')
      await ada.expectBusy('y')
      await ada.release(x)
      await bob.take('x')
      await bob.expectBusy('z')
    },
  },
  {
    rule: 'C31',
    title: 'T12 T39 a try is idempotent in its attempt: asked again, it answers with the same grant',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const asked = request('x')
      const first = await ada.take(asked)
      const again = await ada.take(asked)
      assert.equal(again.token, first.token)
      assert.equal(again.attempt, first.attempt)
      assert.equal(again.grantId, first.grantId)
      assert.equal(await ada.release(first), 'released', 'it was not counted twice')
      await bob.take('x')
    },
  },
  {
    rule: 'C32',
    title: 'T70 one attempt sent twice at once is granted once',
    touches: 'client',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const asked = request('x')
      const [one, two] = await Promise.all([ada.take(asked), ada.take(asked)])
      assert.equal(one.token, two.token)
      assert.equal(one.grantId, two.grantId)
      assert.equal((await stage.inspect('x'))?.holders.length, 1)
      await ada.release(one)
      await bob.take('x')
    },
  },
  {
    rule: 'C33',
    title: 'G1 of many clients that try at once exactly one is granted',
    touches: 'client',
    async play(stage) {
      const actors = await stage.actors(5)
      for (let round = 0; round < 5; round++) {
        const name = `race ${round}`
        const results = await Promise.all([...actors, ...actors].map((actor) => actor.try(name)))
        assert.equal(results.filter((result) => result.kind === 'granted').length, 1)
        assert.equal(results.filter((result) => result.kind === 'busy').length, 9)
      }
    },
  },
  {
    rule: 'C34',
    title: 'G6 a try that found the name busy leaves nothing behind',
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      await bob.expectBusy('x')
      assert.deepEqual((await stage.inspect('x'))?.waiters, [])
      await ada.release(held)
      assert.deepEqual(await stage.list(), [])
      await eve.take('x')
    },
  },
  {
    rule: 'C35',
    title: 'one session holds many names at once',
    touches: 'client',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const names = Array.from({ length: 100 }, (_, index) => `shelf/${index}`)
      const grants = await Promise.all(names.map((name) => ada.take(name)))
      assert.equal(new Set(grants.map((grant) => grant.attempt)).size, names.length)
      assert.equal((await stage.list('shelf/')).length, names.length)
      assert.deepEqual(await ada.stayAlive({ held: grants }), [])
      await bob.expectBusy('shelf/99')
      const outcomes = await Promise.all(grants.map((grant) => ada.release(grant)))
      assert(outcomes.every((outcome) => outcome === 'released'))
      assert.deepEqual(await stage.list(), [])
    },
  },
])
