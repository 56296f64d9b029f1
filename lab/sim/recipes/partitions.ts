/**
 * Members share partitions, and work on each of them behind the guard. Judged here: no partition is worked on by two members
 * that the engine both has as its holders, the work has stopped before a lease is given back (T53, early releases), and when the faults are
 * over all partitions are worked on, evenly.
 */
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import { publicIdOf } from '../../../packages/holdfast/src/base/ids.ts'
import type { FencedLease } from '../../../packages/holdfast/src/base/types.ts'
import { partitions } from '../../../packages/holdfast/src/recipes/partitions.ts'
import type { Client } from '../client.ts'
import type { SimProcess } from '../machine.ts'
import { stream } from '../random.ts'
import type { TrackedLease } from '../tracked.ts'
import type { World } from '../world.ts'
import { trackingLocker } from './tracking-locker.ts'

const NAME = 'p'
const COUNT = 6

/** One partition in the hands of one member, from `onAssigned` until `onRevoked` has settled. */
interface Work {
  readonly partition: number
  readonly lease: FencedLease
  readonly process: SimProcess
  isToStop: boolean
  done: Promise<void>
}

/** All work of a world, by the id of its lease. */
const works = new WeakMap<World, Map<string, Work>>()

function worksOf(world: World): Map<string, Work> {
  let found = works.get(world)
  if (found === undefined) {
    found = new Map()
    works.set(world, found)
    // Faults have ended at half-time, and members leave from 0.68 on.
    if (world.settings.mode === 'liveness')
      world.scheduler.at(world.settings.durationMs * 0.675, () => mustBeShared(world))
  }
  return found
}

export async function shareOut(client: Client): Promise<void> {
  const { world, process } = client
  const running = worksOf(world)
  const dice = stream(world.settings.seed, 'member', client.address)
  const leases = new Map<string, TrackedLease>()
  const locker = trackingLocker(client, {
    tracked: (tracked) => leases.set(tracked.id, tracked),
    releasing: ({ id, name }) => {
      if (running.get(id)?.lease.state === 'held')
        world.fail('T53', `${name} was given away while work under ${id} still ran`)
    },
  })
  const onAssigned = (partition: number, lease: FencedLease) => {
    const work: Work = { partition, lease, process, isToStop: false, done: Promise.resolve() }
    mustBeAlone(world, work)
    running.set(lease.id, work)
    world.count('partition assigned')
    const tracked = leases.get(lease.id)
    if (tracked !== undefined) work.done = keepWorking(client, work, tracked)
  }
  const onRevoked = async (partition: number, reason: string) => {
    world.count(`partition ${reason}`)
    for (const [id, work] of running) {
      if (work.process !== process || work.partition !== partition) continue
      work.isToStop = true
      await work.done
      running.delete(id)
    }
  }
  while (process.isAlive && !world.isStopping) {
    try {
      const options = { name: NAME, count: COUNT, onAssigned, onRevoked, onError: () => {} }
      await using _ = await partitions(locker, options)
      world.count('member joined')
      // Some stay, and some leave and come back.
      const leavesAtMs =
        world.nowMs + (dice.chance(0.5) ? dice.between(2_000, 40_000) : world.settings.durationMs)
      while (!world.isStopping && (world.nowMs < leavesAtMs || isQuiet(world))) await process.sleep(200)
    } catch (error) {
      if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') && !isHoldfastError(error, 'LEASE_LOST')) throw error
    }
    await process.sleep(dice.between(500, 4_000))
  }
}

/** Nothing changes any more by itself. */
function isQuiet({ nowMs, healedAtMs, settings }: World): boolean {
  return settings.mode === 'liveness' && (nowMs > healedAtMs || nowMs > settings.durationMs * 0.48)
}

async function keepWorking(client: Client, work: Work, tracked: TrackedLease): Promise<void> {
  const { world, process } = client
  const dice = stream(world.settings.seed, 'work', work.lease.id)
  while (!work.isToStop && world.checks.believes(tracked)) {
    const read = await client.visit({ kind: 'read', fence: work.lease.fence })
    await process.sleep(dice.between(100, 2_000))
    if (read === null || !world.checks.believes(tracked)) continue
    // A write of unknown outcome may still land. The same fence does not tell it from the next one.
    if ((await client.visit({ kind: 'write', fence: work.lease.fence, read })) === null) return
  }
}

/** The engine may have given it to another against the will of the first, but never to both. */
function mustBeAlone(world: World, { partition, lease }: Work): void {
  const holders = world.engine.engine.names.get(lease.name)?.holders.values() ?? []
  const held = new Set([...holders].map(({ attempt }) => publicIdOf(attempt)))
  for (const [id, other] of worksOf(world))
    if (other.partition === partition && other.process.isAlive && held.has(id) && held.has(lease.id))
      world.fail('partitions', `${id} and ${lease.id} both hold ${lease.name}`)
}

function mustBeShared(world: World): void {
  const sizes = world.clients.map(() => 0)
  const worked = new Set<number>()
  for (const { partition, process, lease } of worksOf(world).values()) {
    const at = world.clients.findIndex((client) => client.process === process)
    if (at < 0 || !process.isAlive || lease.state !== 'held') continue
    worked.add(partition)
    sizes[at] = (sizes[at] ?? 0) + 1
  }
  world.count('partitions shared')
  if (worked.size !== COUNT || Math.max(...sizes) - Math.min(...sizes) > 1)
    world.fail('G10', `the faults are long over, and the members have ${sizes} of ${COUNT} partitions`)
}
