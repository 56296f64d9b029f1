import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { isHoldfastError } from '../../src/base/errors.ts'
import { onEvent } from '../../src/base/events.ts'
import { overriding } from '../../src/base/overriding.ts'
import type { Locker } from '../../src/base/types.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { MemoryResource, memoryGuard } from '../../src/guards/memory.ts'
import { createLocker } from '../../src/locker/locker.ts'
import {
  type Election,
  type ElectionOptions,
  election,
  type Leader,
  type ServeOptions,
  type Term,
} from '../../src/recipes/election.ts'
import { type FaultyBackend, faultyBackend } from '../../src/testing/faulty-backend.ts'
import { memoryWorld } from '../conformance/memory-world.ts'
import { describeRecipe, type RecipeWorld } from './worlds.ts'

const NAME = 'billing/leader'

/** A term that ends when the test says so. */
interface OpenTerm {
  readonly term: Term<'fenced'>
  readonly end: () => void
  readonly fail: (error: unknown) => void
}

class Candidate {
  readonly election: Election<'fenced'>
  readonly terms: OpenTerm[] = []
  readonly stop = new AbortController()
  readonly served: Promise<'resolved' | unknown>
  isServing = true

  constructor(locker: Locker<'fenced'>, options: ServeOptions = {}, name = NAME) {
    this.election = election(locker, name)
    const work = (term: Term<'fenced'>) =>
      new Promise<void>((end, fail) => this.terms.push({ term, end, fail }))
    this.served = this.election
      .serve(work, { signal: this.stop.signal, ...options })
      .then(
        () => 'resolved',
        (error) => error,
      )
      .finally(() => {
        this.isServing = false
      })
  }

  get last(): OpenTerm {
    const last = this.terms.at(-1)
    if (last === undefined) throw new Error('it has not led yet')
    return last
  }

  end(): void {
    for (const { end } of this.terms) end()
  }

  async quit(): Promise<unknown> {
    this.stop.abort()
    this.end()
    return this.served
  }
}

/** Serves, and leads. */
async function leading(
  world: RecipeWorld,
  locker?: Locker<'fenced'>,
  options?: ServeOptions,
): Promise<Candidate> {
  const candidate = new Candidate(locker ?? (await world.locker()), options)
  await world.until('it leads', () => candidate.terms.length === 1)
  return candidate
}

/** Serves, and waits behind the leader. */
async function following(world: RecipeWorld, locker?: Locker<'fenced'>): Promise<Candidate> {
  const own = locker ?? (await world.locker())
  const candidate = new Candidate(own)
  await world.until('it waits', async () => {
    const state = await own.inspect(NAME)
    return state?.waiters.some(({ holder }) => holder === own.holder) ?? false
  })
  return candidate
}

/** A campaign that joins the queue, and is cancelled. */
async function campaignInVain(world: RecipeWorld, locker: Locker<'fenced'>): Promise<void> {
  const giveUp = new AbortController()
  const campaign = election(locker, NAME).campaign({ signal: giveUp.signal })
  await world.until('it waits', async () => (await locker.inspect(NAME))?.waiters.length === 1)
  giveUp.abort('enough')
  await expect(campaign).rejects.toBe('enough')
}

/** Events that an observer was told, as they come. */
function observing(vote: Election<'fenced'>, signal?: AbortSignal) {
  const told: (Leader<'fenced'> | null)[] = []
  const ended = (async () => {
    for await (const leader of vote.observe(signal === undefined ? {} : { signal })) told.push(leader)
  })()
  return {
    told,
    ended,
    get holders() {
      return told.map((leader) => leader?.holder ?? null)
    },
  }
}

describeRecipe('election', (stage) => {
  stage.test(
    'campaigns are served in order, and a value is shown only of the leader that proclaimed it',
    async (world) => {
      const [one, two] = [await world.locker({ holder: 'one' }), await world.locker({ holder: 'two' })]
      const [first, second] = [election(one, NAME), election(two, NAME, { note: 'second' })]
      expect(await first.leader()).toBeNull()

      const leadership = await first.campaign()
      const { lease } = leadership
      expect(await second.leader()).toEqual({
        id: lease.id,
        holder: 'one',
        token: lease.fence.token,
        value: undefined,
      })
      await leadership.proclaim({ address: '10.0.0.1' })
      expect(await second.leader()).toMatchObject({ id: lease.id, value: { address: '10.0.0.1' } })
      await campaignInVain(world, two)

      const campaign = second.campaign()
      await world.until('it waits', async () => (await one.inspect(NAME))?.waiters.length === 1)
      expect(await leadership.resign()).toBe('released')
      const next = await campaign
      expect(next.lease.fence.token).toBeGreaterThan(lease.fence.token)
      expect(await first.leader()).toEqual({
        id: next.lease.id,
        holder: 'two',
        token: next.lease.fence.token,
        value: undefined,
      })
      await expect(leadership.proclaim('late')).rejects.toMatchObject({ code: 'LEASE_LOST' })
      expect((await first.leader())?.value).toBeUndefined()
      await next.proclaim(null)
      expect((await first.leader())?.value).toBeNull()
      await next[Symbol.asyncDispose]()
      expect(await first.leader()).toBeNull()
    },
  )

  stage.test(
    'T53 leadership is kept until the term has ended: at resign, and when serve is stopped',
    async (world) => {
      const leader = await leading(world)
      const { term, end } = leader.last
      const other = await following(world)
      expect(term.signal.aborted).toBe(false)
      term.resign()
      expect(term.signal.aborted).toBe(true)
      // Longer than the lease would last without renewals.
      await world.passTime(world.ttlMs * 1.1)
      expect(term.lease.state).toBe('held')
      expect(other.terms).toEqual([])
      end()
      await world.until('the other leads', () => other.terms.length === 1)
      expect(other.last.term.lease.fence.token).toBeGreaterThan(term.lease.fence.token)
      // It campaigns again, behind the other.
      await world.until(
        'it waits again',
        async () => (await leader.election.leader())?.holder === other.last.term.lease.holder,
      )

      const reason = new Error('SIGTERM')
      other.stop.abort(reason)
      expect(other.last.term.signal.reason).toBe(reason)
      await world.passTime(world.ttlMs / 5)
      expect(leader.terms.length).toBe(1)
      expect(other.isServing).toBe(true)
      other.end()
      expect(await other.served).toBe('resolved')
      await world.until('the first leads again', () => leader.terms.length === 2)
      expect(await leader.quit()).toBe('resolved')
      expect(await leader.election.leader()).toBeNull()
    },
  )

  stage.test(
    'G3 a leader that is cut off stops in time, waits for its term, and the guard refuses what it still sends',
    async (world) => {
      const resource = new MemoryResource()
      const guard = memoryGuard({ resource })
      const lost = await world.locker()
      const old = await leading(world, lost)
      const { term, end } = old.last
      await guard.run(term.lease, async (tx) => tx.set('by', 'old'))
      const next = await following(world)
      const { fence } = term.lease
      world.kill(lost)
      await world.until('its signal aborts', () => term.signal.aborted)
      expect(isHoldfastError(term.signal.reason, 'LEASE_LOST')).toBe(true)
      old.election.checkHealth({ graceMs: world.ttlMs * 20 })
      await world.until('another leads', () => next.terms.length === 1)
      await guard.run(next.last.term.lease, async (tx) => tx.set('by', 'next'))
      expect(next.last.term.lease.fence.token).toBeGreaterThan(fence.token)
      await expect(guard.run(fence, async (tx) => tx.set('by', 'old'))).rejects.toMatchObject({
        code: 'FENCE_STALE',
      })
      expect(() => old.election.checkHealth({ graceMs: 0 })).toThrow(/is lost: .*work still runs/)

      // Only when the old term has ended is there another campaign.
      const campaigns = () => world.wireOf(lost).log.filter(({ kind }) => kind === 'openSession').length
      const before = campaigns()
      world.wireOf(lost).unfreeze()
      await world.passTime(world.ttlMs / 2)
      expect(campaigns()).toBe(before)
      expect(old.terms.length).toBe(1)
      end()
      await world.until('it campaigns again', async () => (await lost.inspect(NAME))?.waiters.length === 1)
      old.election.checkHealth({ graceMs: 0 })
      expect(await next.quit()).toBe('resolved')
      await world.until('it leads again', () => old.terms.length === 2)
      expect(await old.quit()).toBe('resolved')
    },
  )

  stage.test('observe tells the current leader, and every change once', async (world) => {
    const [one, two] = [await world.locker({ holder: 'one' }), await world.locker({ holder: 'two' })]
    const watcher = election(await world.locker(), NAME)
    const stop = new AbortController()
    const early = observing(watcher, stop.signal)
    await world.until('it has looked', () => early.told.length === 1)
    const leadership = await election(one, NAME).campaign()
    await world.until('it is told', () => early.told.length === 2)
    await leadership.proclaim('v1')
    await world.until('it is told the value', () => early.told.length === 3)
    // Nothing to tell: the same value, names that begin alike, a waiter that gives up.
    await leadership.proclaim('v1')
    await (await election(two, `${NAME}/2`).campaign()).resign()
    await campaignInVain(world, two)
    const late = observing(watcher, stop.signal)
    await world.until('the late one has looked', () => late.told.length === 1)
    await leadership.resign()
    const second = await election(two, NAME).campaign()
    await world.until('all is told', () => early.holders.at(-1) === 'two' && late.holders.at(-1) === 'two')
    stop.abort()
    await Promise.all([early.ended, late.ended])
    expect(early.holders).toEqual([null, 'one', 'one', null, 'two'])
    expect(early.told.map((leader) => leader?.value)).toEqual([
      undefined,
      undefined,
      'v1',
      undefined,
      undefined,
    ])
    expect(late.holders).toEqual(['one', null, 'two'])
    expect(late.told[0]?.value).toBe('v1')
    expect(early.told[4]?.token).toBe(second.lease.fence.token)
    await second.resign()
  })

  stage.test('a term that throws gives leadership up, and serve rejects with its error', async (world) => {
    const leader = await leading(world)
    const other = await following(world)
    const error = new Error('out of paper')
    leader.last.fail(error)
    expect(await leader.served).toBe(error)
    await world.until('the other leads', () => other.terms.length === 1)
    // An error of a term that is over is not a failure.
    other.last.term.resign()
    other.last.fail(other.last.term.signal.reason)
    await world.until('it leads again', () => other.terms.length === 2)
    expect(await other.quit()).toBe('resolved')
  })

  stage.test('T53 a closing locker waits for the term; a campaign that is in flight ends', async (world) => {
    const [one, two] = [await world.locker(), await world.locker()]
    const leader = await leading(world, one)
    const other = await following(world, two)
    const third = await following(world)
    await two.close()
    expect(await other.served).toMatchObject({ code: 'CLOSED' })
    const closed = one.close({ graceMs: world.ttlMs * 10 })
    expect(leader.last.term.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'closed' })
    await world.passTime(world.ttlMs / 2)
    expect(third.terms).toEqual([])
    leader.end()
    await world.until('the third leads', () => third.terms.length === 1)
    await world.until('serve has ended', () => !leader.isServing)
    expect(await leader.served).toMatchObject({ code: 'CLOSED' })
    await closed
    expect(await third.quit()).toBe('resolved')
  })
})

/** One or two lockers on an engine in memory, whose clock the test moves. */
async function inMemory(lockers = 1) {
  const world = await memoryWorld()
  const { ttlMs, clock } = world
  const wires: FaultyBackend<'fenced'>[] = []
  for (let count = 0; count < lockers; count++) wires.push(faultyBackend(await world.client()))
  const [one, two = one] = wires.map((wire) => createLocker(wire, { ttlMs })) as [
    Locker<'fenced'>,
    Locker<'fenced'>?,
  ]
  return {
    ...{ clock, ttlMs, one, two, wire: wires[0] as FaultyBackend<'fenced'> },
    async [Symbol.asyncDispose]() {
      await Promise.all([one, two].map((locker) => locker.close({ graceMs: 0 })))
      await world.close()
      // Nothing may be left that would fire, or keep a process alive.
      await clock.advance(1_000)
      expect(clock.pendingTimers).toBe(0)
    },
  }
}

/** Terms that end at once. In a hot loop no timer would ever fire, so it ends after many. */
class BriefTerms {
  count = 0
  readonly work = () => {
    if (++this.count > 1_000) throw new Error('a hot loop')
  }
}

test('T87 terms that end at once are followed by pauses', async () => {
  await using world = await inMemory()
  const stop = new AbortController()
  const brief = new BriefTerms()
  const served = election(world.one, NAME).serve(brief.work, { signal: stop.signal })
  await world.clock.advance(10_000)
  expect(brief.count).toBeGreaterThan(10)
  expect(brief.count).toBeLessThan(30)
  // Those of the campaign or of the pause, and none of the terms before.
  expect(getEventListeners(stop.signal, 'abort').length).toBeLessThan(4)
  // In a pause.
  stop.abort()
  await served
  expect(await election(world.one, NAME).leader()).toBeNull()
})

test('T87 an engine that is away for many TTLs is asked seldom, and its return is noticed', async () => {
  await using world = await inMemory()
  const candidate = new Candidate(world.one)
  await world.clock.settle()
  world.wire.cutOff()
  await world.clock.advance(world.ttlMs)
  expect(candidate.last.term.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'unreachable' })
  candidate.end()
  await world.clock.advance(1_000)
  const before = world.wire.log.length
  await world.clock.advance(60_000)
  expect(world.wire.log.length - before).toBeGreaterThan(10)
  expect(world.wire.log.length - before).toBeLessThan(120)
  world.wire.restore()
  await world.clock.advance(5_000)
  expect(candidate.terms.length).toBe(2)
  expect(await candidate.quit()).toBe('resolved')
})

test('a first contact that fails is reported, as by every call', async () => {
  await using world = await inMemory()
  world.wire.cutOff()
  await expect(election(world.one, NAME).serve(() => {})).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
  })
  await expect(election(world.one, NAME).observe()[Symbol.asyncIterator]().next()).rejects.toBeDefined()
  world.wire.restore()
})

test('a locker that is closed in a pause between two terms ends serve', async () => {
  await using world = await inMemory()
  const served = election(world.one, NAME).serve(new BriefTerms().work)
  const ended = expect(served).rejects.toMatchObject({ code: 'CLOSED' })
  await world.clock.advance(3_100)
  await world.one.close()
  await world.clock.advance(500)
  await ended
})

test('while the locker drains, the leader goes on, and the next campaign is refused', async () => {
  await using world = await inMemory()
  const leader = new Candidate(world.one)
  await world.clock.settle()
  const closed = world.one.close({ drainMs: 60_000 })
  await world.clock.advance(3 * world.ttlMs)
  const { lease, signal } = leader.last.term
  const seen = [lease.state, signal.aborted, leader.isServing]
  leader.end()
  await world.clock.advance(1_000)
  await closed
  expect(seen).toEqual(['held', false, true])
  expect(await leader.served).toMatchObject({ code: 'CLOSED' })
})

test('a signal that is aborted already begins nothing; one that aborts in the moment of the grant runs no term', async () => {
  await using world = await inMemory()
  const vote = election(world.one, NAME)
  await vote.serve(() => expect.unreachable(), { signal: AbortSignal.abort() })
  expect(world.wire.log).toEqual([])
  for await (const _ of vote.observe({ signal: AbortSignal.abort() })) expect.unreachable()

  const stop = new AbortController()
  const withLease = (...[name, options, body]: Parameters<typeof world.one.withLease>) =>
    world.one.withLease(name, options as object, (lease) => {
      stop.abort()
      return body(lease)
    })
  const locker = new Proxy(world.one, {
    get: (target, key) => (key === 'withLease' ? withLease : Reflect.get(target, key, target)),
  })
  await election(locker, NAME).serve(() => expect.unreachable(), { signal: stop.signal })
  expect(stop.signal.aborted).toBe(true)
  expect(await vote.leader()).toBeNull()
})

test('T8 after the event loop was blocked, the term reads that it is over', async () => {
  await using world = await inMemory()
  const candidate = new Candidate(world.one)
  await world.clock.settle()
  const { term } = candidate.last
  world.clock.block(world.ttlMs * 2)
  expect(term.signal.aborted).toBe(true)
  // It was lost in this very moment, as far as this process can tell.
  candidate.election.checkHealth({ graceMs: 0 })
  world.clock.block(10)
  candidate.election.checkHealth({ graceMs: 10 })
  expect(() => candidate.election.checkHealth({ graceMs: 9 })).toThrow(
    expect.objectContaining({ code: 'LEASE_LOST', resource: NAME }),
  )
  await candidate.quit()
  candidate.election.checkHealth({ graceMs: 0 })
})

test('onJeopardy comes before the loss, and a renewal takes it back', async () => {
  await using world = await inMemory()
  const heard: number[] = []
  const candidate = new Candidate(world.one, { onJeopardy: (remainingMs) => heard.push(remainingMs) })
  await world.clock.settle()
  world.wire.next('keepAlive', { kind: 'error-before' })
  await world.clock.advance(world.ttlMs * 5)
  expect(heard).toEqual([expect.any(Number)])
  expect(heard[0]).toBeGreaterThan(0)
  const { term } = candidate.last
  expect(term.lease.state).toBe('held')
  expect(term.signal.aborted).toBe(false)
  expect(await candidate.quit()).toBe('resolved')
})

test('only what says that the term is over is no failure', async () => {
  await using world = await inMemory(2)
  const resource = new MemoryResource()
  const guard = memoryGuard({ resource })
  const old = new Candidate(world.one)
  await world.clock.settle()
  // An operator ends the lease, and the next leader is quicker than the next renewal.
  await world.two.forceRelease(NAME, { all: true, reason: 'test' })
  const next = await election(world.two, NAME).campaign()
  await guard.run(next.lease, async (tx) => tx.set('by', 'next'))
  const { term } = old.last
  expect(term.signal.aborted).toBe(false)
  const refused = await guard.run(term.lease, async () => {}).catch((error) => error)
  expect(refused.code).toBe('FENCE_STALE')
  old.last.fail(refused)
  await next.resign()
  await world.clock.advance(1_000)
  expect(old.terms.length).toBe(2)
  old.stop.abort('enough')
  const failure = new Error('a failure while it winds down')
  old.last.fail(failure)
  expect(await old.served).toBe(failure)

  const again = new Candidate(world.one)
  await world.clock.settle()
  again.last.fail(refused)
  expect(await again.served).toBe(refused)
})

test('the loss of another lease with the same name is a failure of the term', async () => {
  await using world = await inMemory()
  await using elsewhere = createLocker(memory())
  const other = await elsewhere.acquire(NAME)
  await other.release()
  const lost = await other.renew().catch((error) => error)
  expect(lost).toMatchObject({ code: 'LEASE_LOST', resource: NAME, leaseId: other.id })
  const candidate = new Candidate(world.one)
  await world.clock.settle()
  candidate.last.fail(lost)
  expect(await candidate.served).toBe(lost)

  const again = new Candidate(world.one)
  await world.clock.settle()
  const { lease } = again.last.term
  await lease.release()
  again.last.fail(await lease.renew().catch((error) => error))
  await world.clock.advance(1_000)
  expect(again.terms.length).toBe(2)
  await again.quit()
})

test('the refusal of another lease with the same name is a failure of the term', async () => {
  await using world = await inMemory()
  await using elsewhere = createLocker(memory())
  const guard = memoryGuard({ resource: new MemoryResource() })
  const other = await elsewhere.acquire(NAME)
  await other.release()
  await using next = await elsewhere.acquire(NAME)
  await guard.run(next, async () => {})
  const refused = await guard.run(other.fence, async () => {}).catch((error) => error)
  expect(refused).toMatchObject({ code: 'FENCE_STALE', fence: { name: NAME, grant: other.id } })
  const candidate = new Candidate(world.one)
  await world.clock.settle()
  candidate.last.fail(refused)
  expect(await candidate.served).toBe(refused)
})

test('a leader holds for as long as it lives, and nothing warns of it', async () => {
  await using world = await inMemory()
  const warnings: unknown[] = []
  const stopListening = onEvent('held-long', (event) => warnings.push(event))
  const candidate = new Candidate(world.one)
  await world.clock.advance(200_000)
  expect(candidate.last.term.lease.state).toBe('held')
  expect(warnings).toEqual([])
  stopListening()
  expect(await candidate.quit()).toBe('resolved')
})

test('one serve at a time', async () => {
  await using world = await inMemory()
  const candidate = new Candidate(world.one)
  await expect(candidate.election.serve(() => {})).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  await world.clock.settle()
  expect(await candidate.quit()).toBe('resolved')
  const stop = AbortSignal.abort()
  await candidate.election.serve(() => {}, { signal: stop })
})

test('observe ends when its consumer stops, and when the locker closes', async () => {
  await using world = await inMemory(2)
  const vote = election(world.one, NAME)
  for await (const leader of vote.observe()) {
    expect(leader).toBeNull()
    break
  }
  const open = observing(vote)
  await world.clock.settle()
  await world.one.close()
  await open.ended
  expect(open.told).toEqual([null])
})

test('what a name carried before is not a value, and a leader can be written as JSON', async () => {
  await using world = await inMemory()
  const vote = election(world.one, NAME)
  for (const data of ['', 'null', '7', '"text"', '{"id":1}', '{ not JSON']) {
    const lease = await world.one.acquire(NAME)
    await lease.setData(data)
    expect((await vote.leader())?.value).toBeUndefined()
    await lease.release()
  }
  const leadership = await vote.campaign()
  const { lease } = leadership
  expect(leadership.signal).toBe(lease.signal)
  await leadership.proclaim(['\u0000', 'ü'])
  const leader = await vote.leader()
  expect(leader?.value).toEqual(['\u0000', 'ü'])
  expect(JSON.parse(JSON.stringify(leader)).token).toBe(String(lease.fence.token))
  for (const value of [undefined, 1n, () => {}, Symbol('x'), 'x'.repeat(5_000)])
    await expect(leadership.proclaim(value)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  const cycle: unknown[] = []
  cycle.push(cycle)
  await expect(leadership.proclaim(cycle)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  expect((await vote.leader())?.value).toEqual(['\u0000', 'ü'])
  await leadership.resign()
})

const wrong = { code: 'INVALID_ARGUMENT' }

test('wrong arguments are refused', async () => {
  await using world = await inMemory()
  const { one } = world
  const vote = election(one, NAME)
  expect(() => election({} as never, NAME)).toThrow(expect.objectContaining(wrong))
  expect(() => election(one, '')).toThrow(expect.objectContaining(wrong))
  expect(() => election(one, 7 as never)).toThrow(expect.objectContaining(wrong))
  for (const options of [{ ttl: 5 }, { waitMs: 5 }, { ttlMs: -1 }, { ttlMs: 'x' }, [], 'x', null])
    expect(() => election(one, NAME, options as ElectionOptions)).toThrow(expect.objectContaining(wrong))
  expect(() => vote.observe({ cursor: 'x' } as never)).toThrow(expect.objectContaining(wrong))
  expect(() => vote.observe({ signal: 'x' } as never)).toThrow(expect.objectContaining(wrong))
  for (const options of [undefined, {}, { graceMs: '1' }, { graceMs: -1 }, { graceMs: 1, x: 1 }])
    expect(() => vote.checkHealth(options as never)).toThrow(expect.objectContaining(wrong))

  const calls: Promise<unknown>[] = [
    vote.campaign({ ttlMs: 5 } as never),
    vote.campaign({ waitMs: 'x' } as never),
    vote.campaign({ signal: {} } as never),
    vote.campaign({ onJeopardy: 7 } as never),
    vote.campaign('x' as never),
    vote.serve(undefined as never),
    vote.serve({} as never),
    vote.serve(() => {}, { waitMs: 5 } as never),
    vote.serve(() => {}, { signal: 'x' } as never),
    vote.serve(() => {}, { onJeopardy: 'x' } as never),
    vote.serve(() => {}, null as never),
    vote.leader({ x: 1 } as never),
    election(one, NAME, { note: 7 as never }).serve(() => {}),
  ]
  for (const call of calls) await expect(call).rejects.toMatchObject(wrong)
  expect(await vote.leader()).toBeNull()
})

test('an unfenced locker must be asked for', async () => {
  await using world = await inMemory()
  const { one } = world
  const info = { ...one.info, fencing: 'unfenced' as const, name: 'redis' }
  const unfenced = overriding(one as unknown as Locker<'unfenced'>, { info, fencing: 'unfenced' })
  // @ts-expect-error an unfenced locker must be asked for
  expect(() => election(unfenced, NAME)).toThrow(
    expect.objectContaining({
      code: 'UNSUPPORTED',
      message: expect.stringMatching(/redis with \?fencing=clock-backed.* Or pass allowUnfenced: true/),
    }),
  )
  await (await election(unfenced, NAME, { allowUnfenced: true }).campaign()).resign()
  for (const allowUnfenced of ['true', 1, null])
    expect(() => election(one, NAME, { allowUnfenced } as never)).toThrow(expect.objectContaining(wrong))
})

test('a backend without a data cell is refused at the start', async () => {
  await using world = await inMemory()
  const info = { ...world.one.info, name: 'redlock', data: false }
  const locker = new Proxy(world.one, {
    get: (target, key) => (key === 'info' ? info : Reflect.get(target, key, target)),
  })
  expect(() => election(locker, NAME)).toThrow(
    expect.objectContaining({
      code: 'UNSUPPORTED',
      message: expect.stringMatching(/^An election cannot run on redlock.*postgres/),
    }),
  )
})
