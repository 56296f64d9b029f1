/** Many clients doing everything at once, and a referee. Seeded, so that a failure can be repeated. */
import assert from 'node:assert/strict'
import type { AcquireRequest, Grant } from '../../spi.ts'
import { type Actor, permits, QueuedCall, request, type Stage, shared, topic } from './toolbox.ts'

/**
 * Knows who holds what between the receipt of a grant and the sending of its release. The engine's own interval
 * is longer at both ends, so whatever overlaps here overlaps there.
 */
class Referee {
  readonly #held = new Map<string, Map<string, number>>()
  readonly #lastToken = new Map<string, bigint>()

  granted(asked: AcquireRequest, grant: Grant): void {
    const holders = this.#held.get(asked.name) ?? new Map<string, number>()
    this.#held.set(asked.name, holders.set(asked.attempt, asked.weight))
    const weight = [...holders.values()].reduce((sum, each) => sum + each, 0)
    assert(weight <= asked.capacity, `G1: ${asked.name} is held with ${weight} of ${asked.capacity}`)
    if (grant.token === null || asked.weight < asked.capacity) return
    // Exclusive holders get here in the order of their grants.
    const last = this.#lastToken.get(asked.name) ?? 0n
    assert(grant.token > last, `G2: token ${grant.token} of ${asked.name} came after ${last}`)
    this.#lastToken.set(asked.name, grant.token)
  }

  releasing(asked: AcquireRequest): void {
    this.#held.get(asked.name)?.delete(asked.attempt)
  }
}

type Ask = (name: string, random: () => number) => AcquireRequest

/** Splitmix-like: enough to shuffle a workload. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x9e3779b9) | 0
    let mixed = Math.imul(state ^ (state >>> 16), 0x85ebca6b)
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
    return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32
  }
}

const names = ['x', 'y']
const turns = 12

async function worker(actor: Actor, ask: Ask, referee: Referee, random: () => number): Promise<void> {
  let old: Grant | undefined
  for (let turn = 0; turn < turns; turn++) {
    const asked = ask(names[Math.floor(random() * names.length)] ?? 'x', random)
    const grant = await obtain(actor, asked, random)
    if (grant !== null) {
      referee.granted(asked, grant)
      for (let pauses = random() * 3; pauses > 0; pauses--) await breathe()
      // A stray release of something old must not touch the present holder (G7).
      if (old !== undefined && random() < 0.3) assert.equal(await actor.release(old), 'not-held')
      referee.releasing(asked)
      if (random() < 0.2) await actor.abandon(asked)
      else assert.equal(await actor.release(grant), 'released', 'G7: no other client released it')
      old = grant
    }
    await breathe()
  }
}

/** By a try or in the queue; now and then it gives up. */
async function obtain(actor: Actor, asked: AcquireRequest, random: () => number): Promise<Grant | null> {
  if (actor.session.enqueue === undefined || random() < 0.4) {
    const result = await actor.try(asked)
    return result.kind === 'granted' ? result.grant : null
  }
  const wait = new QueuedCall(actor, asked)
  if (random() < 0.25) {
    await breathe()
    wait.abort()
    await actor.abandon(asked)
    return null
  }
  while (wait.state === 'waiting') await breathe()
  return wait.granted()
}

function breathe(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

async function contend(stage: Stage, ask: Ask): Promise<void> {
  const referee = new Referee()
  const actors = await stage.actors(3)
  const workers = [...actors, ...actors].map((actor, index) => worker(actor, ask, referee, seeded(index + 1)))
  await stage.drive(Promise.all(workers), stage.ttlMs * 15)
  assert.deepEqual(await stage.list(), [], 'G6: nothing is left')
}

export const workloadCases = topic('many at once', [
  {
    rule: 'C188',
    title: 'G1 G2 G7 clients that try, wait, give up and release at random never overlap',
    touches: 'client',
    play: (stage) => contend(stage, (name) => request(name)),
  },
  {
    rule: 'C189',
    title: 'G1 G6 G7 readers and writers at random never overlap wrongly',
    needs: ['shared'],
    play: (stage) => contend(stage, (name, random) => (random() < 0.6 ? shared(name) : request(name))),
  },
  {
    rule: 'C190',
    title: 'G1 G6 G7 permits of random weights never exceed the capacity',
    needs: ['permits'],
    play: (stage) => contend(stage, (name, random) => permits(name, 1 + Math.floor(random() * 4), 5)),
  },
])
