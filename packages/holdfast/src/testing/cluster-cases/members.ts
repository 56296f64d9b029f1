/** Members that are stopped, killed, cut off and restarted while leases are held and waiters are queued. */
import assert from 'node:assert/strict'
import { Cancellation } from '../../base/cancellation.ts'
import { defaults } from '../../base/defaults.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { call, request } from '../conformance/requests.ts'
import { type ClusterCaseBody, type ClusterMember, clusterTopic, granted, unavailable } from './case.ts'

const gone: Readonly<Record<'pause' | 'kill', (leader: ClusterMember) => Promise<void>>> = {
  pause: (leader) => leader.pause(),
  kill: (leader) => leader.kill(),
}

function leaderIsGone(rule: string, how: 'pause' | 'kill'): ClusterCaseBody {
  return {
    rule,
    title: `G1 G10 the leader is gone (${how}) while a lease is held and another waits: it stays held, and then goes to the waiter`,
    async play(stage) {
      const leader = await stage.world.leader()
      const holder = stage.locker(await stage.beginningAt(leader))
      const waiter = stage.locker(await stage.beginningAt(leader))
      const held = await holder.acquire('x')
      let isGranted = false
      const waiting = waiter.acquire('x').finally(() => {
        isGranted = true
      })
      await stage.waits('x')
      await gone[how](leader)
      await stage.renewed(held)
      assert.equal(isGranted, false)
      // A request that the stopped member has got is unknown, and is made certain in the background.
      assert.match(await held.release(), how === 'kill' ? /^released$/ : /^(released|unknown)$/)
      const taken = await waiting
      assert(taken.fence.token > held.fence.token, 'a later token is larger')
      await (how === 'pause' ? leader.resume() : leader.restart())
      await taken.release()
      await Promise.all([holder.close(), waiter.close()])
      assert.deepEqual(await stage.world.remains(), [])
    },
  }
}

function inFlight(rule: string, how: 'pause' | 'kill'): ClusterCaseBody {
  return {
    rule,
    title: `T98 what is in flight when the leader is gone (${how}) is asked again, and answered by its successor`,
    needs: ['asking-again'],
    async play(stage) {
      const { leader, one } = await stage.followers()
      const session = await stage.session(await stage.beginningAt(one))
      const held = granted(await session.tryAcquire(request('held'), call()))
      const keepAlive = () => session.keepAlive({ held: [held], waiting: [] }, call())
      // It gets what is asked now, and does not propose it any more.
      await leader.pause()
      const answers = Promise.all([
        // Within the limit that core gives a call. The engine itself says after a longer time that it has given the request up.
        session.tryAcquire(request('x'), stage.givenUpAfter(defaults.callTimeoutMs)),
        // An answer from before the election does not count (T63, resumed old leaders), and is asked for once more.
        keepAlive().catch(keepAlive),
        session.release(held, { keepForMs: 0 }, call()),
      ])
      if (how === 'kill') await leader.kill()
      const [result, kept, released] = await answers
      const taken = granted(result)
      assert.deepEqual([kept.kind, released], ['alive', 'released'])
      await stage.world.heal()
      // Whatever the old leader still had to propose has come to nothing, or is told.
      const later = await session.keepAlive({ held: [taken], waiting: [] }, call())
      assert(later.kind === 'alive', later.kind)
      assert.deepEqual(later.lost, [])
    },
  }
}

export const memberCases = clusterTopic('members of a cluster', [
  {
    rule: 'M9',
    title:
      'T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count',
    async play(stage) {
      const { leader, one, two } = await stage.followers()
      const session = await stage.session(await stage.world.client([leader], 'direct'), 2_000)
      const others = await stage.world.client([one, two], 'direct')
      granted(await session.tryAcquire(request('x'), call()))
      await leader.pause()
      // They wait in the socket of the stopped leader, which answers when it runs again, before it learns that it was replaced.
      const late = Array.from({ length: 5 }, () =>
        session.keepAlive({ held: [], waiting: [] }, stage.givenUpAfter(20_000)),
      )
      const settled = Promise.allSettled(late)
      await stage.until('the new leader ends the session', async () => !(await others.inspect('x', call())))
      await leader.resume()
      for (const outcome of await settled)
        if (outcome.status === 'fulfilled') assert.equal(outcome.value.kind, 'gone')
        else assert(isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'), `${outcome.reason}`)
    },
  },
  {
    rule: 'M10',
    title:
      'G3 T63 a leader that is cut off from the others answers keep-alives for a while, and they do not count',
    needs: ['partitions'],
    async play(stage) {
      const leader = await stage.world.leader()
      // It holds nothing, so nothing but the session itself is read.
      const session = await stage.session(await stage.world.client([leader], 'direct'))
      await stage.cutOff(leader)
      const given = new Cancellation()
      const kept = unavailable(session.keepAlive({ held: [], waiting: [] }, given))
      // It takes an election time-out until the leader knows that it is alone.
      await stage.until('another leads', async () => (await stage.world.leader()) !== leader)
      given.cancel(new Error('given up'))
      await kept
    },
  },
  leaderIsGone('M11', 'pause'),
  leaderIsGone('M12', 'kill'),
  inFlight('M13', 'pause'),
  inFlight('M21', 'kill'),
  {
    rule: 'M22',
    title: 'G8 G10 the leader is killed while 500 wait: they are granted in their order',
    async play(stage) {
      const leader = await stage.world.leader()
      const holder = stage.locker(await stage.beginningAt(leader))
      const locker = stage.locker(await stage.beginningAt(leader))
      const held = await holder.acquire('x')
      const end = new AbortController()
      const order: string[] = []
      const tokens = [held.fence.token]
      const waiting = Array.from({ length: 500 }, async () => {
        const lease = await locker.acquire('x', { signal: end.signal })
        order.push(lease.id)
        tokens.push(lease.fence.token)
        await lease.release()
      })
      const settled = Promise.allSettled(waiting)
      const queue = await stage.until('all wait', async () => {
        const waiters = (await stage.inspect('x'))?.waiters ?? []
        return waiters.length === 500 && waiters.map(({ id }) => id)
      })
      await leader.kill()
      await held.release()
      await stage.until('many have been granted', () => order.length >= 40)
      assert.deepEqual(order, queue.slice(0, order.length))
      assert.deepEqual(
        tokens,
        tokens.toSorted((a, b) => (a < b ? -1 : 1)),
      )
      end.abort()
      await settled
      await Promise.all([holder.close(), locker.close()])
    },
  },
  {
    rule: 'M14',
    title:
      'G10 a follower is cut off from its leader while a waiter is on it: the waiter goes to another member',
    needs: ['partitions'],
    async play(stage) {
      const { leader, one } = await stage.followers()
      const holder = stage.locker(await stage.beginningAt(leader))
      const waiter = stage.locker(await stage.beginningAt(one))
      const held = await holder.acquire('x')
      const waiting = waiter.acquire('x')
      await stage.waits('x')
      await stage.cutOff(one)
      await held.release()
      const taken = await waiting
      assert.equal(taken.state, 'held')
      await taken.release()
      await Promise.all([holder.close(), waiter.close()])
    },
  },
  {
    rule: 'M15',
    title: 'T56 G11 without a majority a call fails, and is never answered',
    async play(stage) {
      const { leader, one, two } = await stage.followers()
      const backend = await stage.world.client([leader], 'direct')
      const session = await stage.session(backend)
      granted(await session.tryAcquire(request('x'), call()))
      await Promise.all([one.pause(), two.pause()])
      for (const ask of [
        () => backend.inspect('x', stage.givenUpAfter(2_500)),
        () => session.tryAcquire(request('y'), stage.givenUpAfter(2_500)),
        () => session.keepAlive({ held: [], waiting: [] }, stage.givenUpAfter(2_500)),
      ])
        await unavailable(ask())
      await Promise.all([one.resume(), two.resume()])
    },
  },
  {
    rule: 'M16',
    title: 'G2 G13 all members are restarted at once: a lease that is held stays held, and tokens go on',
    async play(stage) {
      const locker = stage.locker(await stage.beginningAt(stage.first), 2.5 * stage.world.ttlMs)
      const held = await locker.acquire('x')
      await Promise.all(stage.members.map((each) => each.kill()))
      await Promise.all(stage.members.map((each) => each.restart()))
      await stage.world.leader()
      assert.equal(await locker.check(held.fence), true)
      assert.equal(await held.release(), 'released')
      const next = await locker.acquire('x')
      assert(next.fence.token > held.fence.token, 'a later token is larger')
      await next.release()
      await locker.close()
    },
  },
])

export const frozenCases = clusterTopic('a frozen member', [
  {
    rule: 'M17',
    title: 'T96 G10 a watch that begins on a frozen member is told events, after another call was given up',
    needs: ['watch'],
    async play(stage) {
      const { leader, one, two } = await stage.followers()
      const backend = await stage.world.client([one, two, leader], 'direct')
      const session = await stage.session(await stage.world.client([leader, two], 'direct'))
      await backend.inspect('x', call())
      await one.pause()
      const end = new Cancellation()
      let isTold = false
      const watched = (async () => {
        for await (const _ of backend.watch?.('', {}, end) ?? []) isTold = true
      })()
      // The connection is left because of this call, while the first read of the watch is in flight on it.
      await unavailable(backend.inspect('x', stage.givenUpAfter(600)))
      await stage.until('an event is told', async () => {
        const result = await session.tryAcquire(request('after'), call())
        if (result.kind === 'granted') await session.release(result.grant, { keepForMs: 0 }, call())
        return isTold
      })
      await one.resume()
      end.cancel(new Error('the case ends'))
      await watched
    },
  },
  {
    rule: 'M18',
    title: 'T96 G10 a waiter on a member that freezes is granted, after another call was given up',
    async play(stage) {
      const { leader, one, two } = await stage.followers()
      const backend = await stage.world.client([one, two, leader], 'direct')
      const holder = stage.locker(await stage.world.client([leader, two], 'direct'))
      const waiter = stage.locker(backend)
      const held = await holder.acquire('x')
      const waiting = waiter.acquire('x')
      await stage.waits('x')
      await one.pause()
      await unavailable(backend.inspect('x', stage.givenUpAfter(600)))
      await held.release()
      const taken = await waiting
      assert.equal(taken.state, 'held')
      await one.resume()
      await taken.release()
      await Promise.all([holder.close(), waiter.close()])
    },
  },
  {
    rule: 'M19',
    title: 'a process can start while the first member is stopped',
    async play(stage) {
      const { leader, one } = await stage.followers()
      await one.pause()
      const session = await stage.session(await stage.world.client([one, leader], 'direct'))
      granted(await session.tryAcquire(request('x'), call()))
      await one.resume()
    },
  },
  {
    rule: 'M20',
    title: 'T96 G13 a lease stays held in a process whose waiters and watcher are on a member that freezes',
    async play(stage) {
      const { leader, one, two } = await stage.followers()
      const backend = await stage.world.client([one, two, leader], 'direct')
      const holder = stage.locker(await stage.world.client([leader, two], 'direct'))
      // One session: its keep-alives are for the lease and for the waiters.
      const locker = stage.locker(backend, stage.world.ttlMs / 2)
      const innocent = await locker.acquire('innocent')
      const names = Array.from({ length: 10 }, (_, index) => `x${index}`)
      const held = await Promise.all(names.map((name) => holder.acquire(name)))
      const waiting = names.map((name) => locker.acquire(name))
      for (const name of names) await stage.waits(name)
      const end = new Cancellation()
      let told = 0
      const watched = (async () => {
        for await (const _ of backend.watch?.('', {}, end) ?? []) told++
      })()
      await backend.inspect('x', call())
      const released = Promise.all(held.map((lease) => lease.release()))
      // It freezes while waiters look.
      await Promise.race(waiting)
      await one.pause()
      await released
      const toldBefore = told
      await unavailable(backend.inspect('x', stage.givenUpAfter(600)))
      await stage.renewed(innocent)
      const taken = await Promise.all(waiting)
      if (backend.watch !== undefined)
        await stage.until('the watcher is told more', async () => {
          await (await holder.acquire('after')).release()
          return told > toldBefore
        })
      await stage.renewed(innocent)
      assert.equal(innocent.state, 'held')
      await one.resume()
      end.cancel(new Error('the case ends'))
      await watched
      await Promise.all([innocent, ...taken].map((lease) => lease.release()))
      await Promise.all([holder.close(), locker.close()])
    },
  },
])
