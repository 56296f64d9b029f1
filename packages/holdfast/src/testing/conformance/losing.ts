/** How a holder learns that it has lost something, and that it has lost nothing else. */
import assert from 'node:assert/strict'
import { publicIdOf } from '../../base/ids.ts'
import type { Grant, HolderState } from '../../spi.ts'
import {
  type Actor,
  expectAlive,
  hookOf,
  isNotApplied,
  Operator,
  operatorCall,
  permits,
  request,
  shared,
  tokenOf,
  topic,
} from './toolbox.ts'

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
      const released = await bob.operator.force('x', ({ holder }) => holder === 'ada')
      assert.equal(released, 2)
      assert.deepEqual([await ada.holds(one), await ada.holds(two)], [false, false])
      await bob.expectHolding(three)
    },
  },
  {
    rule: 'C141',
    title: 'T74 a holder is released by its token, and only that one',
    needs: ['fencing'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      const isMeant = ({ token }: HolderState) => token === tokenOf(x)
      assert.equal(await bob.operator.force('y', isMeant), 0)
      assert.equal(await bob.operator.force('x', isMeant), 1)
      assert.deepEqual([await ada.holds(x), await ada.holds(y)], [false, true])
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
      assert.equal(await ada.operator.force('s'), 2)
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
      const { backend, operator } = await stage.actor()
      assert.equal(await operator.force('x', ({ token }) => token === tokenOf(old)), 0)
      assert.equal(await operator.force('x', ({ holder }) => holder === 'ada'), 0)
      const ids = [publicIdOf(old.attempt)]
      assert.equal(await backend.forceRelease('x', ids, 'stuck', operatorCall()), 0)
      await bob.expectHolding(held)
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
    },
  },
  {
    rule: 'C144',
    title: 'a force release of a name without holders releases nothing and leaves nothing',
    async play(stage) {
      const backend = await stage.client()
      assert.equal(await new Operator(backend).force('never'), 0)
      assert.equal(await backend.forceRelease('never', ['no such id'], 'stuck', operatorCall()), 0)
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C145',
    title: 'G3 T34 a holder that was released by force learns it, with the reason, at its next keep-alive',
    touches: 'client',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const [x, y] = [await ada.take('x'), await ada.take('y')]
      await bob.operator.force('x')
      const lost = await ada.stayAlive({ held: [x, y] })
      const detail = 'an operator said so'
      assert.deepEqual(lost, [{ attempt: x.attempt, reason: 'force-released', detail }])
      await ada.expectHolding(y)
    },
  },
  {
    rule: 'C146',
    title: 'G7 what a force-released holder does later does not touch its successor',
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const lost = await ada.take('x')
      await eve.operator.force('x')
      const held = await bob.take('x')
      assert.equal((await ada.stayAlive({ held: [lost] }))[0]?.reason, 'force-released')
      assert.equal(await ada.release(lost), 'not-held')
      await ada.abandon(lost)
      await bob.expectHolding(held)
      await eve.expectBusy('x')
    },
  },
  {
    rule: 'C147',
    title: 'G10 a force release hands the name to the first waiter, and leaves the queue alone',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      await ada.take('x')
      const [first, second] = [await bob.enqueue('x'), await eve.enqueue('x')]
      assert.equal(await eve.operator.force('x'), 1)
      await first.granted()
      await stage.quiet()
      assert.equal(second.state, 'waiting')
    },
  },
  {
    rule: 'C148',
    title: 'T110 a holder that was released by force may acquire again, with a new attempt',
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take('x')
      await bob.operator.force('x')
      const again = await ada.take('x')
      assert.deepEqual(await ada.stayAlive({ held: [again] }), [])
    },
  },
  {
    rule: 'C149',
    title:
      'T34 a record that was removed from outside is reported as lost at the next keep-alive, and stays away',
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
      await bob.expectHolding(held)
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
      await bob.expectHolding(taken)
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
    touches: 'client',
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
      if (ada.session.enqueue !== undefined) expected.push((await ada.enqueue('busy')).request.attempt)
      const kept = expectAlive(await ada.keepAlive({ held: [x] }))
      assert.deepEqual(kept.unlisted.map((claim) => claim.attempt).toSorted(), expected.toSorted())
      assert(kept.unlisted.every((claim) => claim.name === (claim.attempt === y.attempt ? 'y' : 'busy')))
    },
  },
  {
    rule: 'C216',
    title:
      'T78 G7 a force release that arrives twice, or late, ends the holders that were seen and no successor',
    async play(stage) {
      const [ada, bob] = [await stage.actor({ holder: 'same' }), await stage.actor({ holder: 'same' })]
      const old = await ada.take('x')
      const { backend } = await stage.actor()
      const ids = (await stage.inspect('x'))?.holders.map(({ id }) => id) ?? []
      assert.deepEqual(ids, [publicIdOf(old.attempt)])
      assert.equal(await backend.forceRelease('x', ids, 'stuck', operatorCall()), 1)
      const held = await bob.take('x')
      assert.equal(await backend.forceRelease('x', ids, 'stuck', operatorCall()), 0)
      await bob.expectHolding(held)
      assert.deepEqual(await bob.stayAlive({ held: [held] }), [])
    },
  },
  {
    rule: 'C217',
    title: 'T78 an operator’s call that arrives after its expiry is refused and changes nothing',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      const seen = await stage.inspect('x')
      assert(seen !== null)
      const late = operatorCall(undefined, seen.atMs - stage.ttlMs)
      const ids = seen.holders.map(({ id }) => id)
      await assert.rejects(ada.backend.forceRelease('x', ids, 'stuck', late), isNotApplied)
      await ada.expectHolding(held)
      assert.deepEqual(await ada.stayAlive({ held: [held] }), [])
    },
  },
  {
    rule: 'C218',
    title: 'T78 a resize that comes twice, or late, does not undo a later one',
    needs: ['permits'],
    async play(stage) {
      const ada = await stage.actor()
      await ada.take(permits('s', 1, 2))
      const { backend } = ada
      assert.equal(await backend.resize('s', { from: 2, to: 3 }, operatorCall()), 'resized')
      assert.equal(await backend.resize('s', { from: 3, to: 4 }, operatorCall()), 'resized')
      assert.equal(await backend.resize('s', { from: 2, to: 3 }, operatorCall()), 'changed')
      const seen = await stage.inspect('s')
      assert.equal(seen?.capacity, 4)
      const late = operatorCall(undefined, seen.atMs - stage.ttlMs)
      await assert.rejects(backend.resize('s', { from: 4, to: 3 }, late), isNotApplied)
      assert.equal((await stage.inspect('s'))?.capacity, 4)
      assert.equal(await backend.resize('unused', { from: 2, to: 3 }, operatorCall()), 'changed')
    },
  },
  {
    rule: 'C219',
    title: 'T78 a forget that comes twice, or late, does not remove what a later holder left',
    needs: ['data'],
    async play(stage) {
      const ada = await stage.actor()
      const leave = async (data: string) => {
        const held = await ada.take('x')
        await ada.setData(held, data)
        await ada.release(held)
      }
      const { backend } = ada
      await leave('first')
      assert.equal(await backend.forget('x', 'first', operatorCall()), 'forgotten')
      assert.equal(await backend.forget('x', 'first', operatorCall()), 'changed')
      await leave('second')
      assert.equal(await backend.forget('x', 'first', operatorCall()), 'changed')
      const seen = await stage.inspect('x')
      assert.equal(seen?.data, 'second')
      const late = operatorCall(undefined, seen.atMs - stage.ttlMs)
      await assert.rejects(backend.forget('x', 'second', late), isNotApplied)
      assert.equal((await stage.inspect('x'))?.data, 'second')
    },
  },
  {
    rule: 'C220',
    title: 'T84 a late copy of an acquire after a deletion does not bring the old lease back',
    async play(stage) {
      const deleteName = hookOf(stage.world, 'deleteName')
      const [ada, bob] = await stage.two()
      const asked = request('x')
      const lost = await ada.take(asked)
      await deleteName('x')
      await bob.release(await bob.take('x'))
      // The copy is late: an engine may tell grants apart by its clock.
      await stage.passTime(2)
      const again = await ada.take(asked)
      assert.notEqual(again.grantId, lost.grantId)
      await expectSecondGrant(ada, lost, again)
    },
  },
  {
    rule: 'C225',
    title:
      'T84 an attached client that names the old grant has lost it too, and its release leaves the new one',
    async play(stage) {
      const deleteName = hookOf(stage.world, 'deleteName')
      const ada = await stage.actor()
      const asked = request('x')
      const lost = await ada.take(asked)
      await deleteName('x')
      await stage.passTime(2)
      const again = await ada.take(asked)
      // Each says nothing else before: an engine may have to learn first how to tell grants apart.
      const [heir, other] = [await stage.attach(ada), await stage.attach(ada)]
      assert(heir !== null && other !== null)
      assert.deepEqual(await other.stayAlive({ held: [lost] }), [
        { attempt: lost.attempt, reason: 'deleted' },
      ])
      assert.equal(await heir.release(lost), 'not-held')
      await heir.expectHolding(again)
      assert.deepEqual(await heir.stayAlive({ held: [again] }), [])
      assert.equal(await heir.release(again), 'released')
    },
  },
  {
    rule: 'C221',
    title: 'T84 T73 a late copy of an acquire after the release is another grant, and core is told of it',
    async play(stage) {
      const ada = await stage.actor()
      const asked = request('x')
      const released = await ada.take(asked)
      assert.equal(await ada.release(released), 'released')
      await stage.passTime(2)
      const again = await ada.try(asked)
      // An engine that remembers the release refuses the copy.
      if (again.kind === 'busy') return
      assert(again.kind === 'granted' && again.grant.grantId !== released.grantId)
      await expectSecondGrant(ada, released, again.grant)
    },
  },
  {
    rule: 'C226',
    title:
      'T84 a late copy of an acquire after the claim was not renewed for a TTL: what the keep-alive says is so',
    async play(stage) {
      const ada = await stage.mortal()
      const asked = request('x')
      const first = await ada.take(asked)
      // The session lives on. Where claims have a time of their own, this one ends.
      for (let third = 0; third < 4; third++) {
        await stage.passTime(ada.session.ttlMs / 3)
        await ada.stayAlive()
      }
      const again = await ada.take(asked)
      const lost = await ada.stayAlive({ held: [first] })
      assert.equal(lost.length, again.grantId === first.grantId ? 0 : 1)
      assert.deepEqual(await ada.stayAlive({ held: [again] }), [])
    },
  },
  {
    rule: 'C222',
    title: 'T84 the same for a copy that waits: the holder under the old grant has lost it',
    needs: ['queue', 'shared'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const asked = shared('x')
      const released = await ada.take(asked)
      await ada.release(released)
      const blocking = await bob.take('x')
      const copy = await ada.enqueue(asked)
      const kept = expectAlive(await ada.keepAlive({ held: [released] }))
      assert.deepEqual(
        kept.lost.map(({ attempt }) => attempt),
        [released.attempt],
      )
      assert.deepEqual(kept.granted, [])
      await ada.abandon(asked)
      await copy.ends('rejected')
      await bob.release(blocking)
    },
  },
])

/** The engine has `again` for an attempt that also had `lost`, and only `again` counts. */
async function expectSecondGrant(ada: Actor, lost: Grant, again: Grant): Promise<void> {
  const kept = expectAlive(await ada.keepAlive({ held: [lost] }))
  assert.deepEqual(kept.lost, [{ attempt: lost.attempt, reason: 'deleted' }])
  assert.deepEqual(
    kept.unlisted.map(({ attempt }) => attempt),
    [again.attempt],
    'core is told what to abandon',
  )
  if (ada.session.setData !== undefined) assert.equal(await ada.setData(lost, 'stale'), 'not-held')
  assert.equal(await ada.release(lost), 'not-held')
  assert.deepEqual(await ada.stayAlive({ held: [again] }), [])
  assert.equal(await ada.release(again), 'released')
}
