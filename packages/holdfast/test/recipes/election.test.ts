import { expect, test } from 'vitest'
import { isHoldfastError } from '../../src/base/errors.ts'
import type { Locker } from '../../src/base/types.ts'
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
import { faultyBackend } from '../../src/testing/faulty-backend.ts'
import { memoryWorld, type WorldOnFakeClock } from '../conformance/memory-world.ts'
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

/** What settles only when time passes. */
async function inTime<T>(world: RecipeWorld, work: Promise<T>): Promise<T> {
  let isSettled = false
  const settled = work.finally(() => {
    isSettled = true
  })
  settled.catch(() => {})
  await world.until('it settles', () => isSettled)
  return settled
}

/** What an observer was told, as it comes. */
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
      await expect(inTime(world, second.campaign({ waitMs: world.ttlMs / 5 }))).rejects.toMatchObject({
        code: 'ACQUIRE_TIMEOUT',
      })

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
      await world.passTime(world.ttlMs * 1.5)
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
      await world.passTime(world.ttlMs / 2)
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
      expect(() => old.election.checkHealth({ graceMs: 0 })).toThrow(/is lost: .*term still runs/)

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
    await expect(inTime(world, election(two, NAME).campaign({ waitMs: world.ttlMs / 10 }))).rejects.toMatchObject({
      code: 'ACQUIRE_TIMEOUT',
    })
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
    // What a term throws because it is over is not a failure.
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

/** Two lockers on one engine in memory. */
async function inMemory(): Promise<
  WorldOnFakeClock & {
    readonly lockers: readonly Locker<'fenced'>[]
    readonly wires: readonly ReturnType<typeof faultyBackend<'fenced'>>[]
  }
> {
  const world = await memoryWorld()
  const wires = [faultyBackend(await world.client()), faultyBackend(await world.client())]
  return { ...world, wires, lockers: wires.map((wire) => createLocker(wire, { ttlMs: world.ttlMs })) }
}

async function closeAll({ lockers, close }: { readonly lockers: readonly Locker[]; close(): Promise<void> }) {
  await Promise.all(lockers.map((locker) => locker.close({ graceMs: 0 })))
  await close()
}
