/** How claims are made, granted and ended. */
import assert from 'node:assert/strict'
import { isEligible } from '../../kit/ordered-store.ts'
import { call, permits, request, shared } from '../conformance/requests.ts'
import { CLOSED_FOR_MS, claimIn, storeTopic } from './case.ts'

export const claimCases = storeTopic('claims', [
  {
    rule: 'S1',
    title: 'G1 the first claim of a name is granted, and later ones see it in their way',
    async play(stage) {
      const [first, second] = [await stage.session(), await stage.session()]
      const held = await stage.take(first, request('x'))
      const waiting = await stage.wait(second, request('x'))
      assert.deepEqual(await stage.holders('x'), [held.attempt])
      assert.equal((await stage.read('x')).claims.length, 2)
      await stage.refusesUnseen(second, waiting)
    },
  },
  {
    rule: 'S2',
    title: 'T70 two attempts of one session exclude each other like strangers',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      await stage.wait(claims, request('x'))
      assert.deepEqual(await stage.holders('x'), [held.attempt])
    },
  },
  {
    rule: 'S3',
    title: 'readers hold together, and a writer waits for all of them',
    async play(stage) {
      const claims = await stage.session()
      const readers = [await stage.take(claims, shared('x')), await stage.take(claims, shared('x'))]
      const writer = await stage.wait(claims, request('x'))
      assert.deepEqual(
        await stage.holders('x'),
        readers.map(({ attempt }) => attempt),
      )
      for (const reader of readers) assert.equal(await claims.release(reader, 0, call()), true)
      await stage.confirm(claims, writer)
    },
  },
  {
    rule: 'S4',
    title: 'a claim joined once more finds its key, and no second one is made',
    async play(stage) {
      const claims = await stage.session()
      await stage.take(claims, request('x'))
      const asked = request('x')
      await stage.wait(claims, asked)
      const again = await claims.join(asked, true, call())
      if (again.kind !== 'refused') assert.fail(`it is ${again.kind}`)
      claimIn(again.name, asked)
      assert.equal((await stage.read('x')).claims.length, 2)
    },
  },
  {
    rule: 'S22',
    title: 'T84 a holder that is joined once more keeps its token',
    async play(stage) {
      const claims = await stage.session()
      const asked = request('x')
      const { token } = await stage.take(claims, asked)
      const again = await claims.join(asked, true, call())
      if (again.kind === 'granted') assert.equal(again.token, token)
      else if (again.kind !== 'refused') assert.fail(`it is ${again.kind}`)
      else
        assert.deepEqual(
          [claimIn(again.name, asked).granted, claimIn(again.name, asked).token],
          [true, token],
        )
      assert.equal((await stage.read('x')).claims.length, 1)
    },
  },
  {
    rule: 'S5',
    title: 'a claim that may not wait leaves no key, or says that it has made one',
    async play(stage) {
      const claims = await stage.session()
      await stage.take(claims, request('x'))
      const asked = request('x')
      const joined = await claims.join(asked, false, call())
      assert.notEqual(joined.kind, 'granted')
      if (joined.kind === 'created') await claims.leave(asked, call())
      assert.equal((await stage.read('x')).claim(asked.attempt), undefined)
    },
  },
  {
    rule: 'S6',
    title: 'T73 a join that arrives after the mark comes to nothing',
    async play(stage) {
      const claims = await stage.session()
      const asked = request('x')
      await claims.mark(asked, call())
      const joined = await claims.join(asked, true, call())
      assert.equal(joined.kind, 'abandoned')
      assert.equal((await stage.read('x')).claims.length, 0)
      assert.equal((await claims.markOf(asked, call()))?.reason, 'abandoned')
    },
  },
  {
    rule: 'S7',
    title: 'G6 with its session, all that a session has ends, and late joins come to nothing',
    async play(stage) {
      const { claims, end } = await stage.sessionThatEnds()
      const other = await stage.session()
      await stage.take(claims, request('x'))
      await stage.wait(other, request('x'))
      await stage.wait(claims, request('x'))
      await end()
      assert.equal((await stage.read('x')).claims.length, 1)
      assert.equal(await claims.isAlive(call()), false)
      assert.equal(await other.isAlive(call()), true)
      const late = await claims.join(request('x'), true, call())
      assert.equal(late.kind, 'session-gone')
      assert.equal(await claims.prolong([], call()), null)
    },
  },
  {
    rule: 'S8',
    title:
      'G8 T92 a waiter in the middle leaves, and the one behind it is not granted before the holder goes',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const middle = await stage.wait(claims, request('x'))
      const last = await stage.wait(claims, request('x'))
      await claims.leave(middle.request, call())
      const queue = (await claims.look(last.request, call())).queue(last.own, last.request.capacity)
      assert.equal(isEligible(queue), false)
      await stage.refusesUnseen(claims, last)
      await claims.release(held, 0, call())
      await stage.confirm(claims, last)
      assert.deepEqual(await stage.holders('x'), [last.request.attempt])
    },
  },
  {
    rule: 'S9',
    title: 'G2 C54 the token of a waiter is drawn at its grant, not at its join',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      const meanwhile = await stage.take(claims, request('y'))
      await claims.release(held, 0, call())
      const token = await stage.confirm(claims, waiting)
      assert(held.token < meanwhile.token && meanwhile.token < token)
      const own = claimIn(await stage.read('x'), waiting.request)
      assert.deepEqual([own.granted, own.token], [true, token])
      assert.deepEqual(await stage.holders('x'), [waiting.request.attempt])
    },
  },
  {
    rule: 'S10',
    title: 'G2 grants that leave together have different tokens',
    async play(stage) {
      const claims = await stage.session()
      const names = ['a', 'b', 'c', 'd', 'e']
      const all = await Promise.all(names.map((name) => stage.take(claims, request(name))))
      assert.equal(new Set(all.map(({ token }) => token)).size, names.length)
    },
  },
  {
    rule: 'S11',
    title: 'T84 a confirm that was meant for an earlier key of the attempt does not grant a later one',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      await claims.leave(waiting.request, call())
      const again = await stage.wait(claims, waiting.request)
      assert.notEqual(again.own.order, waiting.own.order)
      await claims.release(held, 0, call())
      const seen = (await claims.look(again.request, call())).queue(again.own, again.request.capacity)
      await stage.refuses(claims, waiting, seen)
      await stage.confirm(claims, again)
    },
  },
  {
    rule: 'S12',
    title: 'a claim that is confirmed once more keeps its token',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      await claims.release(held, 0, call())
      const token = await stage.confirm(claims, waiting)
      const seen = (await claims.look(waiting.request, call())).queue(waiting.own, waiting.request.capacity)
      const again = await claims.confirm(waiting.request, waiting.own, seen, call())
      assert.equal('kind' in again ? again.token : claimIn(again, waiting.request).token, token)
    },
  },
  {
    rule: 'S13',
    title: 'leave deletes a claim that waits, and none that is granted',
    async play(stage) {
      const claims = await stage.session()
      const [asked, other] = [request('x'), request('x')]
      await stage.take(claims, asked)
      await stage.wait(claims, other)
      await claims.leave(other, call())
      await claims.leave(asked, call())
      assert.deepEqual(await stage.holders('x'), [asked.attempt])
      assert.equal((await stage.read('x')).claims.length, 1)
    },
  },
  {
    rule: 'S14',
    title: 'G7 release names the grant: another grant stays, and the same one is released once',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const other = await stage.take(claims, request('y'))
      assert.equal(await claims.release({ ...held, grantId: other.grantId }, 0, call()), false)
      assert.deepEqual(await stage.holders('x'), [held.attempt])
      assert.equal(await claims.release(held, 0, call()), true)
      assert.equal(await claims.release(held, 0, call()), false)
      assert.equal((await stage.read('x')).claims.length, 0)
    },
  },
  {
    rule: 'S15',
    title: 'a release that keeps the name closed stands in the way of all claims',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      assert.equal(await claims.release(held, 60_000, call()), true)
      assert.equal((await stage.read('x')).isClosed, true)
      const waiting = await stage.wait(await stage.session(), shared('x'))
      assert.deepEqual(await stage.holders('x'), [])
      await stage.refusesUnseen(claims, waiting)
    },
  },
  {
    rule: 'S24',
    title: 'C54 G2 a look derives no grant for a claim that waits, although its blocker has gone',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      await claims.release(held, 0, call())
      const looked = await claims.look(waiting.request, call())
      assert.equal(claimIn(looked, waiting.request).granted, false)
      const own = await claims.held?.({ ...waiting.request, grantId: String(waiting.own.order) }, call())
      assert.notEqual(own?.granted, true)
      assert((await stage.confirm(claims, waiting)) > held.token)
    },
  },
  {
    rule: 'S25',
    title: 'a name that was closed for a time opens by itself, and the waiter learns when, and is granted',
    async play(stage) {
      const [claims, other] = [await stage.session(), await stage.session()]
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(other, request('x'))
      assert.equal(await claims.release(held, CLOSED_FOR_MS, call()), true)
      await stage.untilOpen(other, waiting)
      await stage.confirm(other, waiting)
      assert.deepEqual(await stage.holders('x'), [waiting.request.attempt])
      assert.equal((await stage.read('x')).isClosed, false)
    },
  },
  {
    rule: 'S16',
    title: 'G7 remove deletes the claim of the attempt, whether it holds or waits, and no other',
    async play(stage) {
      const claims = await stage.session()
      const [first, second, third] = [request('x'), request('x'), request('x')]
      await stage.take(claims, first)
      await stage.wait(claims, second)
      await stage.wait(claims, third)
      await claims.remove(third, true, call())
      assert.deepEqual(await stage.holders('x'), [first.attempt])
      assert.equal((await stage.read('x')).claims.length, 2)
      await claims.remove(first, true, call())
      assert.deepEqual(
        (await stage.read('x')).claims.map(({ attempt }) => attempt),
        [second.attempt],
      )
    },
  },
  {
    rule: 'S17',
    title: 'data are written under the grant alone, and reach the next holder',
    async play(stage) {
      const claims = await stage.session()
      const held = await stage.take(claims, request('x'))
      const own = claimIn(await stage.read('x'), { ...request('x'), attempt: held.attempt })
      const record = { data: 'left', id: own.id, holder: 'ada', token: held.grantId }
      assert.equal(await claims.putData(own, record, call()), true)
      const next = await stage.wait(claims, request('x'))
      await claims.release(held, 0, call())
      await stage.confirm(claims, next)
      assert.equal((await stage.read('x')).data?.data, 'left')
      assert.equal(await claims.putData(own, { ...record, data: 'late' }, call()), false)
      assert.equal((await stage.read('x')).data?.data, 'left')
    },
  },
  {
    rule: 'S23',
    title: 'G7 a session does not touch the claim of another one',
    async play(stage) {
      const [claims, other] = [await stage.session(), await stage.session()]
      const asked = request('x')
      const held = await stage.take(claims, asked)
      const own = claimIn(await stage.read('x'), asked)
      const record = { data: 'forged', id: own.id, holder: 'bob', token: held.grantId }
      assert.equal(await other.putData(own, record, call()), false)
      assert.equal(await other.release(held, 0, call()), false)
      await other.remove(asked, true, call())
      assert.deepEqual(await stage.holders('x'), [asked.attempt])
      assert.equal((await stage.read('x')).data, undefined)
    },
  },
  {
    rule: 'S18',
    title: 'a prolongation tells which grants are lost, and counts from before it was sent',
    async play(stage) {
      const claims = await stage.session()
      const [kept, lost] = [await stage.take(claims, request('x')), await stage.take(claims, request('y'))]
      await claims.release(lost, 0, call())
      const other = { ...kept, grantId: lost.grantId }
      const prolonged = await claims.prolong([kept, lost], call())
      assert.deepEqual(
        prolonged?.lost.map(({ attempt }) => attempt),
        [lost.attempt],
      )
      assert.deepEqual((await claims.prolong([other], call()))?.lost.length, 1)
    },
  },
  {
    rule: 'S19',
    title: 'T73 what a session has besides is found, if the store can list it',
    async play(stage) {
      const claims = await stage.session()
      const [known, unknown] = [request('x'), request('y')]
      await stage.take(claims, known)
      await stage.take(claims, unknown)
      const found = await claims.claimsBesides?.(new Set([known.attempt]), call())
      const attempts = found?.map(({ name, attempt }) => [name, attempt])
      assert.deepEqual(attempts ?? [['y', unknown.attempt]], [['y', unknown.attempt]])
    },
  },
  {
    rule: 'S26',
    title: 'T73 all that a session has is told by a prolongation or found, whether it holds or waits',
    async play(stage) {
      const [claims, other] = [await stage.session(), await stage.session()]
      const [holds, waits] = [request('x'), request('y')]
      await stage.take(claims, holds)
      await stage.take(other, request('y'))
      await stage.wait(claims, waits)
      const prolonged = await claims.prolong([], call())
      const found = prolonged?.besides ?? (await claims.claimsBesides?.(new Set(), call()))
      const attempts = found?.map(({ name, attempt }) => [name, attempt]).toSorted()
      const all = [holds, waits].map(({ name, attempt }) => [name, attempt])
      assert.deepEqual(attempts ?? all, all)
    },
  },
  {
    rule: 'S27',
    title: 'T99 a full engine may refuse a mark, and nothing else of giving up; what lands later is found',
    async play(stage) {
      const claims = await stage.session()
      const [asked, late] = [request('x'), request('y')]
      await stage.take(claims, asked)
      const empty = await stage.fill()
      if (empty === undefined) return
      await claims.mark(late, call())
      await claims.remove(late, false, call())
      await claims.remove(asked, true, call())
      assert.deepEqual(await stage.holders('x'), [])
      await empty()
      const joined = await claims.join(late, true, call())
      if (joined.kind === 'abandoned') return
      const prolonged = await claims.prolong([], call())
      const found = prolonged?.besides ?? (await claims.claimsBesides?.(new Set(), call()))
      assert.deepEqual(
        found?.map(({ attempt }) => attempt),
        [late.attempt],
      )
    },
  },
  {
    rule: 'S28',
    title:
      'a session that another process has found goes on with its claims, and is not found when it has gone',
    async play(stage) {
      const { claims, end, find } = await stage.sessionThatEnds()
      const held = await stage.take(claims, request('x'))
      const waiting = await stage.wait(claims, request('x'))
      const found = await find()
      assert(found !== null, 'the session is found')
      assert.equal(await found.isAlive(call()), true)
      assert.deepEqual((await found.prolong([held], call()))?.lost, [])
      assert.equal(await found.release(held, 0, call()), true)
      await stage.confirm(found, waiting)
      assert.deepEqual(await stage.holders('x'), [waiting.request.attempt])
      await end()
      assert.equal(await find(), null)
    },
  },
  {
    rule: 'S20',
    title: 'permits are granted while they fit, in the order of the queue',
    async play(stage) {
      const claims = await stage.session()
      const first = await stage.take(claims, permits('x', 2, 3))
      const second = await stage.wait(claims, permits('x', 2, 3))
      const third = await stage.wait(claims, permits('x', 1, 3))
      await claims.release(first, 0, call())
      await stage.confirm(claims, second)
      await stage.confirm(claims, third)
      assert.equal((await stage.holders('x')).length, 2)
    },
  },
  {
    rule: 'S21',
    title: 'locks and permits do not mix on one name',
    async play(stage) {
      const claims = await stage.session()
      const lock = request('x')
      await stage.take(claims, lock)
      const joined = await claims.join(permits('x', 1, 3), true, call())
      assert(joined.kind === 'refused', 'a claim of the other kind is refused')
      claimIn(joined.name, lock)
    },
  },
])
