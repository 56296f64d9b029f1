/**
 * One simulated service: a process with a locker and a few tasks that take turns with everybody else. It can crash
 * and come back, and it closes its locker and makes a new one now and then.
 */
import { isHoldfastError } from '../../packages/holdfast/src/base/errors.ts'
import type { Random } from '../../packages/holdfast/src/base/ids.ts'
import type { HoldOptions, LeaseBase, Locker } from '../../packages/holdfast/src/base/types.ts'
import { createLocker } from '../../packages/holdfast/src/locker/locker.ts'
import { SimBackend } from './backend.ts'
import { SimConnection } from './connection.ts'
import { LockerClock } from './locker-clock.ts'
import { Machine, SimProcess } from './machine.ts'
import { type Stream, stream } from './random.ts'
import { type RecipeWorkload, recipes } from './recipes/index.ts'
import type { Versions, Visit } from './resource.ts'
import { TrackedLease } from './tracked.ts'
import { operate } from './workload.ts'
import type { World } from './world.ts'

const VISIT_TIMEOUT_MS = 1_500
/** Longer than any body runs: what is given away before that is given away too early (T53, early releases). */
const CLOSE_GRACE_MS = 30_000
/** Errors with which an operation may end besides its result; anything else is a bug (G11). */
const honest = ['ACQUIRE_TIMEOUT', 'LEASE_LOST', 'BACKEND_UNAVAILABLE', 'CLOSED'] as const

export class Client {
  readonly index: number
  readonly machine: Machine
  readonly world: World
  process: SimProcess
  locker: Locker<'fenced'>
  clock: LockerClock
  address = ''
  /** Names that an `acquireAll` is gathering: it holds some of them before it has handed out any. */
  readonly gathering = new Map<string, number>()
  #lockers = 0
  #operations = 0
  #running = new Set<Promise<void>>()
  /** When the operations began that are in flight. */
  readonly #begunMs = new Map<number, number>()

  constructor(world: World, index: number) {
    const clock = world.settings.clocks[index]
    if (clock === undefined) throw new Error('every client has a clock')
    this.world = world
    this.index = index
    this.machine = new Machine(world.scheduler, clock, stream(world.settings.seed, 'machine', index))
    this.process = this.#newProcess()
    this.clock = new LockerClock(this.process)
    this.locker = this.#newLocker()
  }

  start(): void {
    const { workload, tasksPerClient } = this.world.settings
    const recipe = recipes[workload]
    if (recipe !== undefined) {
      this.#keepRunning(this.#recipe(recipe))
      return
    }
    if (workload !== 'locks') throw new Error(`there is no workload ${workload}`)
    for (let task = 0; task < tasksPerClient; task++) this.#keepRunning(this.#task(task, this.process))
  }

  #keepRunning(work: Promise<void>): void {
    const running = work.finally(() => this.#running.delete(running))
    this.#running.add(running)
  }

  async #recipe(recipe: RecipeWorkload): Promise<void> {
    const number = ++this.#operations
    this.#begunMs.set(number, this.world.nowMs)
    try {
      await recipe(this)
    } catch (error) {
      this.world.fail('G11', `the recipe failed with ${String((error as Error)?.stack ?? error)}`)
    } finally {
      this.#begunMs.delete(number)
    }
  }

  get isBusy(): boolean {
    return this.#running.size > 0
  }

  crash(forMs: number): void {
    if (!this.process.isAlive) return
    this.process.kill()
    this.#running.clear()
    this.#begunMs.clear()
    this.gathering.clear()
    this.world.scheduler.after(forMs, () => {
      this.process = this.#newProcess()
      this.locker = this.#newLocker()
      if (!this.world.isStopping) this.start()
    })
  }

  /** The old one settles, whatever the engine does; bodies that run under it are waited for. */
  async replaceLocker(): Promise<void> {
    const closed = this.closeLocker()
    this.locker = this.#newLocker()
    await closed
  }

  async closeLocker(): Promise<void> {
    const { world, process, clock, address } = this
    world.closingLocker(address)
    await this.locker.close({ graceMs: CLOSE_GRACE_MS })
    // Calls without a caller come to their end by themselves.
    process.setTimer(world.settings.callTimeoutMs * 1.1 + 100, () => {
      if (clock.timers > 0) world.fail('T29', `${clock.timers} timers of ${address} outlive its locker`)
    })
  }

  /** Timers that keep the process alive without an operation that needs them; calls have their own time to end (T29, late renewals). */
  lookAtTimers(): void {
    const { world, machine, clock, address } = this
    const sinceMs = clock.keepsAliveSinceMs
    if (sinceMs === undefined || machine.isStopped || !this.process.isAlive) return
    const allowedMs = world.settings.callTimeoutMs * 1.1 + 100
    if (world.nowMs - Math.max(sinceMs, machine.lastStopMs) <= allowedMs) return
    for (const begunMs of this.#begunMs.values()) if (begunMs <= sinceMs) return
    world.fail('T29', `a timer of ${address} keeps its process alive, and no call waits for anything`)
  }

  track(lease: LeaseBase, options: HoldOptions): TrackedLease {
    const tracked = new TrackedLease(lease, this.process, options, () => this.world.nowMs)
    this.world.note(this.address, 'has', `${lease.name} ${lease.id.replace(/_+$/, '')}`)
    this.world.checks.handedOut(tracked)
    return tracked
  }

  /** One message to the resource; null if its outcome is unknown. */
  visit(visit: Visit): Promise<Versions | null> {
    const { world, process } = this
    const route = { client: this.index, server: 'resource' as const, inOrder: true }
    return new Promise((resolve) => {
      const timer = process.setTimer(VISIT_TIMEOUT_MS, () => resolve(null))
      const onAnswer = (versions: Versions) =>
        process.deliver(() => {
          timer.cancel()
          resolve(versions)
        })
      const reply = (versions: Versions) =>
        world.network.send({ ...route, direction: 'in', deliver: () => onAnswer(versions) })
      const { resource } = world
      world.network.send({
        ...route,
        direction: 'out',
        isWrite: visit.kind === 'write',
        deliver: () => resource.receive(() => resource.handle(visit, reply)),
      })
    })
  }

  async #task(task: number, process: SimProcess): Promise<void> {
    const { world } = this
    const thinking = stream(world.settings.seed, 'think', this.index, task)
    while (process.isAlive && !world.isStopping) {
      await process.sleep(thinking.between(100, 2_500))
      if (world.isStopping) return
      const number = ++this.#operations
      const aborted = new Error('the caller has had enough')
      this.#begunMs.set(number, world.nowMs)
      try {
        await operate(this, stream(world.settings.seed, 'operation', this.index, task, number), aborted)
      } catch (error) {
        this.#mustBeHonest(error, aborted)
      } finally {
        this.#begunMs.delete(number)
      }
    }
  }

  #mustBeHonest(error: unknown, aborted: Error): void {
    const { world } = this
    const code = error === aborted ? 'aborted' : honest.find((each) => isHoldfastError(error, each))
    if (code !== undefined) world.count(`ended ${code}`)
    else world.fail('G11', `an operation failed with ${String((error as Error)?.stack ?? error)}`)
  }

  #newProcess(): SimProcess {
    return new SimProcess(this.machine, stream(this.world.settings.seed, 'timers', this.index, this.#lockers))
  }

  #newLocker(): Locker<'fenced'> {
    const { world, index } = this
    const { seed, ttlMs, callTimeoutMs } = world.settings
    this.address = `c${index}x${++this.#lockers}`
    this.clock = new LockerClock(this.process)
    const connection = new SimConnection(world, index, this.process, this.address)
    world.connections.set(this.address, connection)
    const random = readableRandom(this.address, stream(seed, 'client', this.address))
    return createLocker(new SimBackend(connection, this.clock, random), {
      ttlMs,
      callTimeoutMs,
      holder: this.address,
    })
  }
}

/** Ids that can be read in a trace, in the shape of real ones. */
function readableRandom(address: string, dice: Stream): Random {
  let ids = 0
  return { id: () => `${address}-${++ids}`.padEnd(22, '_'), fraction: () => dice.fraction() }
}
