/** Many waiters: the limit that a call may set (`maxWaiters`), and what they cost in connections. */
import assert from 'node:assert/strict'
import type { AcquireRequest, EnqueueResult } from '../../spi.ts'
import { enqueued } from '../enqueued.ts'
import type { Actor } from './actor.ts'
import { call, hookOf, request, topic } from './toolbox.ts'

export const manyWaitersCases = topic('many waiters', [
  {
    rule: 'C230',
    title: 'with as many waiters as it allows, a call is refused at once and is not queued',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = [await stage.actor(), await stage.actor(), await stage.actor()]
      const held = await ada.take('x')
      const first = await bob.enqueue(request('x', { maxWaiters: 1 }))
      for (const maxWaiters of [1, 0]) {
        const refused = enqueue(eve, request('x', { maxWaiters }))
        assert.equal((await stage.drive(refused)).kind, 'queue-full')
      }
      assert.deepEqual(
        (await stage.inspect('x'))?.waiters.map(({ id }) => id),
        [first.id],
      )
      // Others set their own limits, or none.
      const second = await eve.enqueue(request('x', { maxWaiters: 2 }))
      await ada.release(held)
      await bob.release(await first.granted())
      await second.granted()
    },
  },
  {
    rule: 'C231',
    title: 'a call with a limit is granted what is free, and finds its own position when it is repeated',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob] = await stage.two()
      const free = enqueue(ada, request('free', { maxWaiters: 0 }))
      assert.equal((await stage.drive(free)).kind, 'granted')
      const held = await ada.take('x')
      const wanted = request('x', { maxWaiters: 1 })
      const wait = await bob.enqueue(wanted)
      const again = await bob.enqueue(wanted)
      assert.equal((await stage.inspect('x'))?.waiters.length, 1)
      await ada.release(held)
      assert.equal((await wait.granted()).attempt, (await again.granted()).attempt)
    },
  },
  {
    rule: 'C232',
    title:
      'of many calls at once, never more than the limit stay queued, and a call that was refused holds nothing',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const ada = await stage.actor()
      const crowd = await Promise.all(Array.from({ length: 4 }, () => stage.actor()))
      const held = await ada.take('x')
      const maxWaiters = 3
      let refused = 0
      const granted: unknown[] = []
      for (const actor of crowd)
        for (let calls = 0; calls < 5; calls++) {
          const wanted = request('x', { maxWaiters })
          stage.start(
            enqueue(actor, wanted).then(({ kind }) => {
              if (kind === 'queue-full') refused++
              else granted.push(kind)
            }),
          )
        }
      await stage.eventually('all but the limit are refused', () => refused >= 20 - maxWaiters)
      const queued = (await stage.inspect('x'))?.waiters ?? []
      assert(queued.length <= maxWaiters, `${queued.length} are queued, ${maxWaiters} are allowed`)
      assert.deepEqual(granted, [])
      await Promise.all(crowd.map((actor) => actor.close()))
      await ada.release(held)
      assert.equal(await stage.inspect('x'), null)
    },
  },
  {
    rule: 'C239',
    title: 'T89 many waiters of one client need few connections',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const countConnections = hookOf(stage.world, 'countConnections')
      const [ada, bob] = await stage.two()
      const names = Array.from({ length: 8 }, (_, index) => `x${index}`)
      for (const name of names) await ada.take(name)
      await bob.enqueue('x0')
      const before = await countConnections()
      const waiters = 60
      await Promise.all(
        Array.from({ length: waiters }, (_, index) => bob.enqueue(`x${index % names.length}`)),
      )
      await stage.quiet()
      const more = (await countConnections()) - before
      assert(more <= waiters / 4, `${waiters} waiters took ${more} connections more`)
    },
  },
])

function enqueue(actor: Actor, wanted: AcquireRequest): Promise<EnqueueResult> {
  return enqueued(actor.session, wanted, call())
}
