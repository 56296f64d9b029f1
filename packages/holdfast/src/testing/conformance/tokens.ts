/** Tokens strictly increase in grant order, over all names and whatever happens to them (G2). */
import assert from 'node:assert/strict'
import type { Actor } from './toolbox.ts'
import { hookOf, type Stage, shared, tokenOf, topic } from './toolbox.ts'

/** Remembers the highest token, and insists that the next is higher. */
class Rising {
  #last = 0n
  see(token: bigint): void {
    assert(token > this.#last, `token ${token} came after ${this.#last}`)
    this.#last = token
  }
}

async function takeAndRelease(actor: Actor, name: string): Promise<bigint> {
  const held = await actor.take(name)
  assert.equal(await actor.release(held), 'released')
  return tokenOf(held)
}

export const tokenCases = topic('tokens', [
  {
    rule: 'C44',
    title: 'G2 T61 a token is a positive number of at most 63 bits',
    touches: 'client',
    needs: ['fencing'],
    async play(stage) {
      const token = tokenOf(await (await stage.actor()).take('x'))
      assert(token >= 1n && token < 2n ** 63n, `token ${token}`)
    },
  },
  {
    rule: 'C45',
    title: 'G2 T38 tokens of one name increase from holder to holder',
    needs: ['fencing'],
    async play(stage) {
      const rising = new Rising()
      const [ada, bob] = await stage.two()
      for (const actor of [ada, bob, bob, ada, bob, ada]) rising.see(await takeAndRelease(actor, 'x'))
    },
  },
  {
    rule: 'C46',
    title: 'G2 tokens increase over all names together',
    needs: ['fencing'],
    async play(stage) {
      const rising = new Rising()
      const [ada, bob] = await stage.two()
      for (const name of ['x', 'y', 'x', 'a/b', 'z']) {
        rising.see(await takeAndRelease(ada, name))
        rising.see(await takeAndRelease(bob, name))
      }
    },
  },
  {
    rule: 'C47',
    title: 'G2 a token increases over an expiry',
    needs: ['fencing'],
    async play(stage) {
      const rising = new Rising()
      const [ada, bob] = await stage.mortalAndOne()
      rising.see(tokenOf(await ada.take('x')))
      await stage.outlive(ada)
      rising.see(tokenOf(await bob.take('x')))
    },
  },
  {
    rule: 'C48',
    title: 'G2 T38 a token increases over the name being forgotten, and over the engine being empty',
    needs: ['fencing', 'data'],
    async play(stage) {
      const rising = new Rising()
      const ada = await stage.actor()
      const held = await ada.take('x')
      rising.see(tokenOf(held))
      await ada.setData(held, 'a note')
      await ada.release(held)
      assert.equal(await ada.operator.forget('x'), 'forgotten')
      await ada.close()
      assert.deepEqual(await stage.list(), [])
      rising.see(await takeAndRelease(await stage.actor(), 'x'))
    },
  },
  {
    rule: 'C49',
    title: 'G2 T38 tokens increase over the end of all clients',
    touches: 'client',
    needs: ['fencing'],
    async play(stage) {
      const rising = new Rising()
      for (let round = 0; round < 3; round++) {
        const ada = await stage.actor()
        rising.see(await takeAndRelease(ada, 'x'))
        await ada.backend[Symbol.asyncDispose]()
      }
    },
  },
  {
    rule: 'C50',
    title: 'G2 T38 tokens increase over a restart of the engine',
    touches: 'client',
    needs: ['fencing'],
    async play(stage) {
      const restart = hookOf(stage.world, 'restart')
      const rising = new Rising()
      rising.see(tokenOf(await (await stage.actor()).take('x')))
      await restart()
      rising.see(tokenOf(await (await stage.actor()).take('y')))
    },
  },
  {
    rule: 'C51',
    title: 'G2 T38 T36 a token increases over a deletion of the record by another client',
    needs: ['fencing'],
    async play(stage) {
      const deleteName = hookOf(stage.world, 'deleteName')
      const rising = new Rising()
      const [ada, bob] = await stage.two()
      rising.see(tokenOf(await ada.take('x')))
      await deleteName('x')
      rising.see(tokenOf(await bob.take('x')))
    },
  },
  {
    rule: 'C52',
    title: 'G2 grants at once, from several clients, all have different tokens',
    touches: 'client',
    needs: ['fencing'],
    async play(stage) {
      const actors = await stage.actors(4)
      const names = Array.from({ length: 60 }, (_, index) => `item ${index}`)
      const grants = await Promise.all(names.map((name, index) => actorAt(actors, index).take(name)))
      const tokens = new Set(grants.map(tokenOf))
      assert.equal(tokens.size, names.length)
      const after = tokenOf(await actorAt(actors, 0).take('after'))
      for (const token of tokens) assert(token < after, 'what was granted later has the higher token')
    },
  },
  {
    rule: 'C53',
    title: 'G2 T37 the token is drawn with the grant: under contention no successor has a lower one',
    needs: ['fencing'],
    play: raceForTokens,
  },
  {
    rule: 'C54',
    title: 'G2 T37 tokens increase along a queue of waiters',
    needs: ['fencing', 'queue'],
    async play(stage) {
      const rising = new Rising()
      const [ada, bob, eve] = await stage.three()
      let held = await ada.take('x')
      rising.see(tokenOf(held))
      const waits = [await bob.enqueue('x'), await eve.enqueue('x'), await ada.enqueue('x')]
      const owners = [ada, bob, eve]
      for (const [index, wait] of waits.entries()) {
        // Another client draws a token for another name meanwhile: a position in the queue does not reserve one.
        rising.see(await takeAndRelease(ada, `other ${index}`))
        await actorAt(owners, index).release(held)
        held = await wait.granted()
        rising.see(tokenOf(held))
      }
    },
  },
  {
    rule: 'C55',
    title: 'G2 every shared holder has a token of its own, and the next writer a higher one than all',
    needs: ['fencing', 'shared'],
    async play(stage) {
      const rising = new Rising()
      const [ada, bob, eve] = await stage.three()
      const [one, two] = [await ada.take(shared('x')), await bob.take(shared('x'))]
      rising.see(tokenOf(one))
      rising.see(tokenOf(two))
      await ada.release(one)
      await bob.release(two)
      rising.see(tokenOf(await eve.take('x')))
    },
  },
  {
    rule: 'C56',
    title: 'G2 namespaces of one engine that share an issuer share its order',
    needs: ['fencing'],
    async play(stage) {
      const rising = new Rising()
      const [here, there] = [
        await stage.actor({ on: await stage.client({ namespace: 'here', issuer: 'the bank' }) }),
        await stage.actor({ on: await stage.client({ namespace: 'there', issuer: 'the bank' }) }),
      ]
      for (const actor of [here, there, there, here]) rising.see(await takeAndRelease(actor, 'x'))
    },
  },
])

async function raceForTokens(stage: Stage): Promise<void> {
  const rising = new Rising()
  const actors = await stage.actors(4)
  const turns = async (actor: Actor) => {
    for (let won = 0, tries = 0; won < 8 && tries < 2_000; tries++) {
      const result = await actor.try('x')
      if (result.kind !== 'granted') {
        await new Promise((resolve) => setImmediate(resolve))
        continue
      }
      // Exclusion makes the order in which holders get here the order of their grants.
      rising.see(tokenOf(result.grant))
      won++
      assert.equal(await actor.release(result.grant), 'released')
    }
  }
  await stage.drive(Promise.all(actors.map(turns)))
}

function actorAt(actors: readonly Actor[], index: number): Actor {
  const actor = actors[index % actors.length]
  assert(actor !== undefined)
  return actor
}
