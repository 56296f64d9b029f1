/** Messages that are lost on the way between a client and the members. */
import assert from 'node:assert/strict'
import { Cancellation } from '../../base/cancellation.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { call, request } from '../conformance/requests.ts'
import { enqueued } from '../enqueued.ts'
import { clusterTopic, granted, refused, unavailable, unknown } from './case.ts'

export const networkCases = clusterTopic('the network', [
  {
    rule: 'M1',
    title: 'T15 T73 G6 an acquire whose reply is lost is unknown, and leaves nothing once abandoned',
    async play(stage) {
      const session = await stage.session(await stage.throughDoors())
      for (const { door } of stage.members) door.dropAnswers()
      const asked = request('x')
      const given = new Cancellation()
      const lost = unknown(session.tryAcquire(asked, given))
      await stage.until('it is granted', async () => (await stage.inspect('x'))?.holders.length === 1)
      given.cancel(new Error('given up'))
      await lost
      for (const { door } of stage.members) door.heal()
      await stage.answered(() => session.abandon(asked, call()))
      assert.equal(await stage.inspect('x'), null)
      // A copy of the request that was on its way all the time.
      await refused(session.tryAcquire(asked, call()))
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'M2',
    title: 'T13 a release whose reply is lost says unknown, and asked again says the truth',
    async play(stage) {
      const session = await stage.session(await stage.throughDoors())
      const grant = granted(await session.tryAcquire(request('x'), call()))
      for (const { door } of stage.members) door.dropAnswers()
      const given = new Cancellation()
      const lost = unknown(session.release(grant, { keepForMs: 0 }, given))
      await stage.until('it is released', async () => (await stage.inspect('x')) === null)
      given.cancel(new Error('given up'))
      await lost
      for (const { door } of stage.members) door.heal()
      const again = await stage.answered(() => session.release(grant, { keepForMs: 0 }, call()))
      assert.equal(again, 'not-held')
    },
  },
  {
    rule: 'M3',
    title: 'G1 T98 a join whose answer is lost is asked again at another member, and finds its own grant',
    needs: ['asking-again'],
    async play(stage) {
      const session = await stage.session(await stage.throughDoors())
      stage.first.door.dropAnswers()
      const grant = granted(await session.tryAcquire(request('x'), call()))
      const { holders } = (await stage.inspect('x')) ?? { holders: [] }
      assert.deepEqual(
        holders.map(({ token }) => token),
        [grant.token],
      )
      assert.equal(await session.release(grant, { keepForMs: 0 }, call()), 'released')
    },
  },
  {
    rule: 'M4',
    title: 'G11 T13 a release whose answer is lost is unknown, because its copy finds nothing to release',
    needs: ['asking-again'],
    async play(stage) {
      const session = await stage.session(await stage.throughDoors())
      const grant = granted(await session.tryAcquire(request('x'), call()))
      stage.first.door.dropAnswers()
      await unknown(session.release(grant, { keepForMs: 0 }, call()))
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'M5',
    title: 'G10 cut off from one member, a client goes on with the next',
    async play(stage) {
      const locker = stage.locker(await stage.throughDoors())
      const held = await locker.acquire('x')
      stage.first.door.blackhole()
      // Over another member, twice.
      await stage.renewed(held)
      await stage.renewed(held)
      assert.equal(await held.release(), 'released')
      await locker.close()
    },
  },
  {
    rule: 'M6',
    title: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline',
    async play(stage) {
      const backend = await stage.throughDoors()
      const locker = stage.locker(backend, 2_000)
      const held = await locker.acquire('x')
      for (const { door } of stage.members) door.blackhole()
      await stage.until('it is lost', () => held.signal.aborted)
      // By its own clock, and not because the engine says so.
      const { reason } = held.signal
      assert(
        isHoldfastError(reason, 'LEASE_LOST') && /^(unreachable|expired)$/.test(reason.reason),
        `${reason}`,
      )
      await unavailable(locker.acquire('y', { waitMs: 300 }))
      for (const { door } of stage.members) door.heal()
      await stage.until('its session ends', async () => (await stage.inspect('x')) === null)
      assert.equal((await locker.acquire('y')).state, 'held')
      await locker.close()
    },
  },
  {
    rule: 'M7',
    title: 'T76 a request that is given up does not count as in flight for ever',
    async play(stage) {
      const session = await stage.session(await stage.world.client([stage.first], 'doors'))
      stage.first.door.hold()
      const given = Array.from({ length: 4 }, (_, index) =>
        unavailable(session.tryAcquire(request(`x${index}`), stage.givenUpAfter(50))),
      )
      await Promise.all(given)
      stage.first.door.heal()
      granted(await session.tryAcquire(request('y'), call()))
    },
  },
  {
    rule: 'M8',
    title: 'T51 a connection that is reset ends neither the process nor the wait',
    async play(stage) {
      const holder = await stage.session(await stage.observer())
      const waiter = await stage.session(await stage.throughDoors())
      const grant = granted(await holder.tryAcquire(request('x'), call()))
      const waiting = enqueued(waiter, request('x'), call())
      await stage.waits('x')
      stage.first.door.cut()
      await holder.release(grant, { keepForMs: 0 }, call())
      granted(await waiting)
    },
  },
])
