/** The engine's own line: first come, first served, one wake-up for each turn. */
import assert from 'node:assert/strict'
import { call, hookOf, type Place, request, type Stage, topic } from './toolbox.ts'

export const queueCases = topic('waiting in the queue', [
  {
    rule: 'C67',
    title: 'T26 a free name is granted to an enqueue at once, and no caller is told to wait',
    needs: ['queue'],
    async play(stage) {
      const place = await (await stage.actor()).line('x')
      await place.granted()
      assert.equal(place.queued, 0)
    },
  },
  {
    rule: 'C68',
    title: 'a waiter is told once that it has to wait, and shown in the queue',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      await ada.take('x')
      const place = await bob.line('x')
      await stage.eventually('the waiter is told', () => place.queued > 0)
      await stage.quiet()
      assert.equal(place.queued, 1)
      assert.deepEqual(
        (await stage.inspect('x'))?.waiters.map((waiter) => waiter.id),
        [place.id],
      )
    },
  },
  {
    rule: 'C69',
    title: 'G8 waiters of several clients are granted in the order of their arrival',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      let held = await ada.take('x')
      const line = [bob, eve, ada, eve, bob]
      const places = []
      for (const actor of line) places.push(await actor.line('x'))
      let holder = ada
      for (const [index, place] of places.entries()) {
        await holder.release(held)
        held = await place.granted()
        await stage.quiet()
        for (const later of places.slice(index + 1)) assert.equal(later.state, 'waiting')
        holder = line[index] ?? ada
      }
    },
  },
  {
    rule: 'C70',
    title: 'G9 T28 a release wakes exactly one of many waiters, the first',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const places = []
      for (let index = 0; index < 20; index++) places.push(await (index % 2 ? bob : eve).line('x'))
      await ada.release(held)
      const [first, ...others] = places
      await first?.granted()
      await stage.quiet()
      expectAllWaiting(others)
      assert.equal((await stage.inspect('x'))?.waiters.length, 19)
    },
  },
  {
    rule: 'C71',
    title: 'G9 a release costs as many commands with many waiting as with few',
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
      await bob.line(asked)
      const behind = await eve.line('x')
      const again = await bob.line(asked)
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
      const again = await (await ada.line(asked)).granted()
      assert.equal(again.token, held.token)
      assert.equal((await stage.inspect('x'))?.holders.length, 1)
    },
  },
  {
    rule: 'C74',
    title: 'a try of an attempt that waits keeps its place, and is granted when its turn has come',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take('x')
      const asked = request('x')
      const place = await bob.line(asked)
      await bob.expectBusy(asked)
      assert.equal((await stage.inspect('x'))?.waiters.length, 1)
      await ada.release(held)
      const pushed = await place.granted()
      assert.equal((await bob.take(asked)).token, pushed.token)
    },
  },
  {
    rule: 'C75',
    title: 'T19 a release between a failed try and the enqueue is not missed',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      for (let round = 0; round < 10; round++) {
        const held = await ada.take('x')
        await bob.expectBusy('x')
        const releasing = stage.start(ada.release(held))
        const granted = await (await bob.line('x')).granted()
        assert.equal(await releasing, 'released')
        await bob.release(granted)
      }
    },
  },
  {
    rule: 'C76',
    title: 'G8 a try does not overtake the line',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const place = await bob.line('x')
      const [, tried] = await Promise.all([ada.release(held), eve.try('x')])
      assert.equal(tried.kind, 'busy')
      await place.granted()
    },
  },
  {
    rule: 'C77',
    title: 'G1 T70 attempts of one session wait for each other like strangers',
    needs: ['queue'],
    async play(stage) {
      const ada = await stage.actor()
      const held = await ada.take('x')
      const [first, second] = [await ada.line('x'), await ada.line('x')]
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
    needs: ['queue'],
    play: crowdedNeighbour,
  },
  {
    rule: 'C79',
    title: 'an enqueue in a session that is gone says so',
    needs: ['queue'],
    async play(stage) {
      const [bob, ada] = await stage.mortalAndOne()
      await ada.close()
      await (await ada.line('x')).ends('session-gone')
      await stage.outlive(bob)
      await (await bob.line('x')).ends('session-gone')
      assert.deepEqual(await stage.list(), [])
    },
  },
  {
    rule: 'C207',
    title: 'T19 a waiter learns of a release by the means that the engine declares',
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
  const places = []
  for (let index = 0; index < waiters; index++) places.push(await bob.line(name))
  await stage.quiet()
  const before = await countCommands()
  await ada.release(held)
  await stage.quiet()
  const cost = (await countCommands()) - before
  await places[0]?.granted()
  await bob.close()
  return cost
}

async function learnsOfRelease(stage: Stage): Promise<void> {
  const [ada, bob] = await stage.two()
  const held = await ada.take('x')
  const place = bob.session.enqueue === undefined ? undefined : await bob.line('x')
  await stage.quiet()
  await ada.release(held)
  const next = place === undefined ? await bob.take('x') : await place.granted()
  await bob.expectHolding(next)
}

async function crowdedNeighbour(stage: Stage): Promise<void> {
  const [ada, bob] = await stage.two()
  await ada.take('crowded')
  const crowd = await Promise.all(Array.from({ length: 40 }, () => bob.line('crowded')))
  const held = await ada.take('calm')
  const calm = await bob.line('calm')
  await ada.release(held)
  await calm.granted()
  await bob.session.keepAlive({ held: [], waiting: crowd.map((place) => place.request) }, call())
  expectAllWaiting(crowd)
}

function expectAllWaiting(places: readonly Place[]): void {
  const states = places.map(({ state }) => state)
  assert.deepEqual(
    states.filter((state) => state !== 'waiting'),
    [],
  )
}
