/** Events as they happen, to be resumed where one stopped. */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import type { Actor } from './actor.ts'
import { call, request, secretOf, topic } from './toolbox.ts'
import { Watcher } from './watcher.ts'

export const watchingCases = topic('watching', [
  {
    rule: 'C180',
    title: 'an acquire and a release are seen in their order, with id, label and token',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const watcher = await Watcher.start(stage)
      const ada = await stage.actor({ holder: 'ada' })
      const held = await ada.take('x')
      await ada.release(held)
      await watcher.sees('acquired x', 'released x')
      for (const event of watcher.events) {
        assert(event.kind !== 'gap')
        assert.equal(event.id, publicIdOf(held.attempt))
        assert.equal(event.holder, 'ada')
        assert.equal(event.token, held.token)
      }
    },
  },
  {
    rule: 'C181',
    title: 'a queue is seen: waiters, those that give up, and the one that is granted after the release',
    touches: 'client',
    needs: ['watch', 'queue'],
    async play(stage) {
      const watcher = await Watcher.start(stage)
      const [ada, bob, eve] = await stage.three()
      const held = await ada.take('x')
      const waits = [await bob.enqueue('x'), await eve.enqueue('x')]
      assert(waits[0] && waits[1])
      await bob.abandon(waits[0].request)
      await ada.release(held)
      await waits[1].granted()
      await watcher.sees('acquired x', 'waiting x', 'waiting x', 'gave-up x', 'released x', 'acquired x')
    },
  },
  {
    rule: 'C182',
    title: 'an expiry and a force release are told apart from a release',
    touches: 'client',
    needs: ['watch', 'causes'],
    async play(stage) {
      const watcher = await Watcher.start(stage)
      const [bob, ada] = await stage.mortalAndOne()
      await ada.take('x')
      await ada.operator.force('x')
      await bob.take('y')
      await stage.outlive(bob)
      await watcher.sees('acquired x', 'force-released x', 'acquired y', 'expired y')
    },
  },
  {
    rule: 'C183',
    title: 'a watch sees its prefix and its namespace only',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const watcher = await Watcher.start(stage, 'a%')
      const ada = await stage.actor()
      const apart = await stage.actor({ on: await stage.client({ namespace: 'apart' }) })
      await apart.take('a%elsewhere')
      for (const name of ['a', 'ab', 'a%', 'A%', 'a%b', 'b']) await ada.take(name)
      await watcher.sees('acquired a%', 'acquired a%b')
    },
  },
  {
    rule: 'C184',
    title: 'a watcher that comes back with a cursor sees what it missed, or is told that there is a gap',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const first = await Watcher.start(stage)
      const ada = await stage.actor()
      const held = await ada.take('x')
      await first.sees('acquired x')
      await first.stop()
      await ada.release(held)
      await ada.take('y')
      const second = await Watcher.start(stage, '', first.events.at(-1)?.cursor)
      await second.receives(2)
      assert.deepEqual(
        second.story,
        second.story[0] === 'gap' ? ['gap', 'acquired y'] : ['released x', 'acquired y'],
      )
    },
  },
  {
    rule: 'C185',
    title: 'a watcher with an unknown cursor is told of the gap, and then of the current holders',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const ada = await stage.actor()
      await ada.take('x')
      const watcher = await Watcher.start(stage, '', 'not a cursor')
      await watcher.sees('gap', 'acquired x')
      await ada.take('y')
      await watcher.sees('gap', 'acquired x', 'acquired y')
    },
  },
  {
    rule: 'C186',
    title: 'a watch ends quietly when its call is cancelled, and ends with CLOSED when its client ends',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const watcher = await Watcher.start(stage)
      await watcher.stop()
      const client = await stage.client()
      const other = new Watcher(stage, client, '')
      await stage.quiet()
      await client[Symbol.asyncDispose]()
      await stage.eventually('the watch ends', () => other.ended)
      assert(isHoldfastError(other.error, 'CLOSED'), `the watch ended with ${other.error}`)
    },
  },
  {
    rule: 'C187',
    title: 'no event contains a secret',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const watcher = await Watcher.start(stage)
      const ada = await stage.actor()
      const held = await ada.take('x')
      await ada.release(held)
      await watcher.sees('acquired x', 'released x')
      const told = JSON.stringify(watcher.events, (_, value: unknown) =>
        typeof value === 'bigint' ? value.toString() : value,
      )
      for (const secret of [secretOf(held.attempt), ada.session.id])
        assert(!told.includes(secret), `${secret} is a secret, and is told: ${told}`)
    },
  },
  {
    rule: 'C233',
    title: 'a watch tells that data was stored, and for which owner a lease is',
    touches: 'client',
    needs: ['watch', 'data'],
    async play(stage) {
      const watcher = await Watcher.start(stage)
      const ada = await stage.actor()
      const held = await ada.take(request('x', { owner: 'order 7' }))
      await ada.session.setData?.(held, 'a note', call())
      await watcher.sees('acquired x', 'data x')
      for (const event of watcher.events)
        assert(event.kind !== 'gap' && event.id === publicIdOf(held.attempt) && event.owner === 'order 7')
    },
  },
  {
    rule: 'C234',
    title:
      'T82 under load a watch misses nothing, also one that goes on from a cursor, or it says that it did',
    touches: 'client',
    needs: ['watch'],
    async play(stage) {
      const first = await Watcher.start(stage)
      const actors = await Promise.all(Array.from({ length: 4 }, () => stage.actor()))
      const rounds = 25
      const play = async (actor: Actor, number: number, from: number, to: number) => {
        for (let round = from; round < to; round++) {
          const held = await actor.take(`${number}/${round}`)
          await actor.release(held)
        }
      }
      const half = Math.floor(rounds / 2)
      await Promise.all(actors.map((actor, number) => play(actor, number, 0, half)))
      await first.receives(half * 2 * actors.length)
      await first.stop()
      const cursor = first.events.at(-1)?.cursor
      await Promise.all(actors.map((actor, number) => play(actor, number, half, rounds)))
      const second = await Watcher.start(stage, '', cursor)
      const wanted = (rounds - half) * 2 * actors.length
      const hasGap = () => second.events.some(({ kind }) => kind === 'gap')
      await second.receives(wanted, hasGap)
      if (hasGap()) return
      for (const [number] of actors.entries())
        assert.deepEqual(
          [...first.story, ...second.story].filter((event) => event.includes(` ${number}/`)),
          Array.from({ length: rounds }, (_, round) => [
            `acquired ${number}/${round}`,
            `released ${number}/${round}`,
          ]).flat(),
        )
    },
  },
  {
    rule: 'C248',
    title:
      'a watcher that comes back after a long time sees all that it missed, or is told that there is a gap',
    needs: ['watch'],
    async play(stage) {
      const first = await Watcher.start(stage)
      const ada = await stage.actor()
      await ada.release(await ada.take('x'))
      await first.sees('acquired x', 'released x')
      await first.stop()
      await ada.release(await ada.take('x'))
      await stage.beUnwatched()
      const bob = await stage.actor()
      await bob.take('x')
      const second = await Watcher.start(stage, '', first.events.at(-1)?.cursor)
      await second.receives(2)
      await stage.quiet()
      const all = ['acquired x', 'released x', 'acquired x']
      assert.deepEqual(second.story, second.story[0] === 'gap' ? ['gap', 'acquired x'] : all)
    },
  },
])
