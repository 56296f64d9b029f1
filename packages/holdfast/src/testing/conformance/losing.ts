/** How a holder learns that it has lost something, and that it has lost nothing else. */
import assert from 'node:assert/strict'
import { call, hookOf, permits, request, shared, tokenOf, topic } from './toolbox.ts'

const because = 'an operator said so'

export const losingCases = topic('force release and loss', [
  {
    rule: 'C140',
    title: 'a holder is released by its label, and only that one',
    needs: ['shared'],
    async play(stage) {
      const [ada, bob] = [await stage.actor({ holder: 'ada' }), await stage.actor({ holder: 'bob' })]
      const [one, two, three] = [
        await ada.take(shared('x')),
        await ada.take(shared('x')),
        await bob.take(shared('x')),
      ]
      const released = await bob.backend.forceRelease('x', { kind: 'holder', holder: 'ada' }, because, call())
      assert.equal(released, 2)
      assert(!(await ada.holds(one)) && !(await ada.holds(two)))
      assert(await bob.holds(three))
    },
  },
  {
    rule: 'C141',
    title: 'T74 a holder is released by its token, and only that one',
    needs: ['fencing'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      const target = { kind: 'token', token: tokenOf(x) } as const
      assert.equal(await bob.backend.forceRelease('y', target, because, call()), 0)
      assert.equal(await bob.backend.forceRelease('x', target, because, call()), 1)
      assert(!(await ada.holds(x)) && (await ada.holds(y)))
      await bob.take('x')
    },
  },
  {
    rule: 'C142',
    title: 'all holders are released at once',
    needs: ['permits'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take(permits('s', 1, 3))
      await bob.take(permits('s', 2, 3))
      assert.equal(await ada.backend.forceRelease('s', { kind: 'all' }, because, call()), 2)
      assert.deepEqual(await stage.list(), [])
      await bob.take(permits('s', 3, 3))
    },
  },
  {
    rule: 'C143',
    title: 'T74 G7 a force release aimed at a predecessor does not touch the successor',
    needs: ['fencing'],
    async play(stage) {
      const [ada, bob] = [await stage.actor({ holder: 'ada' }), await stage.actor({ holder: 'bob' })]
      const old = await ada.take('x')
      await ada.release(old)
      const held = await bob.take('x')
      const { backend } = await stage.actor()
      assert.equal(
        await backend.forceRelease('x', { kind: 'token', token: tokenOf(old) }, because, call()),
        0,
      )
      assert.equal(await backend.forceRelease('x', { kind: 'holder', holder: 'ada' }, because, call()), 0)
      assert(await bob.holds(held))
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
    },
  },
  {
    rule: 'C144',
    title: 'a force release of a name that nobody holds releases nothing and leaves nothing',
    async play(stage) {
      const backend = await stage.client()
      assert.equal(await backend.forceRelease('never', { kind: 'all' }, because, call()), 0)
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C145',
    title: 'G3 T34 a holder who was released by force learns it, with the reason, at its next keep-alive',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      await bob.backend.forceRelease('x', { kind: 'all' }, because, call())
      const lost = await ada.stayAlive({ held: [x, y] })
      assert.deepEqual(lost, [{ attempt: x.attempt, reason: 'force-released' }])
      assert(await ada.holds(y), 'what was not released stays')
    },
  },
  {
    rule: 'C146',
    title: 'G7 what a force-released holder does later does not touch its successor',
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const lost = await ada.take('x')
      await eve.backend.forceRelease('x', { kind: 'all' }, because, call())
      const held = await bob.take('x')
      assert.equal((await ada.stayAlive({ held: [lost] }))[0]?.reason, 'force-released')
      assert.equal(await ada.release(lost), 'not-held')
      await ada.abandon(lost)
      assert(await bob.holds(held))
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C147',
    title: 'G10 a force release hands the name to the first in line, and leaves the line alone',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      await ada.take('x')
      const [first, second] = [await bob.line('x'), await eve.line('x')]
      assert.equal(await eve.backend.forceRelease('x', { kind: 'all' }, because, call()), 1)
      await first.granted()
      await stage.quiet()
      assert.equal(second.state, 'waiting')
    },
  },
  {
    rule: 'C148',
    title: 'who was released by force may acquire again, with a new attempt',
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take('x')
      await bob.backend.forceRelease('x', { kind: 'all' }, because, call())
      const again = await ada.take('x')
      assert.deepEqual(await ada.stayAlive({ held: [again] }), [])
    },
  },
  {
    rule: 'C149',
    title: 'T34 a record that somebody removed is reported as lost at the next keep-alive, and stays away',
    async play(stage) {
      const deleteName = hookOf(stage.world, 'deleteName')
      const [ada, bob] = await stage.two()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      await deleteName('x')
      assert.deepEqual(await ada.stayAlive({ held: [x, y] }), [{ attempt: x.attempt, reason: 'deleted' }])
      assert.equal(await ada.release(x), 'not-held')
      await bob.take('x')
    },
  },
  {
    rule: 'C150',
    title: 'T34 G7 a removed record that another has taken since is reported as taken over',
    async play(stage) {
      const deleteName = hookOf(stage.world, 'deleteName')
      const [ada, bob] = await stage.two()
      const lost = await ada.take('x')
      await deleteName('x')
      const held = await bob.take('x')
      assert.deepEqual(await ada.stayAlive({ held: [lost] }), [
        { attempt: lost.attempt, reason: 'taken-over' },
      ])
      assert(await bob.holds(held))
    },
  },
  {
    rule: 'C151',
    title: 'T31 a keep-alive that lists what was never granted, or was released, does not create it',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const released = await ada.take('x')
      await ada.release(released)
      const never = request('y')
      const lost = await ada.stayAlive({ held: [released, never], waiting: [request('z')] })
      assert.equal(lost.length, 3)
      assert.deepEqual(await stage.list(), [])
      const taken = await bob.take('x')
      assert.equal((await ada.stayAlive({ held: [released] }))[0]?.reason, 'taken-over')
      assert(await bob.holds(taken))
    },
  },
  {
    rule: 'C152',
    title: 'a keep-alive never removes what it does not list',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      assert.deepEqual(await ada.stayAlive({ held: [y] }), [])
      assert.deepEqual(await ada.stayAlive(), [])
      await bob.expectBusy('x')
      assert.equal(await ada.release(x), 'released')
      assert.equal(await ada.release(y), 'released')
    },
  },
  {
    rule: 'C210',
    title:
      'T73 a keep-alive names what the session has besides: held or waited for, and nothing that is over',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const [x, y, over, given] = [
        await ada.take('x'),
        await ada.take('y'),
        await ada.take('z'),
        await ada.take('w'),
      ]
      await bob.take('busy')
      await ada.release(over)
      await ada.abandon(given)
      const expected = [y.attempt]
      if (ada.session.enqueue !== undefined) expected.push((await ada.line('busy')).request.attempt)
      const kept = await ada.keepAlive({ held: [x] })
      assert(kept.kind === 'alive')
      assert.deepEqual(kept.unlisted.map((claim) => claim.attempt).toSorted(), expected.toSorted())
      assert(kept.unlisted.every((claim) => claim.name === (claim.attempt === y.attempt ? 'y' : 'busy')))
    },
  },
])
