/** The promises of schedules on every engine. What needs no engine is in `schedule-times.test.ts` and beside the source. */
import { expect } from 'vitest'
import type { Locker } from '../../src/base/types.ts'
import { schedule, type TickOptions, type TickRun, tickRunner } from '../../src/recipes/schedule.ts'
import { describeRecipe, type RecipeWorld } from './worlds.ts'

const NAME = 'nightly'
const T1 = 1_600_000_000_000
const T2 = T1 + 3_600_000

type Work = (run: TickRun<'fenced'>) => unknown

/** Replicas with a common list of starts. */
class Replicas {
  readonly started: string[] = []
  readonly errors: unknown[] = []
  readonly setAside: string[] = []

  runner(locker: Locker<'fenced'>, options: Partial<TickOptions> = {}, work: Work = () => {}) {
    return tickRunner(
      locker,
      {
        name: NAME,
        onError: (error) => void this.errors.push(error),
        onSetAside: ({ id }) => void this.setAside.push(id),
        ...options,
      },
      (run) => {
        this.started.push(`${run.tick.scheduledAt.getTime() === T1 ? 'T1' : 'T2'} #${run.tick.start}`)
        return work(run)
      },
    )
  }
}

/** Lets time pass until it has ended. */
async function ended<T>(world: RecipeWorld, promise: Promise<T>): Promise<T> {
  let isOver = false
  const over = () => {
    isOver = true
  }
  promise.then(over, over)
  await world.until('it has ended', () => isOver, 20)
  return promise
}

const forEver = ({ signal }: TickRun<'fenced'>) =>
  new Promise<void>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

describeRecipe('schedule', (stage) => {
  stage.test('skip: of five replicas one runs a tick, and a late one finds it recorded', async (world) => {
    const replicas = new Replicas()
    const lockers = await Promise.all(Array.from({ length: 5 }, () => world.locker()))
    const runners = lockers.map((locker) => replicas.runner(locker))
    const run = (tick: number) => ended(world, Promise.all(runners.map((each) => each.run(tick))))
    expect((await run(T1)).filter((outcome) => outcome === 'ran')).toHaveLength(1)
    expect(await run(T1)).toEqual(Array.from({ length: 5 }, () => 'left'))
    expect((await run(T2)).filter((outcome) => outcome === 'ran')).toHaveLength(1)
    expect(await run(T1)).toEqual(Array.from({ length: 5 }, () => 'left'))
    expect(replicas.started).toEqual(['T1 #1', 'T2 #1'])
    expect(replicas.errors).toEqual([])
  })

  stage.test(
    'skip: a tick whose runner was killed does not start again, and the next one runs',
    async (world) => {
      const replicas = new Replicas()
      const [a, b] = [await world.locker(), await world.locker()]
      void replicas.runner(a, {}, forEver).run(T1)
      await world.until('it runs', () => replicas.started.length === 1)
      world.kill(a)
      const later = replicas.runner(b)
      await world.until('it is free', async () => (await later.run(T2)) === 'ran')
      expect(await ended(world, later.run(T1))).toBe('left')
      expect(replicas.started).toEqual(['T1 #1', 'T2 #1'])
    },
  )

  stage.test('rerun: a tick whose runner was killed starts again on the only stand-by', async (world) => {
    const replicas = new Replicas()
    const [a, b, c] = [await world.locker(), await world.locker(), await world.locker()]
    const rerun = { policy: 'rerun' } as const
    const tokens: bigint[] = []
    const noting: Work = ({ lease }) => void tokens.push(lease.fence.token)
    void replicas
      .runner(a, rerun, (run) => {
        noting(run)
        return forEver(run)
      })
      .run(T1)
    await world.until('it runs', () => replicas.started.length === 1)
    const standing = replicas.runner(b, rerun, noting).run(T1)
    await world.until('it stands by', async () => (await c.inspect(NAME))?.waiters.length === 1)
    expect(await ended(world, replicas.runner(c, rerun, noting).run(T1))).toBe('left')
    world.kill(a)
    expect(await ended(world, standing)).toBe('ran')
    expect(replicas.started).toEqual(['T1 #1', 'T1 #2'])
    expect(tokens[1]).toBeGreaterThan(tokens[0] ?? 0n)
    // It is done now: the stand-by of a late replica reads that, and leaves.
    expect(await ended(world, replicas.runner(c, rerun).run(T1))).toBe('left')
    expect(replicas.started).toHaveLength(2)
  })

  stage.test('rerun: a tick that kills its runner is set aside, and the next one runs', async (world) => {
    const replicas = new Replicas()
    const [a, b] = [await world.locker(), await world.locker()]
    const once = { policy: 'rerun', maxStarts: 1 } as const
    void replicas.runner(a, once, forEver).run(T1)
    await world.until('it runs', () => replicas.started.length === 1)
    world.kill(a)
    expect(await ended(world, replicas.runner(b, once).run(T2))).toBe('ran')
    expect(replicas.started).toEqual(['T1 #1', 'T2 #1'])
    expect(replicas.setAside).toEqual([new Date(T1).toISOString()])
  })

  stage.test('rerun: a job that threw runs again, and is done', async (world) => {
    const replicas = new Replicas()
    const failsOnce: Work = ({ tick }) => {
      if (tick.start === 1) throw new Error('no paper')
    }
    const options = { policy: 'rerun', rerunAfterMs: 100 } as const
    const runner = replicas.runner(await world.locker(), options, failsOnce)
    expect(await ended(world, runner.run(T1))).toBe('ran')
    expect(replicas.started).toEqual(['T1 #1', 'T1 #2'])
    expect(replicas.errors.map(String)).toEqual(['Error: no paper'])
  })

  stage.test(
    'a start whose write is not confirmed does not run; a done that is not is written again',
    async (world) => {
      const replicas = new Replicas()
      const [a, b] = [await world.locker(), await world.locker()]
      world.wireOf(a).next('setData', { kind: 'error-after' })
      expect(await ended(world, replicas.runner(a).run(T1))).toBe('left')
      expect(replicas.started).toEqual([])
      const failing: Work = () => world.wireOf(b).next('setData', { kind: 'error-before' })
      expect(await ended(world, replicas.runner(b, { policy: 'rerun' }, failing).run(T2))).toBe('ran')
      const data = await b.withLease(NAME, (lease) => lease.previousData)
      expect(JSON.parse(data ?? '')).toMatchObject({ tick: T2, state: 'done' })
    },
  )

  stage.test(
    'T53 closing waits for the job before the lease is free; then the stand-by starts it',
    async (world) => {
      const replicas = new Replicas()
      const [a, b] = [await world.locker(), await world.locker()]
      const rerun = { policy: 'rerun' } as const
      const end = Promise.withResolvers<void>()
      const first = replicas.runner(a, rerun, () => end.promise)
      void first.run(T1)
      await world.until('it runs', () => replicas.started.length === 1)
      const standing = replicas.runner(b, rerun).run(T1)
      const closing = first.close()
      await world.passTime(world.ttlMs / 4)
      expect((await b.inspect(NAME))?.holders.map(({ holder }) => holder)).toEqual([a.holder])
      end.reject(new Error('interrupted'))
      await ended(world, closing)
      expect(await ended(world, standing)).toBe('ran')
      expect(replicas.started).toHaveLength(2)
    },
  )

  stage.test('three replicas of a schedule start each tick once, also when one is killed', async (world) => {
    const ticks: number[] = []
    const lockers = await Promise.all(Array.from({ length: 3 }, () => world.locker()))
    const everyMs = world.ttlMs / 10
    const schedules = await Promise.all(
      lockers.map((locker) =>
        schedule(locker, { name: NAME, everyMs, onError: () => {} }, async ({ tick }) => {
          ticks.push(tick.scheduledAt.getTime())
          if (ticks.length === 2) world.kill(locker)
        }),
      ),
    )
    await world.until('four ticks', () => ticks.length >= 4)
    const closing = schedules.map((each) => each.close())
    await Promise.race([Promise.allSettled(closing), world.passTime(world.ttlMs / 2)])
    expect(ticks).toEqual([...new Set(ticks)].sort((a, b) => a - b))
    expect(ticks.every((tick) => tick % everyMs === 0)).toBe(true)
  })

  stage.test("T97 missed: 'all' runs each tick of an outage", async (world) => {
    const ticks: number[] = []
    const lockers = [await world.locker(), await world.locker()]
    const everyMs = world.ttlMs / 10
    const times = { name: NAME, everyMs, missed: 'all', policy: 'rerun' } as const
    const schedules = await Promise.all(
      lockers.map((locker) =>
        schedule(
          locker,
          { ...times, onError: () => {} },
          ({ tick }) => void ticks.push(tick.scheduledAt.getTime()),
        ),
      ),
    )
    await world.until('two ticks', () => ticks.length >= 2)
    const wires = lockers.map((locker) => world.wireOf(locker))
    const now = () => lockers[0]?.clock.wallMs() ?? 0
    for (const wire of wires) wire.cutOff()
    const from = now()
    await world.passTime(world.ttlMs / 2)
    const to = now()
    for (const wire of wires) wire.restore()
    await world.until('ticks after the outage', () => (ticks.at(-1) ?? 0) > to + 3 * everyMs, 20)
    await ended(world, Promise.all(schedules.map((each) => each.close())))
    const due: number[] = []
    for (let tick = Math.ceil(from / everyMs) * everyMs; tick <= to; tick += everyMs) due.push(tick)
    expect(due.length).toBeGreaterThanOrEqual(4)
    expect(due.filter((tick) => !ticks.includes(tick))).toEqual([])
    const others = ticks.filter((tick) => tick > to)
    expect(others).toEqual([...others].sort((a, b) => a - b))
  })
})
