/** The engine's own queue: first come, first served, one wake-up for each grant. */
import assert from 'node:assert/strict'
import { call, hookOf, type QueuedCall, request, type Stage, topic } from './toolbox.ts'

export const queueCases = topic('waiting in the queue', [
  {
    rule: 'C67',
    title: 'T26 a free name is granted to an enqueue at once, and no caller is told to wait',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const wait = await (await stage.actor()).enqueue('x')
      await wait.granted()
      assert.equal(wait.queued, 0)
    },
  },
  {
    rule: 'C68',
    title: 'a waiter is told once that it has to wait, and shown in the queue',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take('x')
      const wait = await bob.enqueue('x')
      await stage.eventually('the waiter is told', () => wait.queued > 0)
      await stage.quiet()
      assert.equal(wait.queued, 1)
      assert.deepEqual(
        (await stage.inspect('x'))?.waiters.map((waiter) => waiter.id),
        [wait.id],
      )
    },
  },
  {
    rule: 'C69',
    title: 'G8 waiters of several clients are granted in the order of their arrival',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      let held = await ada.take('x')
      const arrivals = [bob, eve, ada, eve, bob]
      const waits = []
      for (const actor of arrivals) waits.push(await actor.enqueue('x'))
      let holder = ada
      for (const [index, wait] of waits.entries()) {
        await holder.release(held)
        held = await wait.granted()
        await stage.quiet()
        for (const later of waits.slice(index + 1)) assert.equal(later.state, 'waiting')
        holder = arrivals[index] ?? ada
      }
    },
  },
  {
    rule: 'C70',
    title: 'G9 T28 a release wakes exactly one of many waiters, the first',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const waits = []
      for (let index = 0; index < 20; index++) waits.push(await (index % 2 ? bob : eve).enqueue('x'))
      await ada.release(held)
      const [first, ...others] = waits
      await first?.granted()
      await stage.quiet()
      expectAllWaiting(others)
      assert.equal((await stage.inspect('x'))?.waiters.length, 19)
    },
  },
  {
    rule: 'C71',
    title: 'G9 a release costs as many commands with many waiting as with few',
    touches: 'client',
    needs: ['queue'],
    play: releaseCostsTheSame,
  },
  {
    rule: 'C72',
    title: 'G8 a position in the queue is idempotent in the attempt: asked again, it is the same position',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const asked = request('x')
      await bob.enqueue(asked)
      const behind = await eve.enqueue('x')
      const again = await bob.enqueue(asked)
      assert.deepEqual(
        (await stage.inspect('x'))?.waiters.map((waiter) => waiter.id),
        [again.id, behind.id],
      )
      await ada.release(held)
      const granted = await again.granted()
      assert.equal(await bob.release(granted), 'released')
      await behind.granted()
    },
  },
  {
    rule: 'C73',
    title: 'an enqueue of an attempt that already holds answers with the same grant',
    needs: ['queue'],
    async play(stage) {
      const ada = await stage.actor()
      const asked = request('x')
      const held = await ada.take(asked)
      const again = await (await ada.enqueue(asked)).granted()
      assert.equal(again.token, held.token)
      assert.equal((await stage.inspect('x'))?.holders.length, 1)
    },
  },
  {
    rule: 'C74',
    title: 'a try of an attempt that waits keeps its position, and is granted when it is first',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const asked = request('x')
      const wait = await bob.enqueue(asked)
      await bob.expectBusy(asked)
      assert.equal((await stage.inspect('x'))?.waiters.length, 1)
      await ada.release(held)
      const pushed = await wait.granted()
      assert.equal((await bob.take(asked)).token, pushed.token)
    },
  },
  {
    rule: 'C75',
    title: 'T19 a release between a failed try and the enqueue is not missed',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      for (let round = 0; round < 10; round++) {
        const held = await ada.take('x')
        await bob.expectBusy('x')
        const releasing = stage.start(ada.release(held))
        const granted = await (await bob.enqueue('x')).granted()
        assert.equal(await releasing, 'released')
        await bob.release(granted)
      }
    },
  },
  {
    rule: 'C76',
    title: 'G8 a try does not overtake the queue',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const wait = await bob.enqueue('x')
      const [, tried] = await Promise.all([ada.release(held), eve.try('x')])
      assert.equal(tried.kind, 'busy')
      await wait.granted()
    },
  },
  {
    rule: 'C77',
    title: 'G1 T70 attempts of one session wait for each other like strangers',
    needs: ['queue'],
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      const [first, second] = [await ada.enqueue('x'), await ada.enqueue('x')]
      await stage.quiet()
      assert.equal(first.state, 'waiting')
      await ada.release(held)
      const next = await first.granted()
      await stage.quiet()
      assert.equal(second.state, 'waiting')
      await ada.release(next)
      await second.granted()
    },
  },
  {
    rule: 'C78',
    title: 'T21 waiters for one name do not hold up those for another',
    touches: 'client',
    needs: ['queue'],
    play: crowdedNeighbour,
  },
  {
    rule: 'C79',
    title: 'an enqueue in a session that is gone says so',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [bob, ada] = await stage.mortalAndOne()
      await ada.close()
      await (await ada.enqueue('x')).ends('session-gone')
      await stage.outlive(bob)
      await (await bob.enqueue('x')).ends('session-gone')
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C207',
    title: 'T19 a waiter learns of a release by the means that the engine declares',
    touches: 'client',
    play: learnsOfRelease,
  },
])

/**
 * By a real clock clients also send commands of their own accord: they poll, and more often if the machine is slow. So
 * the cheapest of several rounds counts, and what is left of such commands may differ by less than a quarter of what it
 * would cost to ask or to wake all waiters.
 */
async function releaseCostsTheSame(stage: Stage): Promise<void> {
  const [few, many, rounds] = [2, 40, 10]
  let [withFew, withMany] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
  for (let round = 1; round <= rounds; round++) {
    withFew = Math.min(withFew, await costOfRelease(stage, `${few} wait in round ${round}`, few))
    withMany = Math.min(withMany, await costOfRelease(stage, `${many} wait in round ${round}`, many))
    if (withMany - withFew < (many - few) / 4) return
  }
  assert.fail(`a release costs ${withFew} commands while ${few} wait, and ${withMany} while ${many} wait`)
}

async function costOfRelease(stage: Stage, name: string, waiters: number): Promise<number> {
  const countCommands = hookOf(stage.world, 'countCommands')
  const [ada, bob] = await stage.two()
  const held = await ada.take(name)
  const waits = []
  for (let index = 0; index < waiters; index++) waits.push(await bob.enqueue(name))
  await stage.quiet()
  const before = await countCommands()
  await ada.release(held)
  await stage.quiet()
  const cost = (await countCommands()) - before
  await waits[0]?.granted()
  await bob.close()
  return cost
}

async function learnsOfRelease(stage: Stage): Promise<void> {
  const [ada, bob] = await stage.two()
  const held = await ada.take('x')
  const wait = bob.session.enqueue === undefined ? undefined : await bob.enqueue('x')
  await stage.quiet()
  await ada.release(held)
  const next = wait === undefined ? await bob.take('x') : await wait.granted()
  await bob.expectHolding(next)
}

async function crowdedNeighbour(stage: Stage): Promise<void> {
  const [ada, bob] = await stage.two()
  await ada.take('crowded')
  const crowd = await Promise.all(Array.from({ length: 40 }, () => bob.enqueue('crowded')))
  const held = await ada.take('calm')
  const calm = await bob.enqueue('calm')
  await ada.release(held)
  await calm.granted()
  await bob.session.keepAlive({ held: [], waiting: crowd.map((wait) => wait.request) }, call())
  expectAllWaiting(crowd)
}

function expectAllWaiting(waits: readonly QueuedCall[]): void {
  const states = waits.map(({ state }) => state)
  assert.deepEqual(
    states.filter((state) => state !== 'waiting'),
    [],
  )
}
