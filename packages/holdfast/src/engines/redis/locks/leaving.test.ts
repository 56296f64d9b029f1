/** Waiters that gave up or died leave no positions behind that later operations would have to pass (T81, leftover positions). */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { type Clock, createClock } from 'holdfast-lab/faults'
import { connectRedis, type RespClient, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { newSeed } from '../../../../test/seed.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { OpCode } from './scripts/op-codes.ts'
import { inspectScript } from './scripts/operators.ts'
import { requestScript } from './scripts/requests.ts'

const script = requestScript.source
/** For thousands of calls, one after the other, on a busy machine. */
const MANY_CALLS_MS = 180_000
const LONG_MS = 1_000_000
const SHORT_MS = 1_000
/** No time ends exactly when a step does. */
const STEP_MS = 400

/** One name, asked about with the scripts themselves. */
class Name {
  readonly #wire: RespClient
  readonly lock: string
  #waiters = 0

  constructor(wire: RespClient, name: string) {
    this.#wire = wire
    this.lock = `holdfast:default:{${name}}`
  }

  async run(script: string, ...args: (string | number)[]): Promise<string> {
    return String(await this.#evaluate(script, ...args))
  }

  async #evaluate(script: string, ...args: (string | number)[]): Promise<unknown> {
    // Sent in full, the scripts would be most of the work of thousands of calls.
    const sha1 = createHash('sha1').update(script).digest('hex')
    const call = ['EVALSHA', sha1, 1, this.lock, '0', ...args] as const
    return this.#wire.call(...call).catch(async (error: unknown) => {
      if (!String(error).includes('NOSCRIPT')) throw error
      await this.#wire.call('SCRIPT', 'LOAD', script)
      return this.#wire.call(...call)
    })
  }

  ask(operation: 'abandon' | 'release' | 'heartbeat' | 'look', who: string, ms: number): Promise<string> {
    return this.run(script, OpCode[operation] + who, '', ms)
  }

  look(who: string): Promise<string> {
    return this.ask('look', who, 0)
  }

  /** Answers with who it is. */
  async enqueue(ttlMs = LONG_MS, who = this.#next()): Promise<string> {
    const terms = [`0|${ttlMs}|["h"]`, ttlMs, 'channel']
    assert.match(await this.run(script, OpCode.terms, ...terms, OpCode.enqueue + who), /^[gw]/)
    return who
  }

  /** Answers with who it is if it is queued, and with null if the queue was full. */
  async enqueueUpTo(maxWaiters: number): Promise<string | null> {
    const who = this.#next()
    const terms = [`0|${LONG_MS}|["h"]`, LONG_MS, 'channel', LOCK_CAPACITY, LOCK_CAPACITY, 'exclusive']
    const answer = await this.run(script, OpCode.anyTerms, ...terms, maxWaiters, OpCode.enqueue + who)
    assert.match(answer, /^[fw]/)
    return answer === 'f' ? null : who
  }

  #next(): string {
    return `${String(++this.#waiters).padStart(22, '0')}.${'s'.repeat(22)}|${'t'.repeat(22)}`
  }

  async giveUp(who: string): Promise<void> {
    assert.equal(await this.ask('abandon', who, 60_000), 'x')
  }

  async release(who: string): Promise<void> {
    assert.equal(await this.ask('release', who, 0), 'r')
  }

  async beat(who: string): Promise<void> {
    assert.match(await this.ask('heartbeat', who, LONG_MS), /^[gw]/)
  }

  /** The holder and the waiters, as inspect shows them. */
  async inspect(): Promise<{ holder?: string; waiters: string[] }> {
    const found = await this.#evaluate(inspectScript.source)
    if (found === null) return { waiters: [] }
    const [, , , , holders, waiters] = found as [unknown, unknown, unknown, unknown, string[][], string[][]]
    const holder = holders[0]?.[0]
    return { ...(holder !== undefined && { holder }), waiters: waiters.map(([who]) => String(who)) }
  }

  async fields(): Promise<number> {
    return Number(await this.#wire.call('HLEN', `${this.lock}:s`))
  }
}

describe.runIf(wanted('redis'))('positions that waiters have left', () => {
  const clock: Clock = createClock()
  let server: Server
  let wire: RespClient
  beforeAll(async () => {
    server = await startRedis({ clock })
    clock.freeze()
    wire = await connectRedis(server)
  })
  afterAll(async () => {
    wire?.close()
    await server?.stop()
  })

  /** Commands that the server runs meanwhile, those of scripts included. */
  async function commandsOf(work: () => Promise<unknown>): Promise<number> {
    const count = async () => {
      const report = String(await wire.call('INFO', 'commandstats'))
      const calls = [...report.matchAll(/^cmdstat_(?!info|eval)[^:]+:calls=(\d+)/gm)]
      return calls.reduce((sum, [, call]) => sum + Number(call), 0)
    }
    const before = await count()
    await work()
    return (await count()) - before
  }

  /** Keys that are left, and their cost, after so many waiters gave up behind a living head. */
  async function costAfter(gaveUp: number) {
    const name = new Name(wire, `${gaveUp} gave up`)
    const [holder, head] = [await name.enqueue(), await name.enqueue()]
    const leaving: string[] = []
    for (let index = 0; index < gaveUp; index++) leaving.push(await name.enqueue())
    const next = await name.enqueue()
    // From the middle, from both ends, and in between: every other one first.
    const inOrder = [
      ...leaving.filter((_, index) => index % 2 === 0),
      ...leaving.filter((_, index) => index % 2),
    ]
    for (const who of inOrder) await name.giveUp(who)
    const fields = await name.fields()
    // The first call also loads its script, so it is not counted.
    assert.deepEqual(await name.inspect(), { holder, waiters: [head, next] })
    const inspect = await commandsOf(() => name.inspect())
    const join = await commandsOf(async () => name.giveUp(await name.enqueue()))
    const releases = [
      await commandsOf(() => name.release(holder)),
      await commandsOf(() => name.release(head)),
      await commandsOf(() => name.release(next)),
    ]
    assert.equal(await name.fields(), 0)
    return { fields, inspect, join, releases }
  }

  test('T81 G9 what is stored, and what inspect and release cost, does not depend on how many waiters gave up', async () => {
    assert.deepEqual(await costAfter(500), await costAfter(5))
  })

  test('T81 heartbeats of living waiters remove the dead behind them, a limited number at a time', async () => {
    const name = new Name(wire, 'died')
    const [holder, head] = [await name.enqueue(), await name.enqueue()]
    const empty = await name.fields()
    for (let index = 0; index < 350; index++) await name.enqueue(SHORT_MS)
    const next = await name.enqueue()
    clock.step(2 * SHORT_MS)
    await name.beat(head)
    assert((await name.fields()) > empty + 200, 'one heartbeat removes some of them')
    for (let beat = 0; beat < 3; beat++) await name.beat(head)
    assert.equal(await name.fields(), empty + 1, 'the one behind them is left')
    await name.release(holder)
    await name.release(head)
    await name.release(next)
  })

  /** Random operations, compared with a plain array. */
  async function play(seed: number): Promise<void> {
    const random = seededRandom(seed)
    const pick = <Item>(items: readonly Item[]) => items[Math.floor(random.fraction() * items.length)] as Item
    const name = new Name(wire, `random ${seed}`)
    // Data keeps the hash alive while the queue comes and goes.
    await wire.call('HSET', `${name.lock}:s`, 'd', 'data')
    let nowMs = 0
    let queue: { readonly who: string; readonly deadFromMs: number }[] = []
    let holder: (typeof queue)[number] | undefined
    const settle = () => {
      if (holder !== undefined && holder.deadFromMs <= nowMs) holder = undefined
      queue = queue.filter(({ deadFromMs }) => deadFromMs > nowMs)
      holder ??= queue.shift()
    }
    for (let step = 0; step < 250; step++) {
      const draw = random.fraction()
      // Phases in which the queue grows, and in which it empties.
      const growth = Math.floor(step / 40) % 2 === 0 ? 0.6 : 0.2
      if (draw < growth || holder === undefined) {
        const ttlMs = random.fraction() < 0.2 ? SHORT_MS : LONG_MS
        queue.push({ who: await name.enqueue(ttlMs), deadFromMs: nowMs + ttlMs })
      } else if (draw < growth + 0.3 && queue.length > 0) {
        const leaving = pick(queue)
        await name.giveUp(leaving.who)
        queue = queue.filter((waiter) => waiter !== leaving)
      } else if (draw < growth + 0.35) {
        clock.step(STEP_MS)
        nowMs += STEP_MS
        settle()
        // A look does what time has brought about.
        await name.look('nobody|nobody')
      } else if (draw < growth + 0.37 && queue.length > 0) {
        const beating = pick(queue)
        await name.beat(beating.who)
        queue = queue.map((waiter) =>
          waiter === beating ? { ...waiter, deadFromMs: nowMs + LONG_MS } : waiter,
        )
      } else {
        await name.release(holder.who)
        holder = undefined
      }
      settle()
      const shown = await name.inspect()
      assert.deepEqual(
        [shown.holder, ...shown.waiters],
        [holder?.who, ...queue.map(({ who }) => who)],
        `seed ${seed}, step ${step}`,
      )
      if (holder === undefined) continue
      assert.equal(await name.enqueueUpTo(queue.length), null, `full, seed ${seed}, step ${step}`)
      if (random.fraction() > 0.1) continue
      const who = await name.enqueueUpTo(queue.length + 1)
      assert(who !== null, `not full, seed ${seed}, step ${step}`)
      queue.push({ who, deadFromMs: nowMs + LONG_MS })
    }
  }

  test(
    'T81 G8 the order of the queue is kept, whichever waiters leave it',
    async () => {
      const seed = newSeed()
      for (let run = 0; run < 5; run++) await play(seed + run)
    },
    MANY_CALLS_MS,
  )

  test('a call that finds the queue full costs the same whatever its length, and leaves nothing', async () => {
    const costWith = async (waiting: number) => {
      const name = new Name(wire, `full with ${waiting}`)
      for (let index = 0; index <= waiting; index++) await name.enqueue()
      const [leaving] = [await name.enqueue(), await name.enqueue()]
      await name.giveUp(leaving)
      const fields = await name.fields()
      const commands = await commandsOf(async () =>
        assert.equal(await name.enqueueUpTo(waiting + 1), null, 'full'),
      )
      assert.equal(await name.fields(), fields)
      return commands
    }
    assert.equal(await costWith(300), await costWith(10))
  })

  test('the limit of a queue counts the readers that hold as no waiters', async () => {
    const name = new Name(wire, 'readers')
    const terms = [`0|${LONG_MS}|["h"]`, LONG_MS, 'channel', 1, LOCK_CAPACITY, 'shared'] as const
    for (const reader of ['a', 'b', 'c'])
      assert.match(
        await name.run(script, OpCode.anyTerms, ...terms, '', `${OpCode.enqueue}${reader.repeat(22)}.x|y`),
        /^g/,
      )
    assert.equal(await name.enqueueUpTo(0), null)
    assert.notEqual(await name.enqueueUpTo(1), null)
    assert.equal(await name.enqueueUpTo(1), null)
  })

  test('dead waiters do not count against the limit', async () => {
    const name = new Name(wire, 'dead and limited')
    await name.enqueue()
    await name.enqueue()
    for (let index = 0; index < 5; index++) await name.enqueue(SHORT_MS)
    assert.equal(await name.enqueueUpTo(2), null)
    clock.step(2 * SHORT_MS)
    assert.notEqual(await name.enqueueUpTo(2), null)
    assert.equal(await name.enqueueUpTo(2), null)
  })

  test('T81 T84 an attempt that begins two queues brings nothing of the first into the second', async () => {
    const name = new Name(wire, 'same attempt')
    await wire.call('HSET', `${name.lock}:s`, 'd', 'data')
    const holder = await name.enqueue()
    const first = await name.enqueue()
    const others: string[] = []
    for (let index = 1; index < 7; index++) others.push(await name.enqueue())
    const [one, ...rest] = others as [string, ...string[]]
    const last = rest.pop() as string
    for (const who of rest) await name.giveUp(who)
    for (const who of [holder, first, one, last]) await name.release(who)
    assert.deepEqual(await name.inspect(), { waiters: [] })
    clock.step(1)
    // Another client holds it; a late copy of the first request arrives, and begins a queue again.
    const heir = await name.enqueue()
    await name.enqueue(LONG_MS, first)
    const leaving = await name.enqueue()
    const living: string[] = []
    for (let index = 0; index < 5; index++) living.push(await name.enqueue())
    await name.giveUp(leaving)
    assert.deepEqual(await name.inspect(), { holder: heir, waiters: [first, ...living] })
  })

  test('T81 a refused acquire, and what comes after it, cost the same however many gave up before', async () => {
    const cost = async (gaveUp: number, refuse: boolean) => {
      const name = new Name(wire, `refused ${gaveUp} ${refuse}`)
      await wire.call('HSET', `${name.lock}:s`, 'd', 'data')
      await name.enqueue(SHORT_MS)
      await name.enqueue(SHORT_MS)
      const leaving: string[] = []
      for (let index = 0; index < gaveUp; index++) leaving.push(await name.enqueue())
      const next = await name.enqueue()
      for (const who of leaving) await name.giveUp(who)
      clock.step(2 * SHORT_MS)
      if (refuse) {
        const terms = [`0|${LONG_MS}|["h"]`, LONG_MS, 'channel', 1, 5, 'permits', ''] as const
        const asked = `${OpCode.tryAcquire}nobody|nobody`
        assert.match(await name.run(script, OpCode.anyTerms, ...terms, asked), /^m/)
      }
      const commands = await commandsOf(() => name.look(next))
      return commands
    }
    const seen = [await cost(5, false), await cost(500, false), await cost(5, true), await cost(500, true)]
    assert.equal(seen[0], seen[1])
    assert.equal(seen[2], seen[3])
  })
})
