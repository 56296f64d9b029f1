/**
 * Replicas of one schedule with `missed: 'all'`, which join, leave and die. Their wall clocks agree, so that a tick is due for all of
 * them at once. Judged here, unless operators delete the record:
 *
 *   T97     each tick between the first and the last that was started was started as well, or fell due while a job ran
 *   once    with `skip` no tick starts twice, and tokens increase from start to start
 *   G11     only honest errors are told
 */
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import { overriding } from '../../../packages/holdfast/src/base/overriding.ts'
import type { AcquireOptions, FencedLease, Locker } from '../../../packages/holdfast/src/base/types.ts'
import {
  type ScheduleOptions,
  schedule,
  type TickRun,
} from '../../../packages/holdfast/src/recipes/schedule.ts'
import type { Client } from '../client.ts'
import { stream } from '../random.ts'
import type { World } from '../world.ts'
import { trackingLocker } from './tracking-locker.ts'

const NAME = 'nightly'
const WALL_MS = 1_800_000_000_000
/** In a shorter job, the making up for many ticks would look like a hot loop. */
const SHORTEST_JOB_MS = 60

/** Coverage that a thousand runs must reach to mean anything. */
export const schedulesCoverage: Readonly<Record<string, number>> = {
  'tick started': 20_000,
  'tick started late': 2_000,
  'tick overrun': 300,
  'replica joined': 2_000,
  'fault crash-engine': 50,
  'fault freeze-engine': 50,
  'fault crash-client': 50,
  'fault pause': 50,
  'fault partition': 50,
}

/** The part of the record that is looked at. */
interface Written {
  readonly tick: number
  readonly state: string
  readonly since: number
  readonly until: number | null
}

/** Ticks of the schedule of a world. */
class Ticks {
  readonly options: ScheduleOptions & { readonly everyMs: number }
  /** Ticks whose start was asked to be recorded. If the answer was lost, `skip` has used the tick up. */
  readonly asked = new Set<number>()
  readonly started: { readonly tick: number; readonly token: bigint }[] = []
  /** From when a replica had the lease until its job ended. */
  readonly runs: (readonly [since: number, until: number])[] = []
  readonly #world: World

  constructor(world: World) {
    this.#world = world
    const dice = stream(world.settings.seed, 'schedule')
    this.options = {
      name: NAME,
      everyMs: dice.pick([700, 1_000, 2_500]),
      missed: 'all',
      maxMissed: 10_000,
      policy: dice.pick(['skip', 'rerun']),
      overrun: dice.pick(['skip', 'skip', 'wait']),
      maxStarts: 1_000,
      rerunAfterMs: 300,
    }
    world.scheduler.at(world.settings.durationMs * 0.67, () => this.#judge())
  }

  start({ tick, lease }: TickRun<'fenced'>): void {
    const world = this.#world
    const [at, { token }] = [tick.scheduledAt.getTime(), lease.fence]
    world.count('tick started')
    if (WALL_MS + world.nowMs - at > 2 * this.options.everyMs) world.count('tick started late')
    if (world.settings.mode === 'guard') return
    if (this.options.policy === 'skip' && this.started.some((each) => each.tick === at))
      world.fail('once', `tick ${at - WALL_MS} has started twice`)
    const last = this.started.at(-1)
    if (last !== undefined && last.token >= token)
      world.fail('once', `tick ${at - WALL_MS} has started under token ${token}, after ${last.token}`)
    this.started.push({ tick: at, token })
  }

  #judge(): void {
    const [first] = this.started
    if (this.#world.settings.mode === 'guard' || first === undefined) return
    const last = Math.max(...this.started.map(({ tick }) => tick))
    for (let tick = first.tick; tick < last; tick += this.options.everyMs) {
      if (this.asked.has(tick)) continue
      if (!this.runs.some(([since, until]) => tick > since && tick <= until))
        this.#world.fail('T97', `tick ${tick - WALL_MS} was lost: no job ran when it fell due`)
      this.#world.count('tick overrun')
    }
  }
}

const ticksOf = new WeakMap<World, Ticks>()

export async function keepSchedule(client: Client): Promise<void> {
  const { world, process } = client
  const ticks = ticksOf.get(world) ?? new Ticks(world)
  ticksOf.set(world, ticks)
  const dice = stream(world.settings.seed, 'replica', client.address)
  const { everyMs } = ticks.options
  const job = async (run: TickRun<'fenced'>) => {
    ticks.start(run)
    const longMs = dice.chance(0.05) ? 3 * everyMs : everyMs / 4
    await process.sleep(dice.between(SHORTEST_JOB_MS, Math.max(longMs, 2 * SHORTEST_JOB_MS)))
    run.signal.throwIfAborted()
  }
  const onError = (error: unknown) => {
    const isHonest = isHoldfastError(error, 'BACKEND_UNAVAILABLE') || isHoldfastError(error, 'LEASE_LOST')
    const isClosed = error instanceof Error && error.message === 'the schedule was closed'
    if (!isHonest && !isClosed)
      world.fail('G11', `a schedule has failed with ${String((error as Error)?.stack ?? error)}`)
  }
  while (process.isAlive && !world.isStopping) {
    await using _ = await schedule(watched(client, ticks), { ...ticks.options, onError }, job)
    world.count('replica joined')
    const leavesAtMs = world.nowMs + (dice.chance(0.4) ? dice.between(2_000, 30_000) : 1e9)
    while (!world.isStopping && world.nowMs < leavesAtMs) await process.sleep(200)
  }
}

/** The client's locker, with the wall clock of all, and an eye on what is recorded. */
function watched(client: Client, ticks: Ticks): Locker<'fenced'> {
  const { world } = client
  const locker = trackingLocker(client)
  const own = client.clock
  const clock: Locker['clock'] = {
    monotonicMs: () => own.monotonicMs(),
    wallMs: () => WALL_MS + world.nowMs,
    setTimer: (ms, fire, options) => own.setTimer(ms, fire, options),
  }
  const withLease = <T>(
    name: string,
    options: AcquireOptions,
    body: (lease: FencedLease) => Promise<T> | T,
  ): Promise<T> =>
    locker.withLease(name, options, (lease) => {
      const fromMs = WALL_MS + world.nowMs
      const setData: FencedLease['setData'] = (data, options) => {
        const { tick, state, since, until } = JSON.parse(data) as Written
        if (state === 'started') ticks.asked.add(tick)
        else if (until !== null) ticks.runs.push([Math.max(since, fromMs), until])
        return lease.setData(data, options)
      }
      return body(overriding(lease, { setData }))
    })
  return overriding(locker, { clock, withLease: withLease as Locker<'fenced'>['withLease'] })
}
